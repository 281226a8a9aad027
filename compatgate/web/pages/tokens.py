"""Show and create tokens, for an administrator; sign in and out, and choose the theme."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from flask import redirect, request
from msgspec import Struct

from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput, Unauthorized
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
    Column("created", "Created", "time", of="created_at"),
    Column("by", "By", of="created_by"),
    Column("expires", "Expires", "time", of="expires_at"),
    Column("used", "Last used", "time", of="last_used_at"),
    Column("warning", "Attention"),
    Column("person", "Person"),
    Column("id", "Id", "code"),
)
_EMPTY = EmptyNotice("No tokens yet.", "Changes need a token.")


@page("/tokens", scope="admin", nav="tokens", query=PagedTableQuery)
def show_tokens(ask: PageRequest[Any]) -> HtmlPage:
    """Show every token, without its secret, and the form for a new one."""
    return _tokens_page(ask)


@page("/tokens/new", scope="admin", method="POST", nav="tokens", refused=show_tokens)
def create_token(ask: PageRequest[Any]) -> HtmlPage:
    """Create a token; only this answer shows its secret."""
    expires = ask.form.get("expires", "").strip()
    end = now() + parse_duration(expires, field="expires") if expires else None
    name = ask.form.get("name", "").strip()
    limit = ask.form.get("targets", "").replace(",", " ").split() or None
    made = ask.rooms.tokens.create(
        name,
        _posted_scopes(),
        by=ask.principal.name,
        expires_at=end,
        targets=limit,
        person=ask.form.get("person", "").strip() or None,
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
    table = make_list_table("tokens", _COLUMNS, found, query, _EMPTY, _cells)
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
        auth.check_sign_in(secret, ask.service)
        signed_in = ask.rooms.sessions.sign_in(secret)
    except (Unauthorized, AccessRefused) as error:
        note_error(error, request.environ)
        auth.note_refusal(error, "POST /ui/sign-in", ask.service)
        raise
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
