"""Tokens and the audit log over REST."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from math import ceil
from typing import TYPE_CHECKING, Any

import msgspec

from compatgate.cli.over_rest.rows import Body, decision, link, page_of, token
from compatgate.client.operations import Operations
from compatgate.errors import BadInput
from compatgate.store.clock import now

if TYPE_CHECKING:
    from compatgate.client import Client
    from compatgate.gate.auth import NewToken
    from compatgate.store.rows import TokenRow
    from compatgate.store.verify import ChainReport
    from compatgate.wire.matrix import Page

_DAY = 86400
_MANY_SECONDS = 10**9
"""More than a duration of seconds can say."""


class RemoteTokens:
    """Access tokens; the gate notes the caller's own token as who made or ended them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(
        self, name: str, scopes: Iterable[str], *, by: str, expires_at: datetime | None = None
    ) -> NewToken:
        """Make a token."""
        from compatgate.gate.auth import NewToken

        wanted: Any = sorted(scopes)
        request = Operations.create_token.request(name, wanted, expires=_duration(expires_at))
        made: Body = self._client.send(request.plain())
        return NewToken(made["secret"], token(made["token"]))

    def list(
        self, *, active: bool | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[TokenRow]:
        """Tokens by name, a page at a time."""
        return page_of(
            self._client, Operations.list_tokens, token, active=active, cursor=cursor, limit=limit
        )

    def revoke(self, id_or_name: str, *, by: str, even_last_admin: bool = False) -> TokenRow:
        """End a token.

        Raises:
            BadInput: the last admin token is ended on the server's machine only.
        """
        if even_last_admin:
            what, hint = "does not work over a server", "run it with --database, beside the server"
            raise BadInput(what, field="--last-admin", hint=hint)
        return token(self._client.send(Operations.revoke_token.request(id_or_name).plain()))


class RemoteHistory:
    """The audit log and decisions."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list_audit(self, **filters: Any) -> Page[Any]:
        """Links of the chain, newest first."""
        return page_of(self._client, Operations.list_audit, link, **filters)

    def list_decisions(self, **filters: Any) -> Page[Any]:
        """Decisions, newest first."""
        return page_of(self._client, Operations.list_decisions, decision, **filters)

    def verify(self, *, expected_head: str | None = None) -> ChainReport:
        """Check the chain and all that it vouches for."""
        from compatgate.store.verify import ChainReport

        request = Operations.verify_audit.request(head=expected_head)
        return msgspec.convert(self._client.send(request.plain()), ChainReport)


def _duration(end: datetime | None) -> str | None:
    """How long from now, as the gate reads it."""
    if end is None:
        return None
    seconds = ceil((end - now()).total_seconds())
    return f"{seconds}s" if seconds < _MANY_SECONDS else f"{seconds // _DAY}d"
