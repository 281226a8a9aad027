"""Read the operator's settings for notices: private networks, the mail relay, the public URL."""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network
from typing import Literal
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from compatgate.errors import BadInput
from compatgate.service.gate.images import parse_networks

SMTP = "COMPATGATE_SMTP"
SENDER = "COMPATGATE_SMTP_FROM"
NETWORKS = "COMPATGATE_NOTICE_NETWORKS"
SECRETS = "COMPATGATE_NOTICE_"
"""Variables that a channel may name as ``env:...`` begin so."""
Security = Literal["starttls", "tls", "none"]
_SCHEMES: dict[str, Security] = {"smtp": "starttls", "smtps": "tls", "smtp+plain": "none"}
_PORTS: dict[Security, int] = {"starttls": 587, "tls": 465, "none": 25}


class Relay(Struct, frozen=True):
    """The mail relay."""

    host: str
    port: int
    security: Security
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        """Return the relay without its password, because errors and logs show objects."""
        return f"Relay({self.host!r}, {self.port}, {self.security!r})"


class NoticeOptions(Struct, frozen=True):
    """The operator's settings for notices.

    Attributes:
        networks: private networks where receivers may be.
        relay: None: channels of e-mail cannot send.
        sender: address that e-mails come from.
        public_url: address of the service, for links; empty: there are none.
    """

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    relay: Relay | None = None
    sender: str = "compatgate@localhost"
    public_url: str = ""


def read_options(
    networks: tuple[str, ...] = (),
    public_url: str = "",
    environment: Mapping[str, str] | None = None,
) -> NoticeOptions:
    """Return the settings of options and environment.

    Args:
        networks: values of ``--notice-network``.
        public_url: of the service.
        environment: None: this process's.

    Raises:
        BadInput: not a network, or not the URL of a relay.
    """
    environment = os.environ if environment is None else environment
    found = (
        *parse_networks(networks, "--notice-network"),
        *parse_networks([environment.get(NETWORKS, "")], NETWORKS),
    )
    text = environment.get(SMTP, "")
    sender = environment.get(SENDER) or NoticeOptions().sender
    return NoticeOptions(found, parse_relay(text) if text else None, sender, public_url)


def parse_relay(text: str) -> Relay:
    """Read ``smtp://user:password@relay.example:587``; the text never appears in an error.

    ``smtp`` needs STARTTLS, ``smtps`` TLS from the start; ``smtp+plain`` has neither.

    Raises:
        BadInput: another form.
    """
    hint = "smtp://USER:PASSWORD@HOST:587 (STARTTLS), smtps://HOST or smtp+plain://HOST"
    try:
        parts = urlsplit(text)
        security, port = _SCHEMES.get(parts.scheme), parts.port
    except ValueError:
        security = None
    if security is None or not parts.hostname or parts.path.strip("/") or parts.query:
        raise BadInput("is not a mail relay URL", field=SMTP, hint=hint)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if password and security == "none":
        what = "sends a password without TLS"
        raise BadInput(what, field=SMTP, hint="use smtp:// or smtps://")
    return Relay(parts.hostname, port or _PORTS[security], security, user, password)
