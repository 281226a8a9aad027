"""Find words and phrases that the pages do not use; scripts/terms.yaml says what to write instead.

Only running text is read: code blocks, code in a line, and addresses of links may say anything. So
may the reference pages that `make docs` writes: their words are those of the program.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
GENERATED = {"rules.md", "cli.md", "rest-operations.md", "files.md"}
CODE = re.compile(r"^(```|~~~).*?^\1[^\n]*$|`[^`\n]*`|\]\([^)\n]*\)", re.MULTILINE | re.DOTALL)
Term = tuple[re.Pattern[str], str]


def terms() -> list[Term]:
    """Return each pattern that is not to be used, and what to write instead."""
    listed = yaml.safe_load((ROOT / "scripts" / "terms.yaml").read_text())
    return [(re.compile(rule["not"], re.IGNORECASE), rule["but"]) for rule in listed]


def pages() -> Iterator[Path]:
    """Yield the pages whose words are checked."""
    yield from (ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md"))
    for page in sorted((ROOT / "docs").glob("**/*.md")):
        if page.parent.name != "decisions" and page.name not in GENERATED:
            yield page


def blank(match: re.Match[str]) -> str:
    """Replace code with blanks, so that places stay what they are."""
    return re.sub(r"[^\n]", " ", match[0])


def found(text: str, checked: list[Term]) -> Iterator[tuple[int, str, str]]:
    """Yield line, words and advice for each use of a term in a text."""
    prose = CODE.sub(blank, text)
    for pattern, advice in checked:
        for match in pattern.finditer(re.sub(r"\s", " ", prose)):
            yield prose.count("\n", 0, match.start()) + 1, match[0], advice


def main() -> int:
    """Print each use with its place; return 1 if there is one."""
    checked, status = terms(), 0
    for page in pages():
        for line, words, advice in sorted(found(page.read_text(), checked)):
            status = 1
            print(f"{page.relative_to(ROOT)}:{line}: not '{words}', but: {advice}")
    return status


if __name__ == "__main__":
    sys.exit(main())
