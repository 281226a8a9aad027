"""Send a message to a channel as the operator's settings say: over HTTP, signed, or by mail.

A receiver's address is checked as redirects of registries are: it must be public, or in a network
that the operator allowed. The name is resolved once, and no redirect is followed.
"""

from __future__ import annotations

import os
import smtplib
import ssl
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from compatgate.discovery.registry.addresses import AddressGuard
from compatgate.discovery.registry.limits import Deadline, ImageOptions
from compatgate.discovery.registry.transport import Transport
from compatgate.errors import BadInput, CompatgateError, Unavailable, quote_error
from compatgate.kit import clock
from compatgate.service.gate.images import parse_networks
from compatgate.service.notices.formats import Message, to_email, to_json, to_slack, to_teams
from compatgate.service.notices.schemas import ChannelKind
from compatgate.service.webhooks.signatures import HEADER, sign

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


SECONDS = 10.0
"""Longest time for one attempt."""
ENVIRONMENT = "env:"
_MAX_ANSWER = 300
_OK = range(200, 300)
_encode = msgspec.json.Encoder().encode


class Attempt(Struct, frozen=True):
    """The result of sending a message once.

    Attributes:
        answer: of the receiver, or why there was none; without secrets.
    """

    sent: bool
    answer: str


def send(
    kind: ChannelKind, secret: Mapping[str, Any], message: Message, options: NoticeOptions
) -> Attempt:
    """Send a message once; never raise.

    Args:
        kind: of the channel.
        secret: of the channel: ``url`` and ``key``, or ``to``.
        message: to send.
        options: of the operator.
    """
    hidden: list[str] = []
    try:
        if kind == "email":
            return _send_mail(message, secret["to"], options)
        url, key = resolve_secret(secret["url"]), resolve_secret(secret.get("key", ""))
        hidden = [key, url, *_parts_of(url)]
        return _send_http(kind, url, key, message, options, hidden)
    except CompatgateError as error:
        return Attempt(False, scrub(error.detail, hidden))
    except (OSError, KeyError, ValueError) as error:
        return Attempt(False, scrub(f"{type(error).__name__}: {quote_error(error)}", hidden))


def resolve_secret(text: str) -> str:
    """Return a secret; ``env:VARIABLE`` stands for the value of the server's variable.

    Raises:
        Unavailable: the variable is not set.
    """
    if not text.startswith(ENVIRONMENT):
        return text
    name = text.removeprefix(ENVIRONMENT)
    value = os.environ.get(name, "")
    if not value:
        raise Unavailable(f"the variable {name} is not set on the server", field="secret")
    return value


def _parts_of(url: str) -> list[str]:
    """Return the parts of a URL that may be secret, the longest first."""
    parts = urlsplit(url)
    found = [parts.path.strip("/"), parts.query, *parts.path.split("/")]
    return sorted((one for one in found if len(one) > len("webhook")), key=len, reverse=True)


def scrub(text: str, hidden: list[str]) -> str:
    """Return a text on one line, without secrets, and not longer than a log needs."""
    for one in hidden:
        if one:
            text = text.replace(one, "…")
    printable = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(printable.split())[:_MAX_ANSWER]


def _send_http(
    kind: ChannelKind,
    url: str,
    key: str,
    message: Message,
    options: NoticeOptions,
    hidden: list[str],
) -> Attempt:
    body = _write_body(kind, message, options.public_url)
    headers = {"Content-Type": "application/json"}
    if kind == "webhook":
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        at = int(clock.now().timestamp())
        headers |= {
            "Idempotency-Key": message.id,
            "X-Compatgate-Delivery": message.id,
            HEADER: sign(key.encode(), at, "POST", path, body),
        }
    rules = ImageOptions(internal=False, networks=options.networks)
    _check_address(url, rules)
    with Deadline(SECONDS) as deadline, Transport(rules, deadline, attempts=1) as transport:
        response = transport.open(url, headers, body=body, method="POST")
        with response:
            said = response.read(_MAX_ANSWER).decode(errors="replace")
            answer = scrub(f"{response.status} {said}", hidden)
            return Attempt(response.status in _OK, answer)


def _write_body(kind: ChannelKind, message: Message, base: str) -> bytes:
    if kind == "slack":
        return _encode(to_slack(message, base))
    if kind == "teams":
        return _encode(to_teams(message, base))
    return to_json(message, base)


def _check_address(url: str, rules: ImageOptions) -> None:
    """Check the receiver's address, to say so in the words of notices; sending checks it again.

    Raises:
        Unavailable: it is not public, and in no allowed network.
    """
    guard = AddressGuard(rules)
    try:
        guard.check_name(url)
        guard.resolve(url)
    except Unavailable:
        host = urlsplit(url).hostname
        hint = "allow its network with serve --notice-network"
        raise Unavailable(f"{host} is not a public address", hint=hint) from None


def _send_mail(message: Message, recipients: list[str], options: NoticeOptions) -> Attempt:
    relay = options.relay
    if relay is None:
        return Attempt(False, "the server has no mail relay: set COMPATGATE_SMTP")
    mail = to_email(message, options.public_url, options.sender, recipients)
    try:
        with _connect(relay) as smtp:
            if relay.user:
                smtp.login(relay.user, relay.password)
            refused = smtp.send_message(mail)
    except smtplib.SMTPResponseException as error:
        said = error.smtp_error
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        return Attempt(False, scrub(f"{error.smtp_code} {text}", [relay.password]))
    except smtplib.SMTPException as error:
        return Attempt(
            False, scrub(f"{type(error).__name__}: {quote_error(error)}", [relay.password])
        )
    if refused:
        names = ", ".join(sorted(refused))
        return Attempt(True, scrub(f"accepted, but not for {names}", [relay.password]))
    return Attempt(True, "accepted by the relay")


def _connect(relay: Relay) -> smtplib.SMTP:
    context = ssl.create_default_context()
    if relay.security == "tls":
        return smtplib.SMTP_SSL(relay.host, relay.port, timeout=SECONDS, context=context)
    smtp = smtplib.SMTP(relay.host, relay.port, timeout=SECONDS)
    if relay.security == "starttls":
        try:
            smtp.starttls(context=context)
        except BaseException:
            smtp.close()
            raise
    return smtp
