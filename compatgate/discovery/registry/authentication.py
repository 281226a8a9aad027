"""Find credentials as Docker does, and answer a registry's challenge with them.

Sources: docker/cli ``cli/config/configfile`` (``auths``, ``credsStore``, ``credHelpers``),
docker/docker-credential-helpers ``README.md`` (protocol), containers/image
``docs/containers-auth.json.5.md`` (places, keys with a path); RFC 9110 section 11 (challenges),
RFC 7617 (basic), distribution/distribution ``docs/content/spec/auth/token.md`` and ``oauth.md``
(bearer tokens).
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import zip_longest
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Struct

from compatgate.discovery.registry.image_spec import DOCKER_HUB, Reference, is_loopback
from compatgate.discovery.registry.limits import Deadline
from compatgate.errors import BadInput, Unavailable, quote_error
from compatgate.strict_json import DECODE_ERRORS

_HUB_KEY = "https://index.docker.io/v1/"
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_HELPER_SECONDS = 30.0
_LARGEST_FILE = 4 * 1024 * 1024
_TOKEN_USER = "<token>"  # noqa: S105 - the protocol's name for "the secret is a token"


class Credentials(Struct, frozen=True):
    """Credentials for a registry or its token service."""

    username: str = ""
    password: str = ""
    identity_token: str = ""

    def __repr__(self) -> str:
        return f"Credentials({self.username!r})"

    @property
    def basic(self) -> str:
        """Return the value of an ``Authorization`` header."""
        pair = f"{self.username}:{self.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"


def find_credentials(
    reference: Reference,
    deadline: Deadline,
    *,
    folder: str | None = None,
    helpers: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Credentials | None:
    """Return the credentials of the user's files and helpers for a registry; None without any.

    ``folder`` holds ``config.json``; None: the usual places, in their order.
    """
    environment = os.environ if environment is None else environment
    for path in [os.path.join(folder, "config.json")] if folder else _config_paths(environment):
        document = _read_file(path)
        if document is None:
            continue
        credentials = _find_in_document(document, path, reference, deadline, helpers)
        if credentials:
            return credentials
    return None


def _config_paths(environment: Mapping[str, str]) -> Iterator[str]:
    if path := environment.get("REGISTRY_AUTH_FILE"):
        yield path
    if folder := environment.get("DOCKER_CONFIG"):
        yield os.path.join(folder, "config.json")
        return
    if folder := environment.get("XDG_RUNTIME_DIR"):
        yield os.path.join(folder, "containers", "auth.json")
    if folder := environment.get("HOME"):
        yield os.path.join(folder, ".config", "containers", "auth.json")
        yield os.path.join(folder, ".docker", "config.json")


def _read_file(path: str) -> dict[str, Any] | None:
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST_FILE)
    except OSError:
        return None
    try:
        document = msgspec.json.decode(data) if data.strip() else {}
    except DECODE_ERRORS as error:
        raise BadInput(f"is not JSON: {quote_error(error)}", field=path) from None
    if not isinstance(document, dict):
        raise BadInput("is not an object", field=path)
    return document


def _find_in_document(
    document: dict[str, Any], path: str, reference: Reference, deadline: Deadline, helpers: bool
) -> Credentials | None:
    """Return credentials of the registry's helper, else the common store, else the file."""
    by_registry = document.get("credHelpers")
    helper = by_registry.get(reference.registry) if isinstance(by_registry, dict) else None
    helper = helper or document.get("credsStore")
    if helpers and isinstance(helper, str) and helper:
        found = _ask_helper(helper, path, reference, deadline)
        if found:
            return found
    auths = document.get("auths")
    if not isinstance(auths, dict):
        return None
    entries = {_strip_scheme(key): entry for key, entry in auths.items()}
    parts = [reference.registry, *reference.repository.split("/")]
    keys = ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]  # most specific first
    if reference.registry == DOCKER_HUB:
        keys += [_strip_scheme(_HUB_KEY), reference.host]
    for key in keys:
        entry = entries.get(key)
        if isinstance(entry, dict) and (found := _read_entry(entry, f"{path}: auths.{key}")):
            return found
    return None


def _strip_scheme(key: str) -> str:
    key = re.sub(r"^https?://", "", key).rstrip("/")
    return re.sub(r"/v[12]$", "", key)


def _read_entry(entry: dict[str, Any], where: str) -> Credentials | None:
    token = str(entry.get("identitytoken") or "")
    name, password = str(entry.get("username") or ""), str(entry.get("password") or "")
    if isinstance(entry.get("auth"), str) and entry["auth"]:
        try:
            pair = base64.b64decode(entry["auth"], validate=True).decode().rstrip("\0")
        except (binascii.Error, UnicodeDecodeError):
            raise BadInput("is not base64 of name:password", field=f"{where}.auth") from None
        name, colon, password = pair.partition(":")
        if not colon:
            raise BadInput("is not base64 of name:password", field=f"{where}.auth")
    return Credentials(name, password, token) if name or token else None


def _ask_helper(
    helper: str, path: str, reference: Reference, deadline: Deadline
) -> Credentials | None:
    """Ask ``docker-credential-NAME``; return None when it has no credentials for the registry."""
    if not _HELPER.fullmatch(helper):
        raise BadInput(f"{helper!r} is not the name of a credential helper", field=path)
    program = f"docker-credential-{helper}"
    server = _HUB_KEY if reference.registry == DOCKER_HUB else reference.registry
    try:
        result = subprocess.run(  # noqa: S603 - the user's own configuration names it
            [program, "get"],
            input=server.encode(),
            capture_output=True,
            timeout=max(0.1, min(_HELPER_SECONDS, deadline.left)),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = "did not answer" if isinstance(error, subprocess.TimeoutExpired) else "cannot be run"
        raise _helper_error(program, why, path) from None
    if result.returncode:
        said = (result.stdout + result.stderr).decode("utf-8", "replace").strip()
        if "not found" in said:  # "credentials not found in native keychain"
            return None
        raise _helper_error(program, f"failed: {said[:200]}", path)
    try:
        answer = msgspec.json.decode(result.stdout)
        name, secret = str(answer["Username"]), str(answer["Secret"])
    except (*DECODE_ERRORS, KeyError, TypeError):
        raise _helper_error(program, "did not answer with JSON", path) from None
    return Credentials(identity_token=secret) if name == _TOKEN_USER else Credentials(name, secret)


def _helper_error(program: str, why: str, path: str) -> Unavailable:
    hint = f"it is named in {path}; install it, or run docker login again"
    return Unavailable(f"the credential helper {program} {why}", field="image", hint=hint)


LARGEST_TOKEN = 1024 * 1024
_CHALLENGE = re.compile(r"(?:^|,)\s*(?P<scheme>[A-Za-z]+)\s+(?=[\w-]+\s*=)")
_PARAMETER = re.compile(r'([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')


class Challenge(Struct, frozen=True):
    """One challenge of a ``WWW-Authenticate`` header."""

    scheme: str
    parameters: dict[str, str] = {}


Fetcher = Callable[[str, dict[str, str], bytes | None], tuple[int, bytes]]
"""A function that fetches a small document by URL, headers and (for a POST) form."""


def parse_challenges(header: str) -> list[Challenge]:
    """Read a ``WWW-Authenticate`` header, which may hold several challenges."""
    starts = list(_CHALLENGE.finditer(header))
    challenges = []
    for match, following in zip_longest(starts, starts[1:]):
        text = header[match.end() : following.start() if following else len(header)]
        parameters = {
            name.lower(): re.sub(r"\\(.)", r"\1", quoted) or plain
            for name, quoted, plain in _PARAMETER.findall(text)
        }
        challenges.append(Challenge(match["scheme"].lower(), parameters))
    if not challenges and header.strip().lower() == "basic":
        challenges.append(Challenge("basic"))
    return challenges


def authorize(
    header: str,
    repository: str,
    credentials: Credentials | None,
    fetch: Fetcher,
    *,
    plain_http: frozenset[str] = frozenset(),
) -> str:
    """Answer a challenge.

    Return the value of an ``Authorization`` header. Hosts in ``plain_http`` may receive credentials
    without TLS, besides loopback.
    """
    challenges = {challenge.scheme: challenge for challenge in parse_challenges(header)}
    if bearer := challenges.get("bearer"):
        return f"Bearer {_fetch_token(bearer, repository, credentials, fetch, plain_http)}"
    if "basic" in challenges:
        if credentials is None or not credentials.username:
            raise access_error("the registry requires a name and a password")
        return credentials.basic
    raise access_error(f"the registry requires an unknown kind of authentication: {header[:100]!r}")


def access_error(problem: str) -> Unavailable:
    """Return the error for an image without permission to read."""
    return Unavailable(
        problem,
        field="image",
        hint="run docker login for the registry, or check the name of the image",
    )


def _fetch_token(
    challenge: Challenge,
    repository: str,
    credentials: Credentials | None,
    fetch: Fetcher,
    plain_http: frozenset[str],
) -> str:
    realm = challenge.parameters.get("realm", "")
    place = urlsplit(realm)
    safe = place.scheme == "https" or is_loopback(place.netloc) or place.netloc in plain_http
    if place.scheme not in ("http", "https") or not place.hostname:
        raise access_error(f"the registry names no token service: {realm[:100]!r}")
    if not safe:
        raise access_error(f"the registry's token service {place.netloc} does not use TLS")
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
        raise access_error("the registry's token service refuses these credentials")
    if status != 200:
        raise Unavailable(f"the token service {place.netloc} answers {status}", field="image")
    document = None
    with suppress(*DECODE_ERRORS):
        document = msgspec.json.decode(body)
    if isinstance(document, dict):
        token = document.get("token") or document.get("access_token")
        if isinstance(token, str) and re.fullmatch(r"[\x21-\x7e]+", token):
            return token
    raise Unavailable(f"the token service {place.netloc} returned no token", field="image")
