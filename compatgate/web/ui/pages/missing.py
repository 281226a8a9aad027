"""Whatever is no page."""

from __future__ import annotations

from typing import Any

from flask import request

from compatgate.errors import NotFound
from compatgate.web.ui.page import Ask, Shown, page


@page("/<path:rest>", scope=None)
def nothing(ask: Ask[Any]) -> Shown:
    """There is no such page."""
    raise NotFound(f"there is no page {request.path}", hint="the menu lists what there is")
