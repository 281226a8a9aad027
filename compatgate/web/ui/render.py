"""Templates into HTML; every value is escaped unless a filter made it."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from flask import request
from jinja2 import Environment, PackageLoader, StrictUndefined

from compatgate import __version__
from compatgate.web.ui import session
from compatgate.web.ui.assets import asset_path
from compatgate.web.ui.filters import FILTERS
from compatgate.web.ui.links import asked_besides, bare, here, link
from compatgate.web.ui.nav import NAVIGATION
from compatgate.web.ui.page import PREFIX

if TYPE_CHECKING:
    from compatgate.gate.auth import Principal
    from compatgate.web.call import Service
    from compatgate.web.ui.page import Page, Shown

THEME = "compatgate_theme"
THEMES = ("auto", "light", "dark")
_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)


def render(shown: Shown, page: Page, principal: Principal, service: Service, done: str) -> str:
    """A page as HTML.

    Args:
        shown: what the handler answered.
        page: that was asked for.
        principal: who looks at it.
        service: knows the revision.
        done: what the form before did, if it did something.
    """
    context: dict[str, Any] = {
        "title": shown.title,
        "table": shown.table,
        "page": page,
        "principal": principal,
        "signed_in": principal.token_id is not None,
        "done": done,
        "theme": theme(),
        "navigation": NAVIGATION,
        "revision": service.gate.snapshots.known_revision(),
        "form_token": session.form_field,
        **shown.context,
    }
    return environment().get_template(shown.template).render(context)


def theme() -> str:
    """Light, dark, or as the system has it."""
    chosen = request.cookies.get(THEME, "")
    return chosen if chosen in THEMES else "auto"


def visible(value: Any) -> Any:
    """Text with what is not seen made visible: control characters, and marks that turn writing.

    A name that somebody else wrote must not make what stands beside it read backwards.
    """
    return _UNSEEN.sub("\ufffd", value) if type(value) is str else value


@cache
def environment() -> Environment:
    """The templates."""
    made = Environment(
        loader=PackageLoader("compatgate.web.ui", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS)
    made.globals.update(
        link=link,
        here=here,
        bare=bare,
        asked_besides=asked_besides,
        asset=_asset,
        version=__version__,
    )
    return made


def _asset(name: str) -> str:
    return f"{request.script_root}{PREFIX}{asset_path(name)}"
