"""The README is short and shows answers; test_tutorial.py types its commands."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from reader import read_blocks

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_readme_shows_an_answer_to_each_question() -> None:
    answered = [step.text for block in read_blocks(README) for step in block if step.expected]
    assert [text.split()[0] for text in answered] == ["compatgate", "curl", "compatgate"]


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 90


def test_the_rules_are_counted() -> None:
    page = (ROOT / "docs" / "reference" / "rules.md").read_text()
    rules = re.findall(r"^## CG\d+", page, re.MULTILINE)
    assert f"{len(rules)} [rules]" in README


def test_make_test_says_first_what_it_installs_and_how_long_it_takes() -> None:
    done = subprocess.run(
        ["make", "--dry-run", "test"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    before = done.stdout.partition("scripts/install-test-system\n")[0]
    assert "make test installs into .venv" in before
    assert "twenty minutes" in before
    assert "make check is the quick part" in before
