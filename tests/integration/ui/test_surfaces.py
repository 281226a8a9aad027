"""One question has one answer, wherever it is asked: pages, REST, command line."""

from __future__ import annotations

import json
import re

import pytest

from compatgate.cli.main import main
from compatgate.core.cells import classify_verdict
from compatgate.core.stack import format_stack
from compatgate.kit import clock
from compatgate.service.gate.advice.cells import CellSection, build_table

ROWS = {"entry": "", "torch": "torch>=2.7,torch<2.10", "vllm": "vllm>=0.14", "jax": "jax>=0.8"}


@pytest.fixture
def questions(stocked):
    """Each stack of the map on each target of the example fleet, with the map's answer."""
    snapshot, found = stocked.gate.snapshot(), []
    for rows, wanted in ROWS.items():
        asked = CellSection(rows, "target", q=wanted, height=200, width=50)
        table = build_table(snapshot, asked, clock.now())
        found += [
            (row.stack.to_json(), column.key, cell)
            for row, line in zip(table.rows, table.cells, strict=True)
            for column, cell in zip(table.columns, line, strict=True)
            if row.stack is not None
        ]
    return found


def test_every_surface_gives_the_same_answer_in_every_cell(
    pages, questions, database_url, tmp_path, capsys
):
    client = pages()
    bodies = [{"target": target, "stack": stack} for stack, target, _ in questions]
    batch = tmp_path / "batch.jsonl"
    batch.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    main(["check", "--batch", str(batch), "--database", database_url])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == len(questions) > 60
    states = set()
    for (stack, target, cell), body, line in zip(questions, bodies, lines, strict=True):
        rest = client.post("/api/v1/gate", json=body).get_json()
        text = format_stack(stack)
        asked = client.get("/ui/ask", query_string={"target": target, "stack": text}).text
        typed = client.get("/ui/find", query_string={"q": f"{text} @ {target}"}).text
        word = "Allowed" if rest["allowed"] else "Denied"
        if rest["allowed"] and rest["verdict"] == "fail":
            word = "Not enforced: would be denied"
        assert (cell.verdict, classify_of(rest)) == (rest["verdict"], cell.state), body
        assert (line["verdict"], line["allowed"]) == (rest["verdict"], rest["allowed"]), body
        assert re.search(rf"<h2>{word}\b.*is-{rest['verdict']}", asked), body
        assert word in re.search(r'class="said">\s*<h2>(.*?)</h2>', typed)[1], body
        if cell.rule:
            assert cell.rule in asked
        states.add(cell.state)
    assert {"works", "note", "unblessed", "fails"} <= states


def classify_of(answer):
    """Return the state of a cell by an answer in JSON."""

    class Finding:
        def __init__(self, body):
            self.rule, self.outcome = body["rule"], body["outcome"]

    class Verdict:
        verdict = answer["verdict"]
        findings = [Finding(one) for one in answer["findings"]]

    return classify_verdict(Verdict)


@pytest.mark.parametrize("rows", ["entry", "torch"])
def test_an_entry_and_the_build_that_it_blesses_run_on_the_same_targets(stocked, rows):
    """By entry torch28-cu128 works; by framework it works if cuDNN and NCCL are the wheel's."""
    asked = CellSection(rows, "target", q="torch 2.8.0 cu128 staging-h100", height=50)
    table = build_table(stocked.gate.snapshot(), asked, clock.now())
    states = {row.key: line[0] for row, line in zip(table.rows, table.cells, strict=True)}
    cell = states["torch28-cu128" if rows == "entry" else "2.8.0+cu128"]
    assert cell.runs
    if rows == "torch":
        assert cell.rule == "CG804"
        assert "blessed as torch28-cu128, if its cuDNN and NCCL are the wheel's" in cell.why
