"""Sign people in at their issuer, and say that they are signed out."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import msgspec
from flask import redirect, request

from compatgate.errors import CompatgateError, Unauthorized
from compatgate.kit.http.links import UI_PREFIX, link, local_path
from compatgate.kit.http.requests import AnyQuery
from compatgate.service.access.tokens.browser_sessions import NewBrowserSession
from compatgate.web import auth
from compatgate.web.page import HtmlPage, PageRequest, page
from compatgate.web.pages.tokens import NextPage
from compatgate.web.service import base_url

_COOKIE = "compatgate_signing_in"
_LONGEST_PLACE = 2000


@page("/sign-in/issuer", scope=None, query=NextPage)
def begin_sign_in(ask: PageRequest[NextPage]) -> Any:
    """Send the browser to the issuer; a cookie keeps what its answer must match."""
    from compatgate.service.access.identity.people import SIGN_IN_SECONDS

    people = ask.service.identity.require_people()
    place = local_path(ask.query.next) or link()
    try:
        attempt, url = people.begin(_redirect_uri(ask), place[:_LONGEST_PLACE])
    except CompatgateError as error:
        return _problem(error, place)
    response = redirect(url, 303)
    kept = urlsafe_b64encode(msgspec.json.encode(attempt)).decode()
    auth.set_cookie(response, _COOKIE, kept, SIGN_IN_SECONDS)  # type: ignore[arg-type]
    response.headers["Cache-Control"] = "no-store"
    return response


@page("/sign-in/done", scope=None, query=AnyQuery)
def finish_sign_in(ask: PageRequest[AnyQuery]) -> Any:
    """Open a session with the issuer's answer, and go to the page that was asked for."""
    from compatgate.service.access.identity.people import Response

    people = ask.service.identity.require_people()
    place = link()
    try:
        attempt = _attempt()
        place = local_path(attempt.place) or link()
        answer = Response(
            **{name: request.args.get(name, "")[:4096] for name in Response.__struct_fields__}
        )
        with ask.service.limits.counted_failures():
            made = people.finish(attempt, answer, _redirect_uri(ask))
    except CompatgateError as error:
        return _problem(error, place)
    before = auth.session_cookie()
    if before and ask.service.identity.knows(before):
        ask.service.identity.sessions.sign_out(before)
    response = redirect(place, 303)
    opened = NewBrowserSession(made.secret, made.principal, made.seconds)
    auth.set_session_cookie(response, opened)  # type: ignore[arg-type]
    response.delete_cookie(auth.cookie_name(_COOKIE), path="/", secure=request.is_secure)
    response.headers["Cache-Control"] = "no-store"
    return response


@page("/signed-out", scope=None)
def show_signed_out(ask: PageRequest[Any]) -> HtmlPage:
    """Say that the session has ended, and go on to the issuer to end it there."""
    people = ask.service.identity.people
    back = f"{base_url(ask.service)}{UI_PREFIX}/sign-in"
    context = {
        "issuer": people.settings.label if people else "",
        "end_session": people.sign_out_url(back) if people else None,
    }
    return HtmlPage("signed-out.html", "Signed out", context)


def _redirect_uri(ask: PageRequest[Any]) -> str:
    return f"{base_url(ask.service)}{UI_PREFIX}/sign-in/done"


def _attempt() -> Any:
    """Return the sign-in that this browser began."""
    from compatgate.service.access.identity.people import Attempt

    kept = request.cookies.get(auth.cookie_name(_COOKIE), "")[:8192]
    try:
        return msgspec.json.decode(urlsafe_b64decode(kept), type=Attempt)
    except (msgspec.MsgspecError, ValueError):
        hint = "sign in again; this browser must allow cookies of this site"
        raise Unauthorized("this browser did not start a sign-in", hint=hint) from None


def _problem(error: CompatgateError, place: str) -> HtmlPage:
    """Show what went wrong, and the way back."""
    return HtmlPage("sign-in-failed.html", "Not signed in", {"next": place}, error=error)
