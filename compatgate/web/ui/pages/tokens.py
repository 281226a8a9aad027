"""Tokens, for an administrator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compatgate.documents.durations import parse_duration
from compatgate.errors import BadInput, CompatgateError, Conflict
from compatgate.gate.auth import NewToken
from compatgate.store.clock import now
from compatgate.store.rows import TokenRow
from compatgate.web.ui.links import link
from compatgate.web.ui.listing import LongListing, rows_of, table_of
from compatgate.web.ui.page import Ask, Goto, Shown, page
from compatgate.web.ui.tables import Column, Empty
from compatgate.wire.trust import SCOPES

_COLUMNS = (
    Column("name", "Name"),
    Column("scopes", "Scopes"),
    Column("state", "State", "badge"),
    Column("created", "Created", "time"),
    Column("by", "By"),
    Column("expires", "Expires", "time"),
    Column("used", "Last used", "time"),
    Column("id", "Id", "code"),
)
_EMPTY = Empty("No tokens yet.", "Changes need a token.")


@page("/tokens", scope="admin", nav="tokens", query=LongListing)
def show(ask: Ask[LongListing]) -> Shown:
    """Every token, without its secret, and the form for a new one."""
    return _shown(ask)


@page("/tokens/new", scope="admin", method="POST", nav="tokens")
def create(ask: Ask[Any]) -> Shown:
    """Make a token; its secret is on this answer and nowhere else."""
    from flask import request

    scopes = [scope for scope in SCOPES if scope in request.form.getlist("scopes")]
    expires = ask.form.get("expires", "").strip()
    try:
        end = now() + parse_duration(expires, field="expires") if expires else None
        name = ask.form.get("name", "").strip()
        made = ask.gate.tokens.create(name, scopes, by=ask.principal.name, expires_at=end)
    except (BadInput, Conflict) as error:
        return _shown(ask, problem=error, scopes=scopes)
    return _shown(ask, made=made)


@page("/tokens/revoke", scope="admin", method="POST", nav="tokens")
def revoke(ask: Ask[Any]) -> Shown | Goto:
    """End a token, once that is confirmed."""
    token = ask.gate.tokens.find(ask.form.get("name", ""))
    if ask.form.get("confirmed") != token.id:
        return _shown(ask, ending=token)
    try:
        ask.gate.tokens.revoke(token.id, by=ask.principal.name)
    except Conflict as error:
        return _shown(ask, ending=token, refused=error)
    return Goto(link("tokens"), f"Revoked the token {token.name}.")


def _shown(
    ask: Ask[Any],
    *,
    problem: CompatgateError | None = None,
    made: NewToken | None = None,
    ending: TokenRow | None = None,
    refused: CompatgateError | None = None,
    scopes: Sequence[str] | None = None,
) -> Shown:
    query = ask.query if isinstance(ask.query, LongListing) else LongListing()
    found = rows_of(ask.gate.tokens.list, query.cursor)
    rows = [
        (
            one.name,
            ", ".join(one.scopes),
            "active" if one.is_active else "revoked" if one.revoked_at else "expired",
            one.created_at,
            one.created_by,
            one.expires_at,
            one.last_used_at,
            one.id,
        )
        for one in found.items
    ]
    table = table_of("tokens", _COLUMNS, rows, found, query, _EMPTY)
    context = {
        "problem": problem,
        "made": made,
        "ending": ending,
        "refused": refused,
        "scopes": SCOPES,
        "chosen": scopes if scopes is not None else ["read", "gate"],
        "form": ask.form,
        "active": [one.name for one in found.items if one.is_active],
    }
    error = problem or refused
    return Shown("tokens.html", "Tokens", context, table, error.status if error else 200)
