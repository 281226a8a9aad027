"""Signing in with a token, signing out, and the theme."""

from __future__ import annotations

from typing import Any

from flask import Response, redirect, request
from msgspec import Struct

from compatgate.errors import BadInput, Unauthorized
from compatgate.web.ui import session
from compatgate.web.ui.links import inside, link
from compatgate.web.ui.page import Ask, Goto, Shown, page
from compatgate.web.ui.render import THEME, THEMES

_YEAR = 365 * 86400


class NextPage(Struct, frozen=True, forbid_unknown_fields=True):
    """Where somebody was on the way to."""

    next: str | None = None


@page("/sign-in", scope=None, query=NextPage)
def show_sign_in(ask: Ask[NextPage]) -> Shown:
    """The form that takes a token."""
    return _form(ask.query.next)


def _form(place: str | None, problem: str = "", status: int = 200) -> Shown:
    context = {"next": inside(place) or link(), "problem": problem}
    return Shown("sign-in.html", "Sign in", context, status=status)


@page("/sign-in", scope=None, method="POST")
def sign_in(ask: Ask[Any]) -> Any:
    """Open a session with a token."""
    secret, place = ask.form.get("token", "").strip(), ask.form.get("next")
    if not secret:
        return _form(place, "Paste a token; it begins with cg_.", 400)
    try:
        signed_in = ask.gate.sessions.sign_in(secret)
    except Unauthorized as error:
        return _form(place, f"{error.problem[:1].upper()}{error.problem[1:]}.", 401)
    response = redirect(inside(place) or link(), 303)
    session.remember(response, signed_in)  # type: ignore[arg-type]
    response.headers["Cache-Control"] = "no-store"
    return response


@page("/sign-out", scope=None, method="POST")
def sign_out(ask: Ask[Any]) -> Any:
    """Close the session."""
    if given := session.cookie():
        ask.gate.sessions.sign_out(given)
    response = redirect(link(), 303)
    session.forget(response)  # type: ignore[arg-type]
    return response


@page("/theme", scope=None, method="POST")
def set_theme(ask: Ask[Any]) -> Response | Goto:
    """Light, dark, or as the system has it."""
    chosen = ask.form.get("theme", "")
    if chosen not in THEMES:
        raise BadInput("is not a theme", field="theme", value=chosen, hint=", ".join(THEMES))
    response = redirect(inside(ask.form.get("next")) or link(), 303)
    response.set_cookie(THEME, chosen, max_age=_YEAR, samesite="Lax", secure=request.is_secure)
    return response  # type: ignore[return-value]
