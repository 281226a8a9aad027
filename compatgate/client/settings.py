"""Say where the gate is, who asks, how long to wait, and when a request is tried again."""

from __future__ import annotations

import os
import random
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
from msgspec import Struct

from compatgate import __version__
from compatgate.client.request import PREFIX, Request
from compatgate.errors import BadInput

SERVER = "COMPATGATE_SERVER"
TOKEN = "COMPATGATE_TOKEN"  # noqa: S105 - the name of a variable
TIMEOUT_S = 10.0
_LARGEST_PORT = 65535
Verify = bool | str | Path | ssl.SSLContext


class Retries(Struct, frozen=True):
    """How often, and after which pauses.

    Attributes:
        most: times that a request is tried again; 0: never.
        first_s: longest first pause; it doubles each time.
        longest_s: longest pause; a gate that asks for more (``Retry-After``) is not waited for.
    """

    most: int = 3
    first_s: float = 0.25
    longest_s: float = 30.0

    def pause(self, number: int, outcome: Outcome, *, repeatable: bool) -> float | None:
        """Return seconds until a request is tried again; None: what came of it stands.

        Args:
            number: times that it was tried.
            outcome: of the last.
            repeatable: it may have been carried out, and may be once more.
        """
        if number > self.most or not _may_pass(outcome, repeatable=repeatable):
            return None
        backoff = min(self.first_s * 2.0 ** (number - 1), self.longest_s)
        asked = _asked_for(outcome)
        if asked is not None and asked > self.longest_s:
            return None
        jittered = backoff * random.uniform(0.5, 1.0)  # noqa: S311 - to spread clients in time
        return max(jittered, asked or 0.0)


class Settings(Struct, frozen=True):
    """What every request of a client has in common.

    Attributes:
        base: of the gate, without ``/api/v1``.
        timeout_s: seconds to wait for the connection, and for each part of an answer.
    """

    base: str
    token: str | None
    timeout_s: float
    retries: Retries
    user_agent: str

    def prepare(self, request: Request[Any], if_none_match: str | None = None) -> dict[str, Any]:
        """Return a request as httpx takes it.

        Raises:
            BadInput: a value cannot be sent.
        """
        headers = {"Accept": request.accept, "User-Agent": self.user_agent}
        content = request.content()
        optional = {
            "Content-Type": None if content is None else request.media,
            "Authorization": f"Bearer {self.token}" if self.token else None,
            "If-Match": request.if_match,
            "If-None-Match": if_none_match,
        }
        headers |= {name: value for name, value in optional.items() if value is not None}
        return {
            "method": request.method,
            "url": self.base + request.url,
            "headers": headers,
            "content": content,
            "timeout": max(self.timeout_s, request.patience or 0.0),
        }


def make_settings(
    base_url: str | None,
    token: str | None,
    timeout_s: float,
    retries: Retries | int,
    user_agent: str | None,
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """Settings out of what a client was given; the environment says the rest.

    Raises:
        BadInput: no gate is named, or the URL, the token or the time is none.
    """
    url = base_url or environment.get(SERVER)
    if not url:
        raise BadInput("no gate is named", field="base_url", hint=f"give its URL, or set {SERVER}")
    return Settings(
        base_of(url),
        _token(token or environment.get(TOKEN) or None),
        _seconds(timeout_s),
        Retries(retries) if isinstance(retries, int) else retries,
        " ".join(part for part in (user_agent, f"compatgate/{__version__}") if part),
    )


def base_of(url: str) -> str:
    """Return a gate's URL without what every request adds to it.

    Raises:
        BadInput: not a URL, or one that holds a password.
    """
    from httpx import URL, InvalidURL

    try:
        read = URL(url) if url.startswith(("http://", "https://")) else None
    except InvalidURL:
        read = None
    usable = read is not None and read.host and (read.port or 0) <= _LARGEST_PORT
    if not usable or not url.isprintable() or set(url) & set(" ?#"):
        hint = "like https://gate.example"
        raise BadInput(f"'{url}' is not a URL", field="server", value=url, hint=hint)
    if read is not None and read.userinfo:  # is not shown: URLs come into logs and messages
        hint = f"give the token by itself: --token, or {TOKEN}"
        raise BadInput("the URL holds a user or password", field="server", hint=hint)
    return url.rstrip("/").removesuffix(PREFIX).rstrip("/")


def tls(base: str, verify: Verify) -> ssl.SSLContext | bool:
    """What a connection is verified with: the system's authorities, where nothing else is said.

    Args:
        base: of the gate; without TLS no authority is read.
        verify: False: nothing is; a path: authorities, as a PEM file or a folder of them.

    Raises:
        BadInput: there are none at that path.
    """
    if isinstance(verify, ssl.SSLContext):
        return verify
    if verify is False or base.startswith("http://"):
        return False
    if verify is True:
        return ssl.create_default_context()
    place = str(verify)
    try:
        if Path(place).is_dir():
            return ssl.create_default_context(capath=place)
        return ssl.create_default_context(cafile=place)
    except OSError as error:
        problem = f"cannot read the authorities in {place}: {error.strerror or error}"
        raise BadInput(problem, field="verify", value=place, hint="a file in PEM form") from None


def _token(token: str | None) -> str | None:
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        raise BadInput("is not an access token", field="token", hint="compatgate token create")
    return token


def _seconds(timeout_s: float) -> float:
    if not 0 < timeout_s < float("inf"):
        raise BadInput("must be more than 0 seconds", field="timeout", value=timeout_s)
    return timeout_s


Outcome = httpx.Response | httpx.HTTPError
TOO_MANY_REQUESTS = 429
UNAVAILABLE = 503


def _may_pass(outcome: Outcome, *, repeatable: bool) -> bool:
    """Return whether trying again may help, and can do no harm."""
    if isinstance(outcome, httpx.Response):
        refused = outcome.status_code == TOO_MANY_REQUESTS
        return refused or (repeatable and outcome.status_code == UNAVAILABLE)
    if isinstance(outcome, httpx.ConnectError):
        return "[SSL" not in str(outcome)
    if isinstance(outcome, httpx.ConnectTimeout | httpx.PoolTimeout):
        return True
    broken = httpx.TimeoutException | httpx.NetworkError | httpx.RemoteProtocolError
    return repeatable and isinstance(outcome, broken)


def _asked_for(outcome: Outcome) -> float | None:
    """Return the pause that ``Retry-After`` asks for: seconds, or a date."""
    headers = getattr(outcome, "headers", {})
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max((when - datetime.now(UTC)).total_seconds(), 0.0)
