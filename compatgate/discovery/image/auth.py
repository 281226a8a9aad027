"""Authorisation: from a registry's challenge to a header.

Sources: RFC 9110 section 11 (challenges), RFC 7617 (basic), distribution/distribution
``docs/content/spec/auth/token.md`` and ``oauth.md`` (bearer tokens).
"""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Protocol
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Struct

from compatgate.discovery.image.credentials import Credentials
from compatgate.discovery.image.reference import is_loopback
from compatgate.errors import Unavailable
from compatgate.not_json import NOT_JSON

LARGEST_ANSWER = 1024 * 1024
_CHALLENGE = re.compile(r"(?:^|,)\s*(?P<scheme>[A-Za-z]+)\s+(?=[\w-]+\s*=)")
_PARAMETER = re.compile(r'([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')


class Challenge(Struct, frozen=True):
    """One challenge of a ``WWW-Authenticate`` header.

    Attributes:
        scheme: in lower case.
    """

    scheme: str
    parameters: dict[str, str] = {}


class Fetch(Protocol):
    """Fetches a small document: body by URL, headers and (for a POST) form."""

    def __call__(self, url: str, headers: dict[str, str], form: bytes | None) -> tuple[int, bytes]:
        """Status and body."""


def parse_challenges(header: str) -> list[Challenge]:
    """Read a ``WWW-Authenticate`` header, which may hold several challenges."""
    starts = list(_CHALLENGE.finditer(header))
    found = []
    for match, following in zip_longest(starts, starts[1:]):
        text = header[match.end() : following.start() if following else len(header)]
        parameters = {
            name.lower(): re.sub(r"\\(.)", r"\1", quoted) or plain
            for name, quoted, plain in _PARAMETER.findall(text)
        }
        found.append(Challenge(match["scheme"].lower(), parameters))
    if not found and header.strip().lower() == "basic":
        found.append(Challenge("basic"))
    return found


def authorize(
    header: str,
    repository: str,
    credentials: Credentials | None,
    fetch: Fetch,
    *,
    plain_http: frozenset[str] = frozenset(),
) -> str:
    """Answer a challenge.

    Args:
        header: ``WWW-Authenticate`` of the refusal.
        repository: to be pulled.
        credentials: of the registry; None: it is asked as anybody.
        fetch: how the token service is asked.
        plain_http: hosts that may be told credentials without TLS, besides loopback.

    Returns:
        Value of an ``Authorization`` header.

    Raises:
        Unavailable: credentials are missing or refused, or the challenge is of no known kind.
    """
    challenges = {challenge.scheme: challenge for challenge in parse_challenges(header)}
    if bearer := challenges.get("bearer"):
        return f"Bearer {_token(bearer, repository, credentials, fetch, plain_http)}"
    if "basic" in challenges:
        if credentials is None or not credentials.username:
            raise refused("the registry asks for a name and a password")
        return credentials.basic
    raise refused(f"the registry asks for an unknown kind of authentication: {header[:100]!r}")


def refused(problem: str) -> Unavailable:
    """The error for an image that one is not allowed to read."""
    return Unavailable(
        problem, field="image", hint="run docker login for it, or check the name of the image"
    )


def _token(
    challenge: Challenge,
    repository: str,
    credentials: Credentials | None,
    fetch: Fetch,
    plain_http: frozenset[str],
) -> str:
    realm = challenge.parameters.get("realm", "")
    place = urlsplit(realm)
    safe = place.scheme == "https" or is_loopback(place.netloc) or place.netloc in plain_http
    if place.scheme not in ("http", "https") or not place.hostname:
        raise refused(f"the registry names no token service: {realm[:100]!r}")
    if not safe:
        raise refused(f"the registry's token service {place.netloc} does not use TLS")
    query = {
        "service": challenge.parameters.get("service", ""),
        "scope": challenge.parameters.get("scope") or f"repository:{repository}:pull",
    }
    query = {name: value for name, value in query.items() if value}
    if credentials and credentials.identity_token:
        form = {
            **query,
            "grant_type": "refresh_token",
            "client_id": "compatgate",
            "refresh_token": credentials.identity_token,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        status, body = fetch(realm, headers, urlencode(form).encode())
    else:
        headers = {"Authorization": credentials.basic} if credentials else {}
        joint = "&" if place.query else "?"
        status, body = fetch(f"{realm}{joint}{urlencode(query)}", headers, None)
    if status in (401, 403):
        raise refused("the registry's token service refuses these credentials")
    if status != 200:
        raise Unavailable(f"the token service {place.netloc} answers {status}", field="image")
    return _read_token(body, place.netloc)


def _read_token(body: bytes, service: str) -> str:
    try:
        document = msgspec.json.decode(body)
    except NOT_JSON:
        document = None
    if isinstance(document, dict):
        token = document.get("token") or document.get("access_token")
        if isinstance(token, str) and re.fullmatch(r"[\x21-\x7e]+", token):
            return token
    raise Unavailable(f"the token service {service} answers without a token", field="image")
