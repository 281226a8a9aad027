"""The check of terms reads running text and names the place."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import terms  # noqa: E402 - from scripts/

PAGE = """# A page

`what it rests on` is code, and so is

```
what it rests on
```

[here](beside.md) we ask what it
rests on.
"""


def test_a_term_in_running_text_is_found_with_its_line_also_across_lines() -> None:
    assert list(terms.found(PAGE, terms.terms("pages"))) == [(9, "what it rests on", "basis")]


def test_every_page_but_the_generated_ones_is_read() -> None:
    names = {str(page.relative_to(ROOT)) for page in terms.pages()}
    assert {"README.md", "docs/index.md", "docs/reference/facts.md"} <= names
    assert "docs/reference/cli.md" not in names


def test_strings_and_comments_of_a_program_are_read_and_its_names_are_not(tmp_path: Path) -> None:
    program = tmp_path / "a.py"
    program.write_text(
        'learnt = 1  # heard of it\nprint(\n    "learnt", f"what it rests on {learnt}"\n)\n'
    )
    listed = terms.terms()
    found = [
        (before + line, words)
        for before, text, _ in terms.texts(program)
        for line, words, _ in terms.found(text, listed)
    ]
    assert found == [(1, "heard of"), (3, "learnt"), (3, "what it rests on"), (3, "learnt")]


def test_docstrings_comments_and_the_changelog_are_not_what_users_read(tmp_path: Path) -> None:
    program = tmp_path / "a.py"
    program.write_text('"""Docs."""\n\n\ndef f():\n    """Docs."""\n    # a note\n    g("said")\n')
    assert [(text, read) for _, text, read in terms.texts(program)] == [
        ('"""Docs."""', False),
        ('"""Docs."""', False),
        ("# a note", False),
        ('"said"', True),
    ]
    assert [read for _, _, read in terms.texts(ROOT / "CHANGELOG.md")] == [False]
    assert len(terms.terms("texts")) > len(terms.terms())


def test_the_programs_and_the_templates_of_its_pages_are_read() -> None:
    names = {str(file.relative_to(ROOT)) for file in terms.programs()}
    assert {"compatgate/errors.py", "canary/gemm/program.py"} <= names
    assert "compatgate/web/templates/runs/run.html" in names
