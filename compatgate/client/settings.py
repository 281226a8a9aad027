"""Configure a client: URL, token, timeout and retries; keep the sessions of ``compatgate login``.

A file for each gate, which only its owner reads, holds a session.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
from msgspec import Struct

from compatgate import version
from compatgate.client.request import PREFIX, Request
from compatgate.errors import BadInput, quote_error
from compatgate.kit.clock import is_past
from compatgate.kit.files import replacing

SERVER = "COMPATGATE_SERVER"
TOKEN = "COMPATGATE_TOKEN"  # noqa: S105 - the name of a variable
TIMEOUT_S = 10.0
_LARGEST_PORT = 65535
Verify = bool | str | Path | ssl.SSLContext
Outcome = httpx.Response | httpx.HTTPError
TOO_MANY_REQUESTS = 429
UNAVAILABLE = 503


class Retries(Struct, frozen=True):
    """Number of retries, and their longest pauses in seconds; the first doubles each time.

    If ``Retry-After`` is longer than the longest pause, the request is not retried.
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
    """Settings of all requests of a client; ``base``: URL of the gate, without ``/api/v1``.

    ``timeout_s``: seconds to wait for the connection, and for each part of an answer.
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
        raise BadInput(what, field="base_url", hint=f"give the URL of a gate, or set {SERVER}")
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


class Credential(Struct, frozen=True, forbid_unknown_fields=True):
    """A session at a gate.

    Attributes:
        server: URL of the gate, without ``/api/v1``.
        secret: sent as the bearer token.
        session: id of the session.
        name: of the person, as the gate's logs show it.
        expires_at: absolute end.
    """

    server: str
    secret: str
    session: str
    name: str
    expires_at: datetime

    def __repr__(self) -> str:
        """Return the object without its secret, because errors and logs show objects."""
        return f"Credential({self.server!r}, {self.name!r})"


def credential_path(server: str) -> Path:
    """Return the file for a gate."""
    from platformdirs import user_config_path

    folder = user_config_path("compatgate") / "credentials"
    name = re.sub(r"[^A-Za-z0-9.-]+", "_", server.partition("://")[2])[:100]
    return folder / f"{name}-{hashlib.sha256(server.encode()).hexdigest()[:12]}.json"


def store_credential(credential: Credential) -> Path:
    """Write the credential of a gate with mode 0600, in place of an earlier one."""
    path = credential_path(credential.server)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.parent.chmod(0o700)
        with replacing(path) as file:  # with mode 0600
            file.write(msgspec.json.encode(credential))
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}", field="credentials") from None
    return path


def load_credential(server: str) -> Credential | None:
    """Return the credential of a gate; None: there is none, or it has expired."""
    path = credential_path(server)
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            found = msgspec.json.decode(file.read(65536), type=Credential)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if mode & 0o077:
        hint = f"chmod 600 {path}"
        raise BadInput(f"{path} is readable by other users", field="credentials", hint=hint)
    return None if found.server != server or is_past(found.expires_at) else found


def remove_credential(server: str) -> None:
    """Remove the credential of a gate, if there is one."""
    with suppress(OSError):
        credential_path(server).unlink()
