"""Manage channels and subscriptions, test a channel, and run the sending threads."""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import Page
from compatgate.service.notices import channels, outbox
from compatgate.service.notices.formats import Message
from compatgate.service.notices.models import (
    ChannelRow,
    DeliveryRow,
    NoticeFilter,
    SubscriptionRow,
)
from compatgate.service.notices.schemas import ChannelRequest, SubscriptionRequest
from compatgate.service.notices.senders import ENVIRONMENT, SECRETS, NoticeOptions, read_options
from compatgate.service.notices.service import IncidentService
from compatgate.service.notices.worker import NoticeWorker, Sender
from compatgate.service.webhooks.signatures import MIN_SECRET_BYTES

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_VARIABLE = re.compile(rf"{SECRETS}[A-Z0-9_]{{1,100}}")
_ADDRESS = re.compile(r"[^\s@,;<>\"]{1,64}@[^\s@,;<>\"]{1,189}")
_MAX_DIGEST = timedelta(days=7)
_DIGEST = timedelta(hours=1)
_MAX_CHANNELS = 200


class NoticeDesk:
    """The channels and subscriptions of one database.

    Args:
        database: open, with its schema.
        incidents: whose news are sent.

    Attributes:
        options: of the operator.
    """

    def __init__(self, database: Database, incidents: IncidentService) -> None:
        self._database = database
        self._incidents = incidents
        self._options: NoticeOptions | None = None
        self.sender = Sender(database, lambda: self.options)
        self._worker: NoticeWorker | None = None

    @property
    def options(self) -> NoticeOptions:
        """Return the operator's settings; those of the environment until a server has its own."""
        if self._options is None:
            self._options = read_options()
        return self._options

    @options.setter
    def options(self, options: NoticeOptions) -> None:
        self._options = options

    def start(self) -> None:
        """Survey and send in threads of this process."""
        self._worker = NoticeWorker(self._incidents, self.sender)
        self._worker.start()

    def close(self) -> None:
        """Stop the threads, if they run."""
        if self._worker is not None:
            self._worker.close()

    def list_channels(self) -> list[ChannelRow]:
        """Return the channels by name."""
        with self._database.reading() as session:
            return channels.load_channels(session)

    def show_channel(self, name: str) -> ChannelRow:
        """Return a channel.

        Raises:
            NotFound: there is none of that name.
        """
        with self._database.reading() as session:
            return channels.find_channel(session, name)

    def set_channel(
        self, name: str, wanted: ChannelRequest, *, by: str
    ) -> tuple[ChannelRow, str | None]:
        """Make or change a channel.

        Args:
            name: of the channel.
            wanted: kind, and where it leads.
            by: who does it.

        Returns:
            The channel, and its key if it was made here.

        Raises:
            BadInput: a bad name, URL, key or address.
        """
        check_name(name)
        secret, place, made = read_channel(wanted)
        row = ChannelRow(name, wanted.kind, place, clock.now(), by)
        with self._database.writing() as session:
            if len(channels.load_channels(session)) >= _MAX_CHANNELS:
                raise BadInput(f"too many channels: {_MAX_CHANNELS} exist already", field="name")
            channels.store_channel(session, row, secret)
        return row, made

    def delete_channel(self, name: str, *, by: str) -> ChannelRow:
        """Delete a channel and its deliveries; return the channel.

        Raises:
            NotFound: there is none of that name.
            Conflict: a subscription uses it.
        """
        with self._database.writing() as session:
            return channels.delete_channel(session, name, by=by, now=clock.now())

    def test_channel(self, name: str) -> DeliveryRow:
        """Send a test message to a channel now, once, and return what became of it.

        Raises:
            NotFound: there is none of that name.
        """
        now = clock.now()
        message = Message(outbox.make_id(now), None, "ticket", now, ())
        with self._database.working() as session:
            channels.find_channel(session, name)
            outbox.store_delivery(session, message, name, lease_until=now + outbox.LEASE)
        self.sender.deliver(name, message)
        with self._database.reading() as session:
            return outbox.find_delivery(session, message.id)

    def list_subscriptions(self) -> list[SubscriptionRow]:
        """Return the subscriptions by name."""
        with self._database.reading() as session:
            return channels.load_subscriptions(session)

    def show_subscription(self, name: str) -> SubscriptionRow:
        """Return a subscription.

        Raises:
            NotFound: there is none of that name.
        """
        with self._database.reading() as session:
            return channels.find_subscription(session, name)

    def set_subscription(
        self, name: str, wanted: SubscriptionRequest, *, by: str
    ) -> SubscriptionRow:
        """Make or change a subscription, and return it.

        Raises:
            BadInput: a bad name or digest.
            NotFound: the channel does not exist.
        """
        check_name(name)
        digest = timedelta(0) if wanted.urgency == "page" else _DIGEST
        if wanted.digest is not None:
            digest = parse_duration(wanted.digest, field="digest")
        if digest > _MAX_DIGEST:
            hint = f"at most {_MAX_DIGEST.days}d"
            raise BadInput("is too long", field="digest", value=wanted.digest, hint=hint)
        chosen = NoticeFilter(
            tuple(wanted.kinds),
            tuple(wanted.owners),
            wanted.labels,
            tuple(wanted.targets),
            wanted.level,
        )
        with self._database.writing() as session:
            channels.find_channel(session, wanted.channel)
            return channels.store_subscription(
                session,
                name,
                channel=wanted.channel,
                wanted=chosen,
                urgency=wanted.urgency,
                digest_s=int(digest.total_seconds()),
                by=by,
                now=clock.now(),
            )

    def delete_subscription(self, name: str, *, by: str) -> SubscriptionRow:
        """Delete a subscription and what waits for it; return the subscription.

        Raises:
            NotFound: there is none of that name.
        """
        with self._database.writing() as session:
            return channels.delete_subscription(session, name, by=by, now=clock.now())

    def list_deliveries(self, **filters: Any) -> Page[DeliveryRow]:
        """Return deliveries, the newest first; filters of `list_deliveries`."""
        with self._database.reading() as session:
            return outbox.list_deliveries(session, **filters)


def check_name(name: str) -> None:
    """Check the name of a channel or subscription.

    Raises:
        BadInput: another form.
    """
    if not _NAME.fullmatch(name):
        hint = "lower-case letters, digits, - and ., at most 63"
        raise BadInput("is not a valid name", field="name", value=name, hint=hint)


def read_channel(wanted: ChannelRequest) -> tuple[dict[str, Any], str, str | None]:
    """Return the secret of a channel, the place to show, and the key if one was made.

    Raises:
        BadInput: a bad URL, key or address; the message never holds a secret.
    """
    if wanted.kind == "email":
        if wanted.url or wanted.key:
            raise BadInput("does not apply to e-mail channels", field="url", hint="state `to`")
        return {"to": _read_addresses(wanted.to)}, ", ".join(wanted.to), None
    if wanted.to:
        raise BadInput("applies only to e-mail channels", field="to", hint="state `url`")
    url = wanted.url or ""
    place = _check_url(url, wanted.kind)
    if wanted.kind != "webhook":
        if wanted.key:
            what = f"{wanted.kind} does not check signatures"
            raise BadInput(what, field="key", hint="leave it out")
        return {"url": url}, place, None
    made = None if wanted.key else secrets.token_hex(32)
    key = wanted.key or made or ""
    _check_key(key)
    return {"url": url, "key": key}, place, made


def _read_addresses(given: Sequence[str]) -> list[str]:
    if not given:
        raise BadInput(
            "an e-mail channel needs at least one address",
            field="to",
            hint='for example ["oncall@example.com"]',
        )
    for one in given:
        if not _ADDRESS.fullmatch(one) or not one.isprintable() or not one.isascii():
            hint = "like oncall@example.com"
            raise BadInput("is not an e-mail address", field="to", value=one, hint=hint)
    return [*given]


def _check_variable(text: str, field: str) -> None:
    name = text.removeprefix(ENVIRONMENT)
    if not _VARIABLE.fullmatch(name):
        hint = f"variables begin with {SECRETS}"
        raise BadInput(
            "is not an environment variable that channels may use", field=field, hint=hint
        )


def _check_url(url: str, kind: str) -> str:
    """Check the URL of a receiver, and return the part to show."""
    if url.startswith(ENVIRONMENT):
        _check_variable(url, "url")
        url_now = os.environ.get(url.removeprefix(ENVIRONMENT), "")
        return _check_url(url_now, kind) if url_now else url
    hint = "https://HOST/PATH, without user and password"
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname or ""
    except ValueError:
        raise BadInput("is not a URL", field="url", hint=hint) from None
    schemes = ("https",) if kind != "webhook" and not _is_loopback(host) else ("https", "http")
    plain = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in schemes or not host or "@" in parts.netloc or not plain:
        raise BadInput("is not a webhook URL", field="url", hint=hint)
    name = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{name}" + (f":{port}" if port else "")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_key(key: str) -> None:
    if key.startswith(ENVIRONMENT):
        _check_variable(key, "key")
    elif len(key.encode("utf-8", "surrogatepass")) < MIN_SECRET_BYTES or not key.isprintable():
        hint = f"at least {MIN_SECRET_BYTES} bytes; openssl rand -hex 32 makes one"
        raise BadInput("is too short or not printable", field="key", hint=hint)
