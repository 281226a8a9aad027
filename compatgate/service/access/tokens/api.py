"""Serve access tokens."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta

from compatgate.documents.quantities import parse_duration
from compatgate.kit.clock import now
from compatgate.kit.http.replies import Reply, page_reply
from compatgate.kit.http.requests import to_struct
from compatgate.kit.http.route import Body, Call, NoQuery, Returns, Routes
from compatgate.kit.http.schemas import ListQuery
from compatgate.kit.principal import SCOPES
from compatgate.service.access.tokens.schemas import (
    TOKEN,
    NewTokenBody,
    RotationRequest,
    TokenBody,
    TokenRequest,
)
from compatgate.service.access.tokens.service import Tokens

routes = Routes("tokens", scope="admin")


class TokenFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of the list of tokens."""

    active: (
        Annotated[bool, Meta(description="true: tokens that are neither revoked nor expired")]
        | None
    ) = None


@routes.pages("/tokens", TokenBody, "A page of tokens", scope="admin", query=TokenFilters)
def list_tokens(call: Call[TokenFilters]) -> Reply:
    """List tokens by name, without secrets."""
    return page_reply(call.use(Tokens).list(**call.query.filters()), lambda row: row.to_body())


@routes.post(
    "/tokens",
    Returns(NewTokenBody, "The token with its secret, shown only once", status=201),
    body=Body(TokenRequest, examples={"ci": TOKEN}),
    errors=(409,),
)
def create_token(call: Call[NoQuery]) -> Reply:
    """Create a token."""
    wanted = to_struct(call.document(), TokenRequest, {"scopes": f"scopes: {', '.join(SCOPES)}"})
    made = call.use(Tokens).create(
        wanted.name,
        wanted.scopes,
        by=call.principal.name,
        expires_at=_end(wanted.expires),
        targets=wanted.targets,
        person=wanted.person,
    )
    body = NewTokenBody(made.secret, made.token.to_body())
    return Reply(body, status=201, secret=True)


@routes.post(
    "/tokens/{name}/rotate",
    Returns(NewTokenBody, "The token with its new secret, shown only once"),
    body=Body(RotationRequest, examples={"overlap": {"overlap": "24h"}}),
    errors=(404, 409),
)
def rotate_token(call: Call[NoQuery]) -> Reply:
    """Give a token a new secret; name, id, scopes and targets stay the same.

    The current secret ends immediately, or after `overlap`. Browsers that signed in with it are
    signed out when it ends.
    """
    wanted = to_struct(call.document(), RotationRequest)
    overlap = parse_duration(wanted.overlap, field="overlap") if wanted.overlap else timedelta()
    made = call.use(Tokens).rotate(
        call.args["name"], by=call.principal.name, overlap=overlap, expires_at=_end(wanted.expires)
    )
    return Reply(NewTokenBody(made.secret, made.token.to_body()), secret=True)


@routes.delete("/tokens/{name}", Returns(TokenBody, "The revoked token"), errors=(404, 409))
def revoke_token(call: Call[NoQuery]) -> Reply:
    """Revoke a token by its name or id.

    The last lasting token with the scope `admin` cannot be revoked (409): create another one
    first. A token that expires within 30 days is not lasting.
    """
    return Reply(call.use(Tokens).revoke(call.args["name"], by=call.principal.name).to_body())


def _end(expires: str | None) -> datetime | None:
    return None if expires is None else now() + parse_duration(expires, field="expires")
