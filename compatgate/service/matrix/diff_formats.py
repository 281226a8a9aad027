"""Count changes of the matrix, and write them as Markdown for a comment on a pull request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from compatgate.kit.sections import markdown_text
from compatgate.service.backtests import formats
from compatgate.service.gate_client import Body

_MAX_CHANGES = 50
_MAX_FIELDS = 12
_LONGEST_VALUE = 200
_SIGNS = {"create": "create", "change": "change", "delete": "**delete**"}


def render_markdown(changes: Sequence[Body], name: str | None, backtest: Body | None) -> str:
    """Return changes and their backtest as Markdown.

    The first line is hidden, and finds the comment of an earlier run.

    Args:
        changes: of documents, in JSON form.
        name: of the sync; None: none was named.
        backtest: of the changes; None: it was not asked for.
    """
    title = f"compatgate matrix{f': {name}' if name else ''}"
    lines = [f"<!-- {title} -->", f"## {markdown_text(_headline(changes))}", ""]
    for change in changes[:_MAX_CHANGES]:
        lines += _describe_change(change)
    if len(changes) > _MAX_CHANGES:
        lines.append(f"- and {len(changes) - _MAX_CHANGES} more documents")
    if backtest is not None:
        lines += ["", formats.render_markdown(backtest)]
    return "\n".join(lines)


def _headline(changes: Sequence[Body]) -> str:
    if not changes:
        return "The matrix would not change"
    return f"The matrix would change: {count_changes(changes)}"


def count_changes(changes: Iterable[Body]) -> str:
    """Return the number of changes in words: ``1 created, 2 deleted``."""
    actions = [change["action"] for change in changes]
    words = {"create": "created", "change": "changed", "delete": "deleted"}
    return ", ".join(
        f"{count} {word}" for action, word in words.items() if (count := actions.count(action))
    )


def _describe_change(change: Body) -> Iterator[str]:
    yield f"- {_SIGNS[change['action']]} {change['kind']} {markdown_text(change['name'])}"
    fields = change["fields"]
    for field in fields[:_MAX_FIELDS]:
        before, after = _code(field["before"]), _code(field["after"])
        yield f"    - {_quote(field['path'])}: {before} → {after}"
    if len(fields) > _MAX_FIELDS:
        yield f"    - and {len(fields) - _MAX_FIELDS} more fields"


def _code(value: Any) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _quote(text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}...")


def _quote(text: str) -> str:
    """Return text as inline code, on one line, whatever backticks it has."""
    flat = " ".join(text.split())
    fence = "`" * (max(map(len, re.findall("`+", flat)), default=0) + 1)
    space = " " if flat.startswith("`") or flat.endswith("`") or not flat else ""
    return f"{fence}{space}{flat}{space}{fence}"
