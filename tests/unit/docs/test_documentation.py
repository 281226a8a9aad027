"""Every picture of a page is shown in the documentation, and every one that is shown is there.

The changelog is in its form, and its first heading is the version of the program.

The page of faults has a row for each test that breaks a gate.
"""

from __future__ import annotations

import re
from pathlib import Path

from ui_pictures import OTHERS, PICTURES

from compatgate import RELEASE

DOCS = Path(__file__).parents[3] / "docs"
FOLDER = DOCS / "screenshots"
LARGEST = 3_700_000
"""Bytes of all pictures together."""
_SHOWN = re.compile(r"\]\((?:\.\./)*(?:docs/)?screenshots/([^)]+)\)")


def test_the_page_of_pages_shows_every_picture_that_tests_take():
    shown = set(_SHOWN.findall((DOCS / "reference" / "pages.md").read_text()))
    assert {f"{name}.webp" for name in (*PICTURES.values(), *OTHERS)} <= shown


def test_every_picture_that_is_shown_is_there_and_they_are_small():
    pages = [*DOCS.rglob("*.md"), DOCS.parent / "README.md"]
    shown = {name for page in pages for name in _SHOWN.findall(page.read_text())}
    there = {path.name: path.stat().st_size for path in FOLDER.iterdir() if path.is_file()}
    assert shown - set(there) == set()
    assert {name for name in there if name.endswith(".webp")} <= shown
    assert sum(there.values()) < LARGEST


ROOT = Path(__file__).parents[3]
RELEASES = re.findall(
    r"^## \[([^\]]+)\](?: - (.*))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
)


def test_releases_have_a_version_and_a_day_the_newest_first() -> None:
    dated = [(name, day) for name, day in RELEASES if day and day != "unreleased"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", name) for name, _ in dated)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", day) for _, day in dated)
    numbers = [tuple(map(int, name.split("."))) for name, _ in dated]
    assert numbers == sorted(numbers, reverse=True)


def test_the_first_heading_is_the_version_of_the_program() -> None:
    name, day = RELEASES[0]
    assert (f"{name}.dev0" if day == "unreleased" else name) == RELEASE


def test_the_security_policy_names_the_minor_version_that_gets_fixes() -> None:
    minor = ".".join(RELEASE.split(".")[:2])
    assert f"| {minor}.x |" in (ROOT / "SECURITY.md").read_text()


def test_each_fault_has_a_row_and_each_row_a_test() -> None:
    tests = (ROOT / "tests/faults/test_faults.py").read_text()
    page = (ROOT / "docs/reference/faults.md").read_text()
    rows = re.findall(r"^\| .* \| `(test_\w+)` \|", page, re.MULTILINE)
    assert len(rows) == len(set(rows))
    assert set(rows) == set(re.findall(r"def (test_\w+)\(", tests))
