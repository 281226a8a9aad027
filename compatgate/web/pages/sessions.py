"""Show and create tokens; sign in and out, with a token or at an issuer; keep preferences."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import timedelta
from typing import Any

import msgspec
from flask import redirect, request
from msgspec import Struct
from msgspec.structs import replace

from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput, CompatgateError, Unauthorized
from compatgate.kit.clock import now
from compatgate.kit.http.limits import peer_address
from compatgate.kit.http.links import UI_PREFIX, link, local_path
from compatgate.kit.http.replies import note_error
from compatgate.kit.http.requests import AnyQuery
from compatgate.kit.principal import SCOPES, AccessRefused
from compatgate.kit.ui.filters import (
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
from compatgate.kit.ui.tables import Act, Cell, PagedTableQuery, fetch_rows, make_list_table
from compatgate.service.access.browser_sessions import NewBrowserSession
from compatgate.service.access.token_table import TokenRow
from compatgate.service.access.tokens import NewToken
from compatgate.web import auth
from compatgate.web.page import HtmlPage, PageRequest, Redirect, listing, page
from compatgate.web.service import base_url

_ATTEMPT_COOKIE = "compatgate_signing_in"
_LONGEST_PLACE = 2000


@page("/tokens", scope="admin", nav="tokens", query=PagedTableQuery)
def show_tokens(ask: PageRequest[Any]) -> HtmlPage:
    """Show every token, without its secret, and the form for a new one."""
    return _tokens_page(ask)


@page("/tokens/new", scope="admin", method="POST", nav="tokens", refused=show_tokens)
def create_token(ask: PageRequest[Any]) -> HtmlPage:
    """Create a token; only this answer shows its secret."""
    form = ask.form
    expires = form.get("expires", "").strip()
    made = ask.rooms.tokens.create(
        form.get("name", "").strip(),
        _posted_scopes(),
        by=ask.principal.name,
        expires_at=now() + parse_duration(expires, field="expires") if expires else None,
        targets=form.get("targets", "").replace(",", " ").split() or None,
        person=form.get("person", "").strip() or None,
    )
    return _tokens_page(ask, made=made)


def _confirm_revoking(ask: PageRequest[Any]) -> HtmlPage:
    return _tokens_page(ask, ending=ask.rooms.tokens.find(ask.form.get("name", "")))


def _confirm_rotating(ask: PageRequest[Any]) -> HtmlPage:
    return _tokens_page(ask, renewed=ask.rooms.tokens.find(ask.form.get("name", "")))


@page("/tokens/revoke", scope="admin", method="POST", nav="tokens", refused=_confirm_revoking)
def revoke_token(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Revoke a token after a confirmation."""
    token = ask.rooms.tokens.find(ask.form.get("name", ""))
    if ask.form.get("confirmed") != token.id:
        return _confirm_revoking(ask)
    ask.rooms.tokens.revoke(token.id, by=ask.principal.name)
    return Redirect(link("tokens"), f"Revoked the token {token.name}.")


@page("/tokens/rotate", scope="admin", method="POST", nav="tokens", refused=_confirm_rotating)
def rotate_token(ask: PageRequest[Any]) -> HtmlPage:
    """Give a token a new secret after asking how long the old one holds; show it once."""
    if "overlap" not in ask.form:
        return _confirm_rotating(ask)
    given = ask.form["overlap"].strip()
    overlap = parse_duration(given, field="overlap") if given else timedelta()
    token = ask.rooms.tokens.find(ask.form.get("name", ""))
    made = ask.rooms.tokens.rotate(token.id, by=ask.principal.name, overlap=overlap)
    return _tokens_page(ask, made=made)


def _posted_scopes() -> list[str]:
    return [scope for scope in SCOPES if scope in request.form.getlist("scopes")]


def _tokens_page(
    ask: PageRequest[Any],
    *,
    made: NewToken | None = None,
    ending: TokenRow | None = None,
    renewed: TokenRow | None = None,
) -> HtmlPage:
    query = ask.query if isinstance(ask.query, PagedTableQuery) else PagedTableQuery()
    found = fetch_rows(ask.rooms.tokens.list, query.cursor)
    table = make_list_table(listing("tokens"), found, query, _cells)
    context = {
        "made": made,
        "ending": ending,
        "renewed": renewed,
        "scopes": SCOPES,
        "chosen": ["read", "gate"] if made or "targets" not in ask.form else _posted_scopes(),
    }
    return HtmlPage("tokens.html", "Tokens", context, table)


def _cells(one: TokenRow) -> dict[str, Any]:
    fields = {"name": one.name}
    acts = (  # the page that follows asks once more
        Act("Rotate…", link("tokens", "rotate"), fields),
        Act("Revoke…", link("tokens", "revoke"), fields),
    )
    return {
        "state": "active" if one.active else "revoked" if one.revoked_at else "expired",
        "acts": Cell(None, acts=acts if one.active else ()),
        "targets": "all" if one.targets is None else one.targets,
    }


class NextPage(Struct, frozen=True, forbid_unknown_fields=True):
    """The page to show after signing in."""

    next: str | None = None


@page("/sign-in", scope=None, query=NextPage)
def show_sign_in(ask: PageRequest[Any]) -> HtmlPage:
    """Show the form for a token."""
    place = ask.form.get("next") if ask.form else ask.query.next
    context = {
        "next": local_path(place) or link(),
        "limits": ask.rooms.sessions.limits,
        "offer": ask.service.identity.offer(),
    }
    return HtmlPage("sign-in.html", "Sign in", context)


@page("/sign-in", scope=None, method="POST", refused=show_sign_in)
def sign_in(ask: PageRequest[Any]) -> Any:
    """Open a session with a token."""
    secret, place = ask.form.get("token", "").strip(), ask.form.get("next")
    if not secret:
        raise BadInput("paste a token; tokens begin with cg_", field="token")
    try:
        principal = ask.service.limits.verify(secret, ask.rooms.tokens, peer_address())
        principal.require_no_limit("signing in to the pages, which show all targets,")
        signed_in = ask.rooms.sessions.sign_in(secret)
    except (Unauthorized, AccessRefused) as error:
        note_error(error, request.environ)
        auth.note_refusal(error, "POST /ui/sign-in", ask.service)
        raise
    response = _go(local_path(place) or link())
    auth.set_session_cookie(response, signed_in)
    return response


@page("/sign-out", scope=None, method="POST")
def sign_out(ask: PageRequest[Any]) -> Any:
    """Close the session."""
    place, identity = link(), ask.service.identity
    if given := auth.session_cookie():
        if identity.knows(given):
            identity.sessions.sign_out(given)
            place = link("signed-out")
        else:
            ask.rooms.sessions.sign_out(given)
    response = redirect(place, 303)
    response.delete_cookie(auth.cookie_name(), path="/", secure=request.is_secure, httponly=True)
    return response


def _go(place: str) -> Any:
    """Redirect to a page with an answer that nobody may store."""
    response = redirect(place, 303)
    response.headers["Cache-Control"] = "no-store"
    return response


@page("/sign-in/issuer", scope=None, query=NextPage)
def begin_sign_in(ask: PageRequest[NextPage]) -> Any:
    """Send the browser to the issuer; a cookie keeps what its answer must match."""
    from compatgate.service.access.people import SIGN_IN_SECONDS

    people = ask.service.identity.require_people()
    place = local_path(ask.query.next) or link()
    try:
        attempt, url = people.begin(_redirect_uri(ask), place[:_LONGEST_PLACE])
    except CompatgateError as error:
        return _sign_in_problem(error, place)
    response = _go(url)
    kept = urlsafe_b64encode(msgspec.json.encode(attempt)).decode()
    auth.set_cookie(response, _ATTEMPT_COOKIE, kept, SIGN_IN_SECONDS)
    return response


@page("/sign-in/done", scope=None, query=AnyQuery)
def finish_sign_in(ask: PageRequest[AnyQuery]) -> Any:
    """Open a session with the issuer's answer, and go to the page that was asked for."""
    from compatgate.service.access.people import Response

    people = ask.service.identity.require_people()
    place = link()
    try:
        attempt = _read_attempt()
        place = local_path(attempt.place) or link()
        answer = Response(
            **{name: request.args.get(name, "")[:4096] for name in Response.__struct_fields__}
        )
        with ask.service.limits.counted_failures():
            made = people.finish(attempt, answer, _redirect_uri(ask))
    except CompatgateError as error:
        return _sign_in_problem(error, place)
    before = auth.session_cookie()
    if before and ask.service.identity.knows(before):
        ask.service.identity.sessions.sign_out(before)
    response = _go(place)
    opened = NewBrowserSession(made.secret, made.principal, made.seconds)
    auth.set_session_cookie(response, opened)
    response.delete_cookie(auth.cookie_name(_ATTEMPT_COOKIE), path="/", secure=request.is_secure)
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


def _read_attempt() -> Any:
    from compatgate.service.access.people import Attempt

    kept = request.cookies.get(auth.cookie_name(_ATTEMPT_COOKIE), "")[:8192]
    try:
        return msgspec.json.decode(urlsafe_b64decode(kept), type=Attempt)
    except (msgspec.MsgspecError, ValueError):
        hint = "sign in again; this browser must allow cookies of this site"
        raise Unauthorized("this browser did not start a sign-in", hint=hint) from None


def _sign_in_problem(error: CompatgateError, place: str) -> HtmlPage:
    return HtmlPage("sign-in-failed.html", "Not signed in", {"next": place}, error=error)


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
    chosen = Preferences(_read_theme(ask.form), zone)
    return _keep_preferences(chosen, link("preferences"), "Saved.")


@page("/theme", scope=None, method="POST")
def set_theme(ask: PageRequest[Any]) -> Redirect:
    """Choose the theme: light, dark, or the system's."""
    chosen = replace(current_preferences(), theme=_read_theme(ask.form))
    return _keep_preferences(chosen, local_path(ask.form.get("next")) or link())


def _keep_preferences(chosen: Preferences, place: str, done: str = "") -> Redirect:
    return Redirect(place, done, {PREFERENCES_COOKIE: pack_cookie(chosen)})


def _read_theme(form: dict[str, str]) -> Theme:
    name = form.get("theme", "")
    for theme in THEMES:
        if name == theme:
            return theme
    raise BadInput("is not a theme", field="theme", value=name, hint=", ".join(THEMES))
