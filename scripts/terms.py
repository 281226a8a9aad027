"""Find words and phrases that the pages do not use; scripts/terms.yaml says what to write instead.

Of a page, code and addresses of links may say anything. Of the program, strings and comments are
read, and the templates of its pages; so the reference pages that `make docs` writes need no check.
Some terms are refused only where users read them: not in docstrings, comments and the changelog.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
CANARIES = ROOT / "canary"
GENERATED = {"rules.md", "cli.md", "rest-operations.md", "files.md"}
CODE = re.compile(r"^(```|~~~).*?^\1[^\n]*$|`[^`\n]*`|\]\([^)\n]*\)", re.MULTILINE | re.DOTALL)
DOCSTRINGS = (tokenize.INDENT, tokenize.NEWLINE, tokenize.NL, tokenize.ENCODING)
"""Tokens before a string that is a statement."""
Term = tuple[re.Pattern[str], str]


def terms(*places: str) -> list[Term]:
    """Return each pattern that is not used in these places, and what to write instead."""
    listed = yaml.safe_load((ROOT / "scripts" / "terms.yaml").read_text())
    rules = [rule for rule in listed if rule.get("where", "everywhere") in ("everywhere", *places)]
    return [(re.compile(rule["not"], re.IGNORECASE), rule["but"]) for rule in rules]


def pages() -> Iterator[Path]:
    """Yield the pages whose words are checked."""
    yield from (ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md"))
    for page in sorted((ROOT / "docs").glob("**/*.md")):
        if page.parent.name != "decisions" and page.name not in GENERATED:
            yield page


def programs() -> Iterator[Path]:
    """Yield the files whose strings, comments and page texts are checked."""
    for folder in ("compatgate", "canary"):
        yield from sorted((ROOT / folder).glob("**/*.py"))
    yield from sorted((ROOT / "compatgate").glob("**/templates/**/*.html"))


def texts(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield the texts of a file, with the lines before each, and whether users read the text."""
    text = path.read_text()
    if path.suffix != ".py":
        yield 0, text, path.name != "CHANGELOG.md"
        return
    last = tokenize.ENCODING
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            is_read = token.type == tokenize.STRING and last not in DOCSTRINGS
            yield token.start[0] - 1, token.string, is_read
        last = token.type if token.type != tokenize.COMMENT else last


def blank(match: re.Match[str]) -> str:
    """Replace code with blanks, so that places stay what they are."""
    return re.sub(r"[^\n]", " ", match[0])


def found(text: str, checked: list[Term]) -> Iterator[tuple[int, str, str]]:
    """Yield line, words and advice for each use of a term in a text."""
    prose = CODE.sub(blank, text)
    words = re.sub(r"\s", " ", prose)
    for pattern, advice in checked:
        for match in pattern.finditer(words):
            yield prose.count("\n", 0, match.start()) + 1, match[0], advice


def main() -> int:
    """Print each use with its place; return 1 if there is one."""
    status = 0
    for files, places in ((pages(), ("pages",)), (programs(), ())):
        hidden, read = terms(*places), terms(*places, "texts")
        for file in files:
            for before, text, is_read in texts(file):
                # an edit of a canary's text would make its evidence stale
                listed = read if is_read and CANARIES not in file.parents else hidden
                for line, words, advice in sorted(found(text, listed)):
                    status = 1
                    place = f"{file.relative_to(ROOT)}:{before + line}"
                    print(f"{place}: not '{words}', but: {advice}")
    return status


if __name__ == "__main__":
    sys.exit(main())
