"""Show and change how pages look: theme, density, time zone, columns and views of lists."""

from __future__ import annotations

import re
from typing import Any

from flask import request
from msgspec.structs import replace

from compatgate.errors import BadInput
from compatgate.kit.clock import now
from compatgate.kit.http.links import link, local_path
from compatgate.kit.ui.lists import choose_columns, delete_view, save_view
from compatgate.kit.ui.preferences import (
    BROWSER_ZONE,
    DEFAULTS,
    DENSITIES,
    THEMES,
    ZONE_COOKIE,
    Preferences,
    check_zone,
    current_preferences,
    current_zone,
    zone_names,
)
from compatgate.service.preferences.service import keep_preferences
from compatgate.service.preferences.tour import OVER, STEPS
from compatgate.service.web.page import HtmlPage, PageRequest, Redirect, page

_KEY = re.compile(r"[a-z0-9_-]{1,64}")
_COLUMN = "column."
_MAX_COLUMNS = 100
_MAX_LISTS = 100


@page("/preferences", scope=None)
def show_preferences(ask: PageRequest[Any]) -> HtmlPage:
    """Show the reader's preferences."""
    chosen = current_preferences()
    zone, _ = current_zone()
    context = {
        "chosen": chosen,
        "themes": THEMES,
        "densities": DENSITIES,
        "zones": zone_names(),
        "browser": BROWSER_ZONE,
        "zone_in_use": zone,
        "zone_told": ZONE_COOKIE in request.cookies,
        "now": now(),
        "views": sorted(chosen.views.items()),
        "hidden": sorted(chosen.hidden.items()),
    }
    return HtmlPage("preferences.html", "Preferences", context)


@page("/preferences", scope=None, method="POST")
def change_preferences(ask: PageRequest[Any]) -> Redirect:
    """Choose theme, density and time zone."""
    form = ask.form
    zone = form.get("zone_choice", "")
    chosen = replace(
        current_preferences(),
        theme=_one_of(form, "theme", THEMES),
        density=_one_of(form, "density", DENSITIES),
        zone=check_zone(form.get("zone", "") if zone == "named" else zone),
    )
    return _keep(ask, chosen, link("preferences"), "Kept.")


@page("/preferences/columns", scope=None, method="POST")
def change_columns(ask: PageRequest[Any]) -> Redirect:
    """Choose the columns of a list."""
    name = _key(ask.form, "list")
    every = ask.form.get("every", "").split(",")
    if len(every) > _MAX_COLUMNS or not all(map(_KEY.fullmatch, every)):
        hint = "reload the list and choose again"
        raise BadInput(
            "are not columns of the list", field="every", value=",".join(every)[:80], hint=hint
        )
    shown = {key.removeprefix(_COLUMN) for key in ask.form if key.startswith(_COLUMN)}
    before = current_preferences()
    if ask.form.get("all"):
        shown = set(every)
    chosen = choose_columns(before, name, every, shown)
    _require_few(chosen.hidden)
    return _keep(ask, chosen, _next(ask))


@page("/preferences/views", scope=None, method="POST")
def add_view(ask: PageRequest[Any]) -> Redirect:
    """Save filters, order and columns of a list as a view."""
    form, place = ask.form, _key(ask.form, "list")
    chosen = save_view(current_preferences(), place, form.get("name", ""), form.get("query", ""))
    _require_few(chosen.views)
    return _keep(ask, chosen, _next(ask), f"Saved the view {form['name'].strip()}.")


@page("/preferences/views/delete", scope=None, method="POST")
def remove_view(ask: PageRequest[Any]) -> Redirect:
    """Delete a view of a list."""
    place, name = _key(ask.form, "list"), ask.form.get("name", "")
    chosen = delete_view(current_preferences(), place, name)
    return _keep(ask, chosen, link("preferences"), f"Deleted the view {name}.")


@page("/preferences/reset", scope=None, method="POST")
def reset_preferences(ask: PageRequest[Any]) -> Redirect:
    """Return to the defaults, and delete all views."""
    return _keep(ask, DEFAULTS, link("preferences"), "Reset all preferences to defaults.")


@page("/tour", scope=None, method="POST")
def go_on_tour(ask: PageRequest[Any]) -> Redirect:
    """Go to a step of the tour, or end it."""
    given = ask.form.get("step", "")
    known = {str(number): number for number in (OVER, *range(1, len(STEPS) + 1))}
    if given not in known:
        hint = f"1 to {len(STEPS)}, or {OVER} to end the tour"
        raise BadInput("is not a step of the tour", field="step", value=given[:20], hint=hint)
    step = known[given]
    chosen = replace(current_preferences(), tour=step)
    if step == OVER:
        return _keep(ask, chosen, _next(ask), "The tour has ended. To restart it, see Preferences.")
    nav = STEPS[step - 1].nav
    return _keep(ask, chosen, link() if nav == "home" else link(nav))


@page("/theme", scope=None, method="POST")
def set_theme(ask: PageRequest[Any]) -> Redirect:
    """Choose the theme: light, dark, or the system's."""
    chosen = replace(current_preferences(), theme=_one_of(ask.form, "theme", THEMES))
    return _keep(ask, chosen, _next(ask))


def _keep(ask: PageRequest[Any], chosen: Preferences, place: str, done: str = "") -> Redirect:
    store = ask.gate.preferences
    return Redirect(place, done, keep_preferences(store, ask.principal, chosen))


def _next(ask: PageRequest[Any]) -> str:
    return local_path(ask.form.get("next")) or link()


def _one_of(form: dict[str, str], name: str, known: tuple[Any, ...]) -> Any:
    given = form.get(name, "")
    if given not in known:
        raise BadInput(f"is not a {name}", field=name, value=given, hint=", ".join(known))
    return given


def _key(form: dict[str, str], name: str) -> str:
    given = form.get(name, "")
    if not _KEY.fullmatch(given):
        hint = "reload the list and try again"
        raise BadInput("is not a list", field=name, value=given[:80], hint=hint)
    return given


def _require_few(kept: dict[str, Any]) -> None:
    if len(kept) > _MAX_LISTS:
        hint = "return to the defaults on the page Preferences"
        raise BadInput(
            "preferences exist for too many lists", field="list", value=len(kept), hint=hint
        )
