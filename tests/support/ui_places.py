"""One address for each page of the table of pages, for tests of what holds for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from werkzeug.routing import Map, Rule

from compatgate.service.routes import PAGES
from compatgate.service.web.page import Page

Names = Mapping[str, str]
"""What stands for ``<name>`` below each room: ``{"targets": "prod-a100"}``."""


def pages(method: Literal["GET", "POST"]) -> list[Page]:
    """The pages of a method, whatever is added to the table."""
    return [page for page in PAGES if page.method == method]


def place(page: Page, names: Names) -> str:
    """An address of a page; path values are those of its room.

    Args:
        page: of the table.
        names: by room, and ``room/argument`` for the second one.

    Raises:
        LookupError: the page is new, and nothing is known to show there.
    """
    room = page.path.split("/")[1]
    rule = Rule(f"/ui{page.path}", endpoint="page", methods=[page.method])
    adapter = Map([rule]).bind("localhost")
    values = {}
    for argument in rule.arguments:
        key = f"{room}/{argument}"
        if key not in names:
            raise LookupError(f"say in the test what stands for {key} on the page {page.path}")
        values[argument] = names[key]
    return adapter.build("page", values, method=page.method)
