"""Define tokens and scopes as REST carries them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

ScopeName = Literal[
    "read",
    "admission",
    "gate",
    "plan",
    "deliver",
    "propose",
    "approve",
    "upgrade",
    "operate",
    "bless",
    "admin",
]
SCOPES: dict[ScopeName, str] = {
    "read": "read everything except tokens",
    "admission": "send admission reviews, as an API server does",
    "gate": "ask for verdicts; includes `admission`",
    "plan": "ask what a change would do: what-if, plans, stacks that pass, backtests",
    "deliver": "deliver the decisions of a far gate, which has the token's name",
    "propose": "propose changes of the matrix, comment on proposals, close your own; includes"
    " `plan`",
    "approve": "approve and close proposals of others, approve upgrades of others; includes"
    " `propose` and `plan`",
    "upgrade": "propose upgrades, start their waves, stop, resume and roll back; set freezes;"
    " includes `plan`",
    "operate": "submit, cancel and repeat canary runs, propose baselines, report and remove nodes,"
    " change targets where that weakens nothing; includes `propose` and `plan`",
    "bless": "change targets, entries and waivers, also by import; approve and refuse baselines,"
    " merge proposals; includes `propose`, `approve` and `plan`",
    "admin": "list, create, rotate and revoke tokens, verify the audit log, and all of the above",
}
"""The permissions of each scope; ``admin`` includes all others. Every change that decides what the
gate allows needs ``bless``."""
INCLUDED: dict[str, frozenset[str]] = {
    "gate": frozenset({"admission"}),
    "propose": frozenset({"plan"}),
    "approve": frozenset({"propose", "plan"}),
    "upgrade": frozenset({"plan"}),
    "operate": frozenset({"propose", "plan"}),
    "bless": frozenset({"propose", "approve", "plan"}),
}
"""Scopes that another scope includes: a proposal changes nothing, and who may make a change alone
may agree to it."""
TargetPattern = Annotated[str, Meta(min_length=1, max_length=128)]
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
    active: Annotated[bool, Meta(description="true: neither revoked nor expired")]
    targets: Annotated[
        list[str] | None, Meta(description="patterns of allowed targets; null: every target")
    ] = None
    rotated_at: Annotated[
        datetime | None, Meta(description="start of the current secret's validity")
    ] = None
    previous_expires_at: Annotated[
        datetime | None, Meta(description="end of the previous secret's validity")
    ] = None
    warning: Annotated[
        str | None, Meta(description="warning about the token, for example an end soon")
    ] = None


class NewTokenBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A new token with its secret."""

    secret: Annotated[
        str, Meta(description="secret of the token, shown only once; the gate stores only its hash")
    ]
    token: TokenBody


class TokenRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A request for a new token."""

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=128,
            description="name of the user or service, shown in logs",
        ),
    ]
    scopes: Annotated[list[ScopeName], Meta(min_length=1, description=_SCOPES)]
    expires: Annotated[
        str | None,
        Meta(
            description="lifetime, for example 90d or 12h (default: no end)",
            examples=["90d", "12h"],
        ),
    ] = None
    targets: Annotated[
        Annotated[list[TargetPattern], Meta(min_length=1, max_length=64)] | None,
        Meta(
            description="targets that the token may ask about and change: names, in which `*`"
            " matches any characters; default: every target",
            examples=[["prod-*"]],
        ),
    ] = None


class RotationRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A request for a new secret of a token."""

    overlap: Annotated[
        str | None,
        Meta(
            description="keep the current secret valid for this time, at most 30d"
            " (default: revoke at once)",
            examples=["24h"],
        ),
    ] = None
    expires: Annotated[
        str | None, Meta(description="new lifetime of the token (default: unchanged)")
    ] = None


TOKEN: dict[str, Any] = {"name": "ci", "scopes": ["read", "gate"], "expires": "90d"}
