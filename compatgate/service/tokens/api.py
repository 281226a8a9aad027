"""Serve access tokens."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from compatgate.documents.quantities import parse_duration
from compatgate.kit.clock import now
from compatgate.kit.http.replies import ListQuery, Reply, page_reply
from compatgate.kit.http.requests import to_struct
from compatgate.service.tokens.schemas import SCOPES, TOKEN, NewTokenBody, TokenBody, TokenRequest
from compatgate.service.tokens.service import check_scopes
from compatgate.service.web.call import Call
from compatgate.service.web.route import Body, NoQuery, Returns, route


class TokenFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of the list of tokens."""

    active: Annotated[bool, Meta(description="neither revoked nor expired")] | None = None


@route(
    "GET",
    "/tokens",
    scope="admin",
    tag="tokens",
    query=TokenFilters,
    returns=Returns(TokenBody, "A page of tokens", paged=True, etag=True),
)
def list_tokens(call: Call[TokenFilters]) -> Reply:
    """List tokens by name, without secrets."""
    return page_reply(call.gate.tokens.list(**call.query.filters()), lambda row: row.to_json())


@route(
    "POST",
    "/tokens",
    scope="admin",
    tag="tokens",
    body=Body(TokenRequest, examples={"ci": TOKEN}),
    returns=Returns(NewTokenBody, "The token and, this once, its secret", status=201),
    errors=(409,),
)
def create_token(call: Call[NoQuery]) -> Reply:
    """Create a token."""
    wanted = to_struct(call.document(), TokenRequest, {"scopes": f"scopes: {', '.join(SCOPES)}"})
    scopes = check_scopes(wanted.scopes)
    made = call.gate.tokens.create(
        wanted.name, scopes, by=call.principal.name, expires_at=_end(wanted.expires)
    )
    body = {"secret": made.secret, "token": made.token.to_json()}
    return Reply(body, status=201, secret=True)


@route(
    "DELETE",
    "/tokens/{name}",
    scope="admin",
    tag="tokens",
    returns=Returns(TokenBody, "The token as it is now"),
    errors=(404, 409),
)
def revoke_token(call: Call[NoQuery]) -> Reply:
    """Revoke a token by its name or id.

    The last active token with the scope `admin` stays (409): create another one first.
    """
    return Reply(call.gate.tokens.revoke(call.args["name"], by=call.principal.name).to_json())


def _end(expires: str | None) -> datetime | None:
    return None if expires is None else now() + parse_duration(expires, field="expires")
