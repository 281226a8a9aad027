"""Facts that hold together are left alone, and a fact that does not fit is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fact_checks import ALL, verify_all
from tables import read_table

from compatgate.catalog.checks import verify
from compatgate.catalog.references import Problem

Write = Callable[..., str]
pytestmark = pytest.mark.usefixtures("schemas_asked_once")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(autouse=True)
def cache(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One cache for all: only what a test changes is compiled anew."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared))
    monkeypatch.delenv("COMPATGATE_FACTS", raising=False)


def test_facts_that_hold_together_have_no_problem() -> None:
    assert verify_all([]) == []
    assert verify([]) == []


MISFITS = {misfit["case"]: misfit for misfit in read_table(Path(__file__).parent / "misfits.yaml")}


@pytest.mark.parametrize("case", MISFITS)
def test_a_misfit_is_found(overlay: Write, case: str) -> None:
    """By the check that is there for it: the others, which would not count, are not asked."""
    misfit = MISFITS[case]
    asked = [one for one in ALL if misfit["check"] in _problems_of(one)]
    path = overlay(misfit["overlay"], f"{misfit['facts']}.yaml")
    found = {(problem.check, problem.subject) for problem in verify_all([path], asked)}
    assert (misfit["check"], misfit["subject"]) in found


PROBLEMS_OF = {
    "names-exist": {
        "same-row-exists", "peak-names", "kernel-branches", "node-references", "platform-gpus",
        "platform-names", "machine-gpus", "cause-rules", "cause-consequences",
    },
    "platform-processors": {"platform-gpus"},
}  # fmt: skip
"""Problems of the checks that are not named after theirs."""


def _problems_of(check: Callable[..., object]) -> set[str]:
    name = check.__name__.replace("_", "-")
    return PROBLEMS_OF.get(name, {name})


def test_every_check_is_tried_by_a_misfit() -> None:
    tried = {misfit["check"] for misfit in MISFITS.values()}
    untried = {
        "named-once",
        "sourced",
        "nccl-majors",
        "file-of-component",
        "package-records",  # tests/unit/catalog/test_records.py
    }  # no overlay can make the others
    named = {name for check in ALL for name in _problems_of(check)}
    assert named - untried == tried


def edit(installed: Path, name: str, old: str, new: str) -> None:
    """Change a file of an installation without its tables, as a developer would."""
    path = installed / "matrix" / "facts" / f"{name}.yaml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.fixture
def checkout(installed: Path) -> Path:
    """Fact files that one may edit, without compiled tables."""
    import shutil

    shutil.rmtree(installed / "catalog")
    return installed


def test_a_code_that_stands_twice_is_found(checkout: Path) -> None:
    edit(checkout, "xid", "- xid: 14\n", "- xid: 13\n")
    assert [p.subject for p in verify([])] == ["xid xids[xid=13]"]


def test_a_record_without_a_source_is_found(checkout: Path) -> None:
    edit(checkout, "exceptions", "environment[name=NVIDIA_TENSORFLOW_VERSION]", "nowhere")
    subject = "image_signals environment[name=NVIDIA_TENSORFLOW_VERSION]"
    assert Problem("sourced", subject, "no source") in verify([])


def test_a_file_about_another_framework_than_its_name_is_found(checkout: Path) -> None:
    edit(checkout, "frameworks/cupy", "component: cupy", "component: transformer-engine")
    found = Problem("file-of-component", "frameworks/cupy", "is about transformer-engine")
    assert found in verify([])


def test_a_schema_error_stops_before_the_tables(checkout: Path) -> None:
    edit(checkout, "driver_branches", "- branch: 550\n", "- branch: five\n")
    assert [problem.check for problem in verify([])] == ["schema"]


def test_an_exception_that_nothing_meets_is_reported(checkout: Path) -> None:
    edit(checkout, "exceptions", "gpus B300 first branch", "gpus B301 first branch")
    assert Problem(
        "exceptions",
        "gpu-matches-capability gpus B301 first branch",
        "this exception matches no problem",
    ) in verify_all([])
