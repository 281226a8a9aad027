"""Show and create tokens, for an administrator; sign in and out, and choose the theme."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from flask import redirect, request
from msgspec import Struct

from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput, CompatgateError, Conflict, Unauthorized
from compatgate.kit.clock import now
from compatgate.kit.http.links import link, local_path
from compatgate.kit.http.replies import note_error
from compatgate.kit.principal import SCOPES, AccessRefused
from compatgate.kit.ui.tables import (
    Act,
    Cell,
    Column,
    EmptyNotice,
    PagedTableQuery,
    fetch_rows,
    make_list_table,
)
from compatgate.service.access.tokens.repository import TokenRow
from compatgate.service.access.tokens.service import NewToken
from compatgate.web import auth
from compatgate.web.page import HtmlPage, PageRequest, Redirect, page

_COLUMNS = (
    Column("name", "Name", "name"),
    Column("state", "State", "badge"),
    Column("acts", "Actions", "acts"),
    Column("scopes", "Scopes"),
    Column("targets", "Targets"),
    Column("created", "Created", "time"),
    Column("by", "By"),
    Column("expires", "Expires", "time"),
    Column("used", "Last used", "time"),
    Column("warning", "Attention"),
    Column("id", "Id", "code"),
)
_EMPTY = EmptyNotice("No tokens yet.", "Changes need a token.")


@page("/tokens", scope="admin", nav="tokens", query=PagedTableQuery)
def show_tokens(ask: PageRequest[PagedTableQuery]) -> HtmlPage:
    """Show every token, without its secret, and the form for a new one."""
    return _tokens_page(ask)


@page("/tokens/new", scope="admin", method="POST", nav="tokens")
def create_token(ask: PageRequest[Any]) -> HtmlPage:
    """Create a token; only this answer shows its secret."""
    scopes = [scope for scope in SCOPES if scope in request.form.getlist("scopes")]
    expires = ask.form.get("expires", "").strip()
    try:
        end = now() + parse_duration(expires, field="expires") if expires else None
        name = ask.form.get("name", "").strip()
        limit = ask.form.get("targets", "").replace(",", " ").split() or None
        made = ask.rooms.tokens.create(
            name, scopes, by=ask.principal.name, expires_at=end, targets=limit
        )
    except (BadInput, Conflict) as error:
        return _tokens_page(ask, problem=error, scopes=scopes)
    return _tokens_page(ask, made=made)


@page("/tokens/revoke", scope="admin", method="POST", nav="tokens")
def revoke_token(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Revoke a token after a confirmation."""
    token = ask.rooms.tokens.find(ask.form.get("name", ""))
    if ask.form.get("confirmed") != token.id:
        return _tokens_page(ask, ending=token)
    try:
        ask.rooms.tokens.revoke(token.id, by=ask.principal.name)
    except Conflict as error:
        return _tokens_page(ask, ending=token, refused=error)
    return Redirect(link("tokens"), f"Revoked the token {token.name}.")


@page("/tokens/rotate", scope="admin", method="POST", nav="tokens")
def rotate_token(ask: PageRequest[Any]) -> HtmlPage:
    """Give a token a new secret after asking how long the old one holds; show it once."""
    token = ask.rooms.tokens.find(ask.form.get("name", ""))
    if "overlap" not in ask.form:
        return _tokens_page(ask, renewed=token)
    given = ask.form["overlap"].strip()
    try:
        overlap = parse_duration(given, field="overlap") if given else timedelta()
        made = ask.rooms.tokens.rotate(token.id, by=ask.principal.name, overlap=overlap)
    except (BadInput, Conflict) as error:
        return _tokens_page(ask, renewed=token, refused=error)
    return _tokens_page(ask, made=made)


def _tokens_page(
    ask: PageRequest[Any],
    *,
    problem: CompatgateError | None = None,
    made: NewToken | None = None,
    ending: TokenRow | None = None,
    refused: CompatgateError | None = None,
    renewed: TokenRow | None = None,
    scopes: Sequence[str] | None = None,
) -> HtmlPage:
    query = ask.query if isinstance(ask.query, PagedTableQuery) else PagedTableQuery()
    found = fetch_rows(ask.rooms.tokens.list, query.cursor)
    rows = [
        (
            one.name,
            "active" if one.active else "revoked" if one.revoked_at else "expired",
            Cell(None, acts=_list_acts(one) if one.active else ()),
            ", ".join(one.scopes),
            "all" if one.targets is None else ", ".join(one.targets),
            one.created_at,
            one.created_by,
            one.expires_at,
            one.last_used_at,
            one.warning,
            one.id,
        )
        for one in found.items
    ]
    table = make_list_table("tokens", _COLUMNS, rows, found, query, _EMPTY)
    context = {
        "problem": problem,
        "made": made,
        "ending": ending,
        "refused": refused,
        "renewed": renewed,
        "scopes": SCOPES,
        "chosen": scopes if scopes is not None else ["read", "gate"],
        "form": ask.form,
    }
    error = problem or refused
    return HtmlPage("tokens.html", "Tokens", context, table, error.status if error else 200)


def _list_acts(token: TokenRow) -> tuple[Act, ...]:
    """Return what the row of a token offers; each page that follows asks once more."""
    fields = {"name": token.name}
    return (
        Act("Rotate…", link("tokens", "rotate"), fields),
        Act("Revoke…", link("tokens", "revoke"), fields),
    )


class NextPage(Struct, frozen=True, forbid_unknown_fields=True):
    """The page to show after signing in."""

    next: str | None = None


def format_hours(length: timedelta) -> str:
    """Return a length of time in words: hours, or minutes where it is not whole hours."""
    hours, rest = divmod(round(length.total_seconds()), 3600)
    number, unit = (hours, "hour") if not rest else (hours * 60 + round(rest / 60), "minute")
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


@page("/sign-in", scope=None, query=NextPage)
def show_sign_in(ask: PageRequest[NextPage]) -> HtmlPage:
    """Show the form for a token."""
    return _form(ask, ask.query.next)


def _form(
    ask: PageRequest[Any], place: str | None, problem: str = "", status: int = 200
) -> HtmlPage:
    limits = ask.rooms.sessions.limits
    context = {
        "next": local_path(place) or link(),
        "problem": problem,
        "lifetime": format_hours(limits.lifetime),
        "idle": format_hours(limits.idle),
        "offer": ask.service.identity.offer(),
    }
    return HtmlPage("sign-in.html", "Sign in", context, status=status)


@page("/sign-in", scope=None, method="POST")
def sign_in(ask: PageRequest[Any]) -> Any:
    """Open a session with a token."""
    secret, place = ask.form.get("token", "").strip(), ask.form.get("next")
    if not secret:
        return _form(ask, place, "Paste a token; tokens begin with cg_.", 400)
    try:
        auth.check_sign_in(secret, ask.service)
        signed_in = ask.rooms.sessions.sign_in(secret)
    except (Unauthorized, AccessRefused) as error:
        note_error(error, request.environ)
        auth.note_refusal(error, "POST /ui/sign-in", ask.service)
        return _form(ask, place, f"{error.problem[:1].upper()}{error.problem[1:]}.", error.status)
    response = redirect(local_path(place) or link(), 303)
    auth.set_session_cookie(response, signed_in)  # type: ignore[arg-type]
    response.headers["Cache-Control"] = "no-store"
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
    auth.clear_session_cookie(response)  # type: ignore[arg-type]
    return response
