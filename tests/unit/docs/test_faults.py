"""The page of faults has a row for each test that breaks a gate."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_each_fault_has_a_row_and_each_row_a_test() -> None:
    tests = (ROOT / "tests/faults/test_faults.py").read_text()
    page = (ROOT / "docs/reference/faults.md").read_text()
    rows = re.findall(r"^\| .* \| `(test_\w+)` \|", page, re.MULTILINE)
    assert len(rows) == len(set(rows))
    assert set(rows) == set(re.findall(r"def (test_\w+)\(", tests))
