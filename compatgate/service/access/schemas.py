"""Define tokens, sign-in and sessions of people as REST carries them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from compatgate.kit.principal import SCOPES, ScopeName

TargetPattern = Annotated[str, Meta(min_length=1, max_length=128)]
_SCOPES = "; ".join(f"`{name}`: {allows}" for name, allows in SCOPES.items())
SessionKind = Literal["browser", "command-line"]


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
    person: Annotated[
        str | None, Meta(description="person whose token it is; null: the token's name")
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
            min_length=1, max_length=128, description="name of the user or service, shown in logs"
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
    person: Annotated[
        Annotated[str, Meta(min_length=1, max_length=256)] | None,
        Meta(
            description="person whose token it is, by the name of the sign-in or of another token:"
            " together they count as one who approves (default: the token's name)",
            examples=["kim@example.org"],
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


class SignInBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The sign-in of people on the command line: the device flow of an issuer."""

    name: Annotated[str, Meta(description="name of the issuer, for display")]
    issuer: str
    client_id: Annotated[str, Meta(description="public client id for the command line")]
    device_authorization_endpoint: str
    token_endpoint: str
    scopes: list[str]
    access_token: Annotated[
        bool, Meta(description="whether the gate also needs the access token, for userinfo")
    ]


class SessionRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A request for a session."""

    id_token: Annotated[str, Meta(min_length=1, max_length=16384)]
    access_token: Annotated[str, Meta(max_length=16384)] | None = None


class SessionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A session of a person, without its secret."""

    id: str
    kind: SessionKind
    issuer: str
    subject: str
    name: str
    email: str
    groups: Annotated[
        list[str], Meta(description="groups of the person that the operator's file names")
    ]
    created_at: datetime
    last_used_at: datetime
    expires_at: Annotated[
        datetime, Meta(description="latest end of the session; idle sessions end earlier")
    ]
    ended_at: datetime | None


class NewSessionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A new session with its secret."""

    secret: Annotated[str, Meta(description="shown only once; only its hash is stored")]
    session: SessionBody


class CallerBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The caller of a request, as logs name it."""

    name: str
    kind: Literal["anonymous", "token", "person", "job", "hook", "local"]
    scopes: list[ScopeName]
    targets: Annotated[
        list[str] | None, Meta(description="patterns of allowed targets; null: every target")
    ]
    id: Annotated[str | None, Meta(description="id of the token or session")]
