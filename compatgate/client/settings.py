"""Configure a client: URL, token, timeout and retries."""

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

from compatgate import version
from compatgate.client.request import PREFIX, Request
from compatgate.errors import BadInput, quote_error

SERVER = "COMPATGATE_SERVER"
TOKEN = "COMPATGATE_TOKEN"  # noqa: S105 - the name of a variable
TIMEOUT_S = 10.0
_LARGEST_PORT = 65535
Verify = bool | str | Path | ssl.SSLContext
Outcome = httpx.Response | httpx.HTTPError
TOO_MANY_REQUESTS = 429
UNAVAILABLE = 503


class Retries(Struct, frozen=True):
    """Number and pauses of retries.

    Attributes:
        most: maximum number of retries; 0: none.
        first_s: maximum first pause in seconds; doubles each time.
        longest_s: maximum pause in seconds; if ``Retry-After`` is longer, do not retry.
    """

    most: int = 3
    first_s: float = 0.25
    longest_s: float = 30.0

    def pause(self, number: int, outcome: Outcome, *, repeatable: bool) -> float | None:
        """Return the seconds until the next retry; None: do not retry.

        ``repeatable`` tells whether a retry is safe even if the gate has handled the request.
        """
        if number > self.most or not _is_transient(outcome, repeatable=repeatable):
            return None
        backoff = min(self.first_s * 2.0 ** (number - 1), self.longest_s)
        asked = _retry_after(outcome)
        if asked is not None and asked > self.longest_s:
            return None
        jittered = backoff * random.uniform(0.5, 1.0)  # noqa: S311 - to spread clients in time
        return max(jittered, asked or 0.0)


class Settings(Struct, frozen=True):
    """Settings of all requests of a client.

    Attributes:
        base: URL of the gate, without ``/api/v1``.
        timeout_s: seconds to wait for the connection, and for each part of an answer.
    """

    base: str
    token: str | None
    timeout_s: float
    retries: Retries
    user_agent: str

    def prepare(self, request: Request[Any], if_none_match: str | None = None) -> dict[str, Any]:
        """Return a request in the form of httpx."""
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
    """Make settings of a client's arguments; the environment gives the rest."""
    url = base_url or environment.get(SERVER)
    if not url:
        what = "no gate URL is given"
        hint = f"give the URL of a gate, or set {SERVER}"
        raise BadInput(what, field="base_url", hint=hint)
    if not 0 < timeout_s < float("inf"):
        raise BadInput("must be more than 0 seconds", field="timeout", value=timeout_s)
    token = token or environment.get(TOKEN) or None
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        hint = "create a token: compatgate token create"
        raise BadInput("is not an access token", field="token", hint=hint)
    return Settings(
        base_of(url),
        token,
        timeout_s,
        Retries(retries) if isinstance(retries, int) else retries,
        " ".join(part for part in (user_agent, f"compatgate/{version()}") if part),
    )


def base_of(url: str) -> str:
    """Return a gate's URL without the API prefix; refuse one with a password."""
    from httpx import URL, InvalidURL

    try:
        read = URL(url) if url.startswith(("http://", "https://")) else None
    except InvalidURL:
        read = None
    usable = read is not None and read.host and (read.port or 0) <= _LARGEST_PORT
    if not usable or not url.isprintable() or set(url) & set(" ?#"):
        hint = "like https://gate.example"
        raise BadInput(f"'{url}' is not a URL", field="server", value=url, hint=hint)
    if read is not None and read.userinfo:  # not shown, because messages go to logs
        hint = f"use --token or {TOKEN}"
        raise BadInput("the URL contains a user or password", field="server", hint=hint)
    return url.rstrip("/").removesuffix(PREFIX).rstrip("/")


def tls(base: str, verify: Verify) -> ssl.SSLContext | bool:
    """Return the TLS context of a connection; by default with the system's authorities.

    A path names a PEM file or a folder of authorities; without TLS, none is read.
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
        problem = f"cannot read the authorities in {place}: {quote_error(error)}"
        raise BadInput(problem, field="verify", value=place, hint="a file in PEM form") from None


def _is_transient(outcome: Outcome, *, repeatable: bool) -> bool:
    """Tell whether a retry may help and is safe."""
    if isinstance(outcome, httpx.Response):
        refused = outcome.status_code == TOO_MANY_REQUESTS
        return refused or (repeatable and outcome.status_code == UNAVAILABLE)
    if isinstance(outcome, httpx.ConnectError):
        return "[SSL" not in str(outcome)
    if isinstance(outcome, httpx.ConnectTimeout | httpx.PoolTimeout):
        return True
    broken = httpx.TimeoutException | httpx.NetworkError | httpx.RemoteProtocolError
    return repeatable and isinstance(outcome, broken)


def _retry_after(outcome: Outcome) -> float | None:
    """Return the pause of ``Retry-After`` in seconds, from seconds or a date."""
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
