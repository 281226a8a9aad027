"""Name what changes once a release is published (docs/how-to/release.md lists it all)."""

from __future__ import annotations

import os

SOURCE = "."
"""What pip installs: a checkout. The name on the public index belongs to nobody yet."""
DOCS = "COMPATGATE_DOCS"
"""Variable with the address of the documentation that an operator serves (``make site``)."""


def install_hint(extra: str) -> str:
    """Tell how to install an extra."""
    return f"in a checkout of compatgate: pip install '{SOURCE}[{extra}]'"


def docs_link(page: str = "", anchor: str = "") -> str:
    """Return the address of a page like ``reference/rules/``; empty where no address is set."""
    base = os.environ.get(DOCS, "").rstrip("/")
    return f"{base}/{page}{f'#{anchor}' if anchor else ''}" if base else ""
