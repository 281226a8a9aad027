"""The worked example of the page on plans, with the shipped facts: the published truth."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_examples import DOCS, matches, read_examples

from compatgate.cli.main import main

PAGE = DOCS / "how-to" / "plan-an-upgrade.md"
HERE = re.compile(r"cat > (\S+) <<'END'\n(.*?)^END$", re.MULTILINE | re.DOTALL)
DROPPED = {"maxwell", "pascal", "volta"}
"""CUDA 13 release notes: architectures before Turing are removed; driver 580 is their last."""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[str, str, str]]]:
    """Commands of the page, what they should print and what they print, in a folder of its own."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("plan"))
        patch.setenv("COLUMNS", "100")
        for command, wanted in read_examples(PAGE):
            if here := HERE.match(command):
                Path(here[1]).write_text(here[2])
            else:
                found.append((command, wanted, run(command)))
        yield found


def run(command: str) -> str:
    from contextlib import redirect_stdout
    from io import StringIO

    out = StringIO()
    with redirect_stdout(out):
        main(shlex.split(command)[1:])
    return out.getvalue().rstrip("\n")


def test_the_page_prints_what_it_says(answers: list[tuple[str, str, str]]) -> None:
    assert len(answers) == 4
    for command, wanted, printed in answers:
        assert matches(wanted, printed), f"{command}\n{printed}"


def test_driver_580_is_the_last_and_cuda_13_drops_what_is_older_than_turing(
    answers: list[tuple[str, str, str]],
) -> None:
    plan = json.loads(run("compatgate plan --target fleet --upgrade driver --database fleet.db"
                          " --format json"))  # fmt: skip
    assert plan["set"]["driver"].startswith("580.")
    rows = {row["branch"]: row for row in plan["frontier"]["rows"]}
    assert rows[580]["keeps"] == 2
    for branch, row in rows.items():
        if branch > 580:
            assert row["keeps"] == 0
            assert {why.partition(":")[0] for why in row["why"]} == DROPPED
            assert all(" CG105 " in why for why in row["why"])
    for series, reached in (("12.9", set()), ("13.0", DROPPED)):
        asked = f"--set driver=580.95.05 --upgrade cuda={series} --format json"
        plan = json.loads(run(f"compatgate plan --target fleet {asked} --database fleet.db"))
        dropped = {p for g in plan["groups"] if g["rule"] == "CG203" for p in g["pools"]}
        assert dropped == reached
