"""The examples of docs/reference/facts.md do what the page says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from fact_checks import verify_all

from compatgate.catalog import load_facts, sources
from compatgate.catalog.build import adapt

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "facts.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)

Write = Callable[..., str]


@pytest.fixture
def paths(overlay: Write) -> list[str]:
    return [overlay(text, f"{n}.yaml") for n, text in enumerate(EXAMPLES)]


def test_the_format_of_frameworks_is_as_on_the_page() -> None:
    (text,) = re.findall(r"```yaml title=[^\n]*\n(.*?)```", PAGE, re.DOTALL)
    document = sources.parse(text.encode(), "docs/reference/facts.md")
    assert list(sources.schema_errors("frameworks/torch", document)) == []
    (build,) = adapt("framework/torch", document).releases[0].builds
    assert build.pins["nccl"].source.title == "PyTorch previous-versions page"
    assert build.pins["cudnn"].source.confidence == "metadata"


def test_the_examples_are_laid_over_the_shipped_facts(paths: list[str]) -> None:
    facts = load_facts(paths)
    branches = facts.driver_branches.branches
    assert branches[535].eol == "2027-06-30"
    assert branches[535].note == "extended support contract"
    assert 590 not in branches
    assert branches[620].cuda == (13, 5)
    torch = facts.framework("torch")
    assert torch is not None
    release = next(r for r in torch.releases if r.version.text == "2.4.1")
    assert [b.label for b in release.builds] == ["cu118", "cu121", "cu124", "cu125"]
    assert release.builds[-1].pins["cudnn"].source.title == "our build pipeline"
    engine = facts.framework("transformer-engine")
    assert engine is not None
    assert engine.releases[0].builds[0].sass == ((8, 0), (9, 0))
    assert facts.known_issues.issues[-1].id == "OURS-7"
    assert facts.packages.carries("our-kernels") == "code"
    assert len(facts.overlays) == 5


def test_a_mistake_reads_as_on_the_page(overlay: Write) -> None:
    path = overlay(EXAMPLES[0].replace("2027-06\n", "soon\n"))
    with pytest.raises(Exception, match=r"branches\[branch=535\].eol") as caught:
        load_facts([path])
    message = str(caught.value).replace(path, "ours.yaml")
    assert f"error: {message}" in PAGE


def test_what_the_examples_change_is_found_by_the_checks(paths: list[str]) -> None:
    found = {(p.check, p.subject) for p in verify_all(paths)}
    assert ("page-cuda", "torch 2.4.1") in found
    assert not any("620" in subject for _, subject in found)
