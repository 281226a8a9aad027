"""The navigation of the pages."""

from __future__ import annotations

from compatgate.web.page import NAVIGATION


def test_every_place_has_a_key_and_a_name_of_its_own() -> None:
    items = [item for group in NAVIGATION for item in group.items]
    for what in ("key", "name", "path"):
        assert len({getattr(item, what) for item in items}) == len(items), what
