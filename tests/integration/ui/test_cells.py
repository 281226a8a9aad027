"""The table of what runs where, as the server makes it."""

from __future__ import annotations

import csv

import pytest

from compatgate.core.cells import classify_verdict
from compatgate.kit import clock
from compatgate.service.gate.cells.cells import CellSection, build_table


@pytest.mark.parametrize("rows", ["entry", "torch", "stack"])
@pytest.mark.parametrize("columns", ["target", "pool", "gpu"])
def test_each_cell_is_what_the_gate_answers(stocked, rows, columns):
    snapshot = stocked.gate.snapshot()
    asked = CellSection(rows, columns, stack="torch 2.4 cu121", height=4, width=3)
    table = build_table(snapshot, asked, clock.now())
    for row, line in zip(table.rows, table.cells, strict=True):
        for column, cell in zip(table.columns, line, strict=True):
            if row.stack is None:
                assert cell.state == "unknown"
                continue
            said = [
                stocked.gate.preview(
                    {
                        "target": target.name,
                        "stack": row.stack.to_json(),
                        "pools": [pool.name for pool in target.pools],
                    }
                )
                for target in column.targets
            ]
            assert cell.state in {classify_verdict(one) for one in said}
            if cell.state == "works":
                assert {one.verdict for one in said} == {"pass"}


def test_a_change_of_the_matrix_changes_the_cells(stocked, by, entry_body):
    def state():
        asked = CellSection(stack="torch 2.6 cu126", rows="stack", q="prod-a100")
        return build_table(stocked.gate.snapshot(), asked, clock.now()).cells[0][0].state

    assert state() == "unblessed"
    stocked.matrix.create("Entry", entry_body("made", components={"torch": "2.6.*"}), by)
    assert state() in ("works", "note")


def test_a_cell_is_explained(pages):
    answer = pages().get("/ui/matrix?row=torch24-cu124&column=prod-a100")
    assert answer.status_code == 200
    assert "The entry</a> is blessed" in answer.text
    assert "CG" in answer.text or "rules hold" in answer.text


def test_a_filter_that_cannot_be_read_is_said_where_the_table_would_be(pages):
    answer = pages().get("/ui/matrix?q=torch+2.4+zebra")
    assert answer.status_code == 400
    assert "zebra" in answer.text
    assert "H100" in answer.text
    assert "CSV" not in answer.text


@pytest.mark.parametrize("query", ["rows=nothing", "columns=x", "rows=stack&stack=zebra", "top=-1"])
def test_a_bad_address_says_what_is_wrong(pages, query):
    assert pages().get(f"/ui/matrix?{query}").status_code == 400


def test_the_filtered_table_is_exported(pages):
    answer = pages().get("/ui/matrix?rows=torch&q=torch+2.4+cu121&format=csv")
    lines = list(csv.reader(answer.text.splitlines()))
    assert lines[0] == ["stack", "target", "state", "verdict", "rule", "why"]
    assert all(line[0].startswith("2.4.") for line in lines[1:])
    assert len(lines) > 4


def test_a_cell_on_no_page_is_an_empty_one(pages):
    assert pages().get("/ui/matrix?row=gone&column=gone").status_code == 200
