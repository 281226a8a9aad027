"""The pages of docs that the program describes itself are current, and every page can be found."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"


def test_the_generated_pages_are_what_the_program_says_now() -> None:
    """Run `make docs` where this fails."""
    done = subprocess.run(
        [sys.executable, DOCS / "generate.py", "--check"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_stale_page_is_named(tmp_path: Path) -> None:
    program = f"""
import sys
sys.path.insert(0, {str(DOCS)!r})
import generate
from pathlib import Path
generate._path = lambda name: Path({str(tmp_path)!r}) / f"{{name}}.md"
generate.REFERENCE = {{name: generate.REFERENCE[name] for name in ("files", "metrics")}}
generate._path("files").write_text(generate.REFERENCE["files"].page())
generate._path("metrics").write_text("old")
print(generate.stale())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "['metrics']\n", done.stderr


def test_the_navigation_leads_to_every_page() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    navigation = yaml.safe_load(re.sub(r"!!python\S+", "", text))["nav"]
    named = set(re.findall(r"[\w/-]+\.md", str(navigation)))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.glob("**/*.md")}
    records = {page for page in pages if page.startswith("decisions/0")}
    assert named == pages - records


def test_the_list_of_decisions_names_each_with_its_title() -> None:
    text = " ".join((DOCS / "decisions" / "index.md").read_text().split())
    for record in sorted((DOCS / "decisions").glob("0*.md")):
        title = record.read_text().partition("\n")[0].removeprefix("# ")
        assert f"- [{title}]({record.name})" in text


def test_the_guides_are_listed_by_role() -> None:
    listed = (DOCS / "how-to" / "index.md").read_text()
    for page in (DOCS / "how-to").glob("*.md"):
        assert page.name == "index.md" or f"({page.name})" in listed, page.name
