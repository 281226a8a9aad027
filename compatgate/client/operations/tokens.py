"""Access tokens."""

from __future__ import annotations

from collections.abc import Sequence

from compatgate.client.operation import Listing, Operation
from compatgate.client.request import Request, delete, members, pages, post
from compatgate.wire.matrix import Page
from compatgate.wire.trust import NewTokenBody, ScopeName, TokenBody, TokenRequest


@Listing
def list_tokens(*, active: bool | None = None) -> Request[Page[TokenBody]]:
    """List tokens, by name; secrets are not kept."""
    return pages("/tokens", TokenBody, active=active)


@Operation
def create_token(
    name: str, scopes: Sequence[ScopeName], *, expires: str | None = None
) -> Request[NewTokenBody]:
    """Create a token; its secret is in the answer, and nowhere else.

    Args:
        name: unique; what logs show.
        scopes: of read, gate, operate, bless, admin; `compatgate.wire.trust.SCOPES` says what
            each allows.
        expires: how long it is valid, such as ``90d``; for ever if left out.
    """
    body = members(name=name, scopes=list(scopes), expires=expires)
    return post("/tokens", NewTokenBody, body=body, reads=TokenRequest)


@Operation
def revoke_token(name: str) -> Request[TokenBody]:
    """Revoke a token, by its name or id; it opens nothing from now on."""
    return delete("/tokens/{name}", TokenBody, name=name)
