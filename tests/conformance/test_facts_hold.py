"""The shipped facts hold together, and what else is shipped agrees with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fact_checks import verify_all

from compatgate.catalog import sources
from compatgate.catalog.checks import verify
from compatgate.resources import canary_dir

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "facts.md"


@pytest.mark.usefixtures("schemas_asked_once")
def test_the_shipped_facts_hold_together():
    assert verify_all([]) == []
    assert verify([]) == []


def test_every_exception_has_a_reason():
    path = sources.source_path("exceptions")
    document = sources.parse(sources.read_bytes(path), path)
    assert list(sources.schema_errors("exceptions", document)) == []
    for entry in document["exceptions"]:
        assert len(entry["reason"]) > 20


def test_every_fact_file_is_on_the_page():
    page = PAGE.read_text(encoding="utf-8")
    tables = [name for name in sources.names() if not name.startswith("packages/")]
    assert all(f"`{sources.title(name)}`" in page for name in tables)
    assert "`packages/`" in page


def test_the_ptx_table_of_the_canaries_agrees_with_the_facts(walk):
    table = json.loads((canary_dir() / "ptx-jit" / "versions.json").read_text())
    known = {t["cuda"]: t["ptx_isa"] for t in walk.read("cuda_arch_support")["toolkits"]}
    stated = {".".join(map(str, row["cuda"])): row["isa"] for row in table["versions"]}
    assert {cuda: known[cuda] for cuda in stated} == stated
