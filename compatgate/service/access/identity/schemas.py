"""Define sign-in and sessions of people as REST carries them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from compatgate.kit.principal import ScopeName

SessionKind = Literal["browser", "command-line"]


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
