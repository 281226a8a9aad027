"""What needs attention now."""

from __future__ import annotations

from typing import Any

from compatgate.web.ui.page import Ask, Shown, page


@page("/", nav="home")
def show(ask: Ask[Any]) -> Shown:
    """The first page."""
    snapshot = ask.gate.snapshot()
    return Shown("home.html", "Home", {"snapshot": snapshot})
