"""The tables that `compatgate/web/tables.toml` declares."""

from __future__ import annotations

import re

import msgspec
import pytest

from compatgate.kit.ui.tables import Listing
from compatgate.resources import package_dir
from compatgate.web.page import listing

TEXT = (package_dir() / "web/tables.toml").read_text()
DECLARED = msgspec.toml.decode(TEXT, type=dict[str, Listing])


@pytest.mark.parametrize("key", DECLARED)
def test_a_table_has_columns_with_heads_and_a_sentence_for_no_rows(key: str) -> None:
    table = listing(key)
    keys = [column.key for column in table.columns]
    assert len(keys) == len(set(keys))
    assert all(column.label for column in table.columns)
    assert table.empty.what.endswith(".")


def test_pages_use_every_declared_table_and_no_other() -> None:
    pages = (package_dir() / "web/pages").glob("*.py")
    used = {key for page in pages for key in re.findall(r'listing\("([^"]+)"\)', page.read_text())}
    assert used == set(DECLARED)
