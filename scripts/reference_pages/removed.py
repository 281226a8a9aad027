"""Write the page of what was removed, from docs/reference/removed.yaml."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import yaml

HEAD = """# Removed since 0.1

Each row says what replaces it. Tables of the database stay, unread, until the release after; its
migration removes them.
"""
ROWS = Path(__file__).parents[2] / "docs" / "reference" / "removed.yaml"
TITLES = {
    "command": "Commands",
    "option": "Options",
    "path": "Paths of the API",
    "page": "Pages",
    "setting": "Settings",
    "file-format": "File formats",
    "table": "Tables",
}


def page() -> str:
    """Return the whole page."""
    rows = yaml.safe_load(ROWS.read_text()) or []
    order = list(TITLES)
    rows.sort(key=lambda row: (order.index(row["kind"]), row["name"]))
    parts = [HEAD]
    for kind, group in groupby(rows, key=lambda row: row["kind"]):
        parts.append(f"\n## {TITLES[kind]}\n\n| removed | instead |\n|---|---|\n")
        parts += [f"| `{row['name']}` | {row['instead']} |\n" for row in group]
    return "".join(parts)
