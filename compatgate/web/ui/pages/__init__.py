"""Every page, in one table."""

from __future__ import annotations

from compatgate.web.ui.page import Page
from compatgate.web.ui.pages import (
    access,
    ask,
    audit,
    facts,
    home,
    matrix,
    missing,
    rules,
    search,
    tokens,
    whatif,
)

PAGES: tuple[Page, ...] = (
    home.show,
    matrix.show,
    ask.show,
    ask.paste,
    ask.keep,
    whatif.show,
    audit.show,
    audit.verify,
    facts.show_tables,
    facts.show_table,
    facts.show_record,
    rules.show_rules,
    rules.show_rule,
    tokens.show,
    tokens.create,
    tokens.revoke,
    access.show_sign_in,
    access.sign_in,
    access.sign_out,
    access.set_theme,
    search.find,
    search.show_keys,
    missing.nothing,  # the last one: whatever is no other page
)
