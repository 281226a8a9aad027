"""The table of what runs where, as the server makes it."""

from __future__ import annotations

import csv

import pytest

from compatgate.core.cells import classify_verdict
from compatgate.kit import clock
from compatgate.service.gate.advice.cells import CellSection, build_table


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    """On a busy machine every cell is answered at once, too."""
    monkeypatch.setattr("compatgate.web.pages.cells._SECONDS", 60.0)


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
    assert "CG" in answer.text or "rules passed" in answer.text


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


def test_the_start_page_says_what_runs_where_by_framework(pages):
    text = pages().get("/ui/?every=yes").text
    assert 'aria-label="PyTorch 2.8, staging-h100: works, with a note"' in text
    assert 'id="summary"' in text


def test_one_question_is_answered_by_a_sentence(pages):
    text = pages().get("/ui/?q=torch+2.8&columns=pool").text
    summary = text.partition('id="summary">')[2].partition("<")[0]
    assert (
        summary == "PyTorch 2.8 runs on 3 of 5 pools; not on inference-l4/l4 and prod-a100/a100-80."
    )


def test_equal_columns_are_folded_and_can_be_shown(pages):
    folded = pages().get("/ui/?q=torch+2.8&columns=pool").text
    whole = pages().get("/ui/?q=torch+2.8&columns=pool&every=yes").text
    assert "and 1 more" in folded
    assert "and 1 more" not in whole
    assert folded.count("<td>") < whole.count("<td>")


def test_pages_of_rows_have_numbers_and_a_total(pages):
    text = pages().get("/ui/matrix?rows=torch&columns=gpu").text
    assert "Rows 1 to 50 of" in text
    assert 'aria-label="page 2 of rows"' in text


def test_the_sign_of_open_cells_is_in_the_legend(pages, monkeypatch):
    monkeypatch.setattr("compatgate.web.pages.cells._SECONDS", -1)
    text = pages().get("/ui/").text
    assert '<i aria-hidden="true">·</i>not answered yet' in text


def test_a_gate_without_entries_shows_the_newest_releases(rooms, facts):
    from compatgate.core.cells import list_framework_rows

    rows = list_framework_rows([], facts)
    assert rows[0].group == "torch"
    assert all(row.stack for row in rows)


def test_an_image_that_was_not_read_takes_no_assumption(stocked):
    """The answer for the stack alone is not taken from memory for its image."""
    body = {"target": "staging-h100", "stack": {"torch": "2.8.0+cu128"}}
    alone = stocked.gate.preview(body)
    named = stocked.gate.preview({**body, "image": "registry.example/app:1"})
    assert "CG804" in {finding.rule for finding in alone.findings}
    assert {"CG801", "CG804"} & {finding.rule for finding in named.findings} == {"CG801"}


def test_the_matrix_is_shown_as_of_a_revision_and_a_day(pages, stocked, by):
    stocked.matrix.restate("torch24-cu124", "revoked", by)
    cell = "rows=entry&row=torch24-cu124&column=prod-a100"
    now = pages().get(f"/ui/?{cell}").text
    then = pages().get(f"/ui/?{cell}&at=1").text
    assert "The entry</a> is revoked" in now
    assert "The entry</a> is blessed" in then
    assert "The matrix as of 1, with today's facts." in then
    assert pages().get("/ui/?at=99").status_code == 404
    assert pages().get("/ui/?at=soon").status_code == 400
    assert "No targets" in pages().get("/ui/?at=2020-01-01").text
