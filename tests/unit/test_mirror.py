"""Each folder of unit tests has the path of what it tests."""

from __future__ import annotations

from pathlib import Path

UNIT = Path(__file__).parent
ROOT = UNIT.parents[1]
TESTED = (ROOT / "compatgate", ROOT, ROOT / "tests")
"""Where the path of a folder of ``tests/unit`` may lead: `canary/lib`, `docs` and others of the
repository, and what tests share."""


def test_each_folder_of_tests_names_a_folder_that_has_code() -> None:
    folders = {path.parent.relative_to(UNIT) for path in UNIT.rglob("test_*.py")}
    strays = [path for path in folders if not any((base / path).is_dir() for base in TESTED)]
    assert not strays, f"tests/unit/{strays[0]} mirrors no folder: move its tests"
