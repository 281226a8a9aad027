"""Every page, in one table."""

from __future__ import annotations

from compatgate.web.ui.page import Page
from compatgate.web.ui.pages import access, ask, home, matrix, missing, search, whatif

PAGES: tuple[Page, ...] = (
    home.show,
    matrix.show,
    ask.show,
    ask.paste,
    ask.keep,
    whatif.show,
    access.show_sign_in,
    access.sign_in,
    access.sign_out,
    access.set_theme,
    search.find,
    search.show_keys,
    missing.nothing,  # the last one: whatever is no other page
)
