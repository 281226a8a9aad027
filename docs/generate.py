"""Writes docs/rules.md from the rules themselves. ``--check`` only says whether it is current."""

from __future__ import annotations

import sys
from pathlib import Path

from compatgate.core.rules import RULES

PAGE = Path(__file__).with_name("rules.md")
HEAD = """# Rules

Generated from the rules' own documentation by `make docs`; `compatgate explain RULE` prints the
same. A rule answers for one stack on one pool; a target's verdict is the worst over its pools.
`fail` outweighs `unknown`, which outweighs `warn`; `not-checked` is said and does not weigh.

"""


def page() -> str:
    """The whole page."""
    index = "\n".join(f"- [{r.id} {r.name}](#{anchor(r.id, r.name)})" for r in RULES)
    body = "\n\n".join(f"## {r.id} {r.name}\n\n{r.documentation}" for r in RULES)
    return f"{HEAD}{index}\n\n{body}\n".replace("``", "`")


def anchor(rule_id: str, name: str) -> str:
    """A heading's anchor as code forges make it."""
    return f"{rule_id}-{name}".lower()


def main() -> int:
    """Write the page, or with ``--check`` compare it."""
    if "--check" in sys.argv:
        return 0 if PAGE.exists() and PAGE.read_text() == page() else 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
