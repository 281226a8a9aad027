"""Show and change theme and time zone of pages."""

from __future__ import annotations

from typing import Any

from flask import request
from msgspec.structs import replace

from compatgate.errors import BadInput
from compatgate.kit.clock import now
from compatgate.kit.http.links import link, local_path
from compatgate.kit.ui.preferences import (
    BROWSER_ZONE,
    PREFERENCES_COOKIE,
    THEMES,
    ZONE_COOKIE,
    Preferences,
    Theme,
    check_zone,
    current_preferences,
    current_zone,
    pack_cookie,
    zone_names,
)
from compatgate.web.page import HtmlPage, PageRequest, Redirect, page


@page("/preferences", scope=None)
def show_preferences(ask: PageRequest[Any]) -> HtmlPage:
    """Show the preferences of this browser."""
    context = {
        "chosen": current_preferences(),
        "themes": THEMES,
        "zones": zone_names(),
        "browser": BROWSER_ZONE,
        "zone_in_use": current_zone()[0],
        "zone_told": ZONE_COOKIE in request.cookies,
        "now": now(),
    }
    return HtmlPage("preferences.html", "Preferences", context)


@page("/preferences", scope=None, method="POST")
def change_preferences(ask: PageRequest[Any]) -> Redirect:
    """Choose theme and time zone."""
    zone = ask.form.get("zone_choice", "")
    zone = check_zone(ask.form.get("zone", "") if zone == "named" else zone)
    return _keep(Preferences(_read_theme(ask.form), zone), link("preferences"), "Saved.")


@page("/theme", scope=None, method="POST")
def set_theme(ask: PageRequest[Any]) -> Redirect:
    """Choose the theme: light, dark, or the system's."""
    chosen = replace(current_preferences(), theme=_read_theme(ask.form))
    return _keep(chosen, local_path(ask.form.get("next")) or link())


def _keep(chosen: Preferences, place: str, done: str = "") -> Redirect:
    return Redirect(place, done, {PREFERENCES_COOKIE: pack_cookie(chosen)})


def _read_theme(form: dict[str, str]) -> Theme:
    name = form.get("theme", "")
    for theme in THEMES:
        if name == theme:
            return theme
    raise BadInput("is not a theme", field="theme", value=name, hint=", ".join(THEMES))
