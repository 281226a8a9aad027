"""Draw the imports between the rooms of the service, counted from the code, as an SVG."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SERVICE = Path(__file__).parents[2] / "compatgate/service"
ROOMS = (
    *("recovery", "attention", "changes", "nodes", "cluster"),
    *("gate", "runs", "matrix", "access", "audit"),
)
"""From the top; import-linter holds the order."""
_STEP, _WIDTH, _HEIGHT, _LEFT = 46, 120, 30, 150


def imports() -> Counter[tuple[str, str]]:
    """Return the number of imports from one room to another, those in functions included."""
    return Counter(
        (room, other)
        for room in ROOMS
        for path in (SERVICE / room).rglob("*.py")
        for other in _imported(path)
        if other != room
    )


def _imported(path: Path) -> Iterator[str]:
    """Yield the room of each import of a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            if parts[:2] == ["compatgate", "service"] and len(parts) > 2 and parts[2] in ROOMS:
                yield parts[2]


def page() -> str:
    """Return the drawing: an arc leads from a room to each room below that it imports."""
    counted = imports()
    height = _STEP * len(ROOMS)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 460 {height}" role="img"'
        ' font-family="sans-serif" font-size="14">',
        "<title>Imports between rooms: each arc leads down, as wide as they are many</title>",
    ]
    for (above, below), count in sorted(counted.items()):
        top, end = (ROOMS.index(one) * _STEP + _STEP / 2 for one in (above, below))
        right = _LEFT + _WIDTH
        reach = right + abs(end - top) / 3
        colour = "#57606a" if top < end else "#cf222e"
        lines.append(
            f'<path d="M{right} {top:g} C{reach:g} {top:g} {reach:g} {end:g} {right} {end:g}"'
            f' fill="none" stroke="{colour}" stroke-opacity="0.6"'
            f' stroke-width="{1 + count / 12:.1f}">'
            f"<title>{above} imports {below}: {count}</title></path>"
        )
    for place, room in enumerate(ROOMS):
        top = place * _STEP + (_STEP - _HEIGHT) / 2
        lines += [
            f'<rect x="{_LEFT}" y="{top:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="4"'
            ' fill="#ddf4ff" stroke="#0969da"/>',
            f'<text x="{_LEFT + _WIDTH / 2:g}" y="{top + 20:g}" text-anchor="middle"'
            f' fill="#1f2328">{room}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])
