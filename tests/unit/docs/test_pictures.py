"""Every picture of a page is shown in the documentation, and every one that is shown is there."""

from __future__ import annotations

import re
from pathlib import Path

from ui_pictures import OTHERS, PICTURES

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
