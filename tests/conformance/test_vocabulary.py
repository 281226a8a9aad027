"""One file names the components; what cannot read it agrees with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from vocabulary import vocabulary_source

from compatgate.catalog import load_facts, read_source
from compatgate.core import vocabulary
from compatgate.core.components import component_pattern, find_component, resolve_component
from compatgate.diagnostics import loaded
from compatgate.errors import BadInput

DOCUMENT = read_source("components", [])
RECORDS = DOCUMENT["components"]
PROGRAMS = [row for row in DOCUMENT["packages"] if "aliases" in row]


def test_the_module_is_what_the_facts_say() -> None:
    text = vocabulary_source(RECORDS, DOCUMENT["packages"])
    assert Path(str(vocabulary.__file__)).read_text() == text, "run make vocabulary"


def test_the_file_that_needs_nothing_but_python_knows_the_same_libraries() -> None:
    others = {"libcublasLt": "cublas", "libcuda": loaded.DRIVER_CUDA}
    assert vocabulary.LIBRARIES | others == loaded._COMPONENTS


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: str(record["name"]))
def test_every_name_of_a_component_is_resolved_to_it(record: dict[str, list[str]]) -> None:
    for name in (record["name"], *record.get("aliases", ()), *record.get("libraries", ())):
        resolved = find_component(str(name))
        assert resolved, name
        assert resolved.component.name == record["name"]


@pytest.mark.parametrize("record", PROGRAMS, ids=lambda record: str(record["name"]))
def test_every_name_of_a_program_is_resolved_to_it(record: dict[str, list[str]]) -> None:
    for name in (record["name"], *record["aliases"]):
        assert resolve_component(str(name)).component.name == record["name"]


def test_a_quick_look_misses_no_name_but_short_ones() -> None:
    names = {*vocabulary.ALIASES, *(row[0] for row in vocabulary.COMPONENTS)}
    missed = {name for name in names if not component_pattern().search(name)}
    assert missed == {"tf", "ort"}


@pytest.mark.parametrize(
    "change",
    [
        "{name: torch, title: Other}",
        "{name: torch, aliases: [our-torch]}",
        "{name: ours, title: O, kind: library, versions: cuda, source: us, confidence: derived}",
    ],
)
def test_an_overlay_that_changes_the_components_is_refused(tmp_path: Path, change: str) -> None:
    overlay = tmp_path / "components.yaml"
    overlay.write_text(f"schema: facts/components/v1\ncomponents:\n- {change}\n")
    with pytest.raises(BadInput) as refused:
        load_facts([str(overlay)]).packages.by_name  # noqa: B018 - it is read now
    assert "an overlay adds to packages" in refused.value.hint


def test_an_overlay_adds_packages(tmp_path: Path) -> None:
    overlay = tmp_path / "components.yaml"
    overlay.write_text(
        "schema: facts/components/v1\npackages:\n"
        "- {name: our-kernels, carries: code, source: us, confidence: derived}\n"
    )
    assert load_facts([str(overlay)]).packages.carries("our-kernels") == "code"
