"""Define tokens and scopes as REST carries them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

ScopeName = Literal["read", "gate", "operate", "bless", "admin"]
SCOPES: dict[ScopeName, str] = {
    "read": "see everything but tokens",
    "gate": "ask for verdicts",
    "operate": "submit, cancel and repeat canary runs, propose baselines, report and remove nodes",
    "bless": "change targets, entries and waivers, also by import; approve and refuse baselines",
    "admin": "list, create and revoke tokens, verify the audit log, and all of the above",
}
"""What each scope allows; none but ``admin`` includes another. Whatever decides what the gate lets
through takes ``bless``."""
_SCOPES = "; ".join(f"`{name}`: {allows}" for name, allows in SCOPES.items())


class TokenBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A token, without its secret."""

    id: str
    name: str
    scopes: list[ScopeName]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    active: Annotated[bool, Meta(description="neither revoked nor expired")]


class NewTokenBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A token as it was made."""

    secret: Annotated[str, Meta(description="shown this once; only its hash is kept")]
    token: TokenBody


class TokenRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A token to be made."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    scopes: Annotated[list[ScopeName], Meta(min_length=1, description=_SCOPES)]
    expires: Annotated[
        str | None, Meta(description="how long it is valid", examples=["90d", "12h"])
    ] = None


TOKEN: dict[str, Any] = {"name": "ci", "scopes": ["read", "gate"], "expires": "90d"}
