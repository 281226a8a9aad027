"""Write the page of the rules from their docstrings."""

from __future__ import annotations

from compatgate.core.rules import RULES

HEAD = """# Rules

`make docs` writes this page from the documentation of the rules. `compatgate explain RULE` prints
the same text. A rule answers for one stack on one pool. The verdict on a target is the worst over
its pools: `fail` outweighs `unknown`, which outweighs `warn`. `not-checked` is reported and does
not count.

"""


def page() -> str:
    """Return the whole page."""
    index = "\n".join(f"- [{r.id} {r.name}](#{r.id.lower()}-{r.name})" for r in RULES)
    body = "\n\n".join(f"## {r.id} {r.name}\n\n{r.documentation}" for r in RULES)
    return f"{HEAD}{index}\n\n{body}\n".replace("``", "`")
