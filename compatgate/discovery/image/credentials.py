"""Docker's credential files and helpers.

Sources: docker/cli ``cli/config/configfile`` (``auths``, ``credsStore``, ``credHelpers``),
docker/docker-credential-helpers ``README.md`` (protocol), containers/image
``docs/containers-auth.json.5.md`` (places, keys with a path).
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from compatgate.discovery.image.deadline import Deadline
from compatgate.discovery.image.reference import DOCKER_HUB, Reference
from compatgate.errors import BadInput, Unavailable
from compatgate.not_json import NOT_JSON

_HUB_KEY = "https://index.docker.io/v1/"
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_HELPER_SECONDS = 30.0
_LARGEST = 4 * 1024 * 1024
_TOKEN_USER = "<token>"  # noqa: S105 - the protocol's name for "the secret is a token"


class Credentials(Struct, frozen=True):
    """What a registry, or its token service, is told.

    Attributes:
        identity_token: a refresh token, instead of name and password.
    """

    username: str = ""
    password: str = ""
    identity_token: str = ""

    def __repr__(self) -> str:
        return f"Credentials({self.username!r})"

    @property
    def basic(self) -> str:
        """Value of an ``Authorization`` header."""
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
    """What the user's files and helpers have for a registry; None without.

    Args:
        reference: the image that is to be read.
        deadline: helpers must answer before.
        folder: of ``config.json``; None: the usual places, in their order.
        helpers: whether helper programs may be run.
        environment: None: this process's.

    Raises:
        BadInput: a file is not JSON, or an entry is malformed.
        Unavailable: a helper that is configured cannot be run or fails.
    """
    environment = os.environ if environment is None else environment
    for path in [os.path.join(folder, "config.json")] if folder else _paths(environment):
        document = _read(path)
        if document is None:
            continue
        found = _from_document(document, path, reference, deadline, helpers)
        if found:
            return found
    return None


def _paths(environment: Mapping[str, str]) -> Iterator[str]:
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


def _read(path: str) -> dict[str, Any] | None:
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST)
    except OSError:
        return None
    try:
        document = msgspec.json.decode(data) if data.strip() else {}
    except NOT_JSON as error:
        raise BadInput(f"is not JSON: {error}", field=path) from None
    if not isinstance(document, dict):
        raise BadInput("is not an object", field=path)
    return document


def _from_document(
    document: dict[str, Any], path: str, reference: Reference, deadline: Deadline, helpers: bool
) -> Credentials | None:
    """A helper of this registry decides over the store for all, and that over what is written."""
    by_registry = document.get("credHelpers")
    helper = by_registry.get(reference.registry) if isinstance(by_registry, dict) else None
    helper = helper or document.get("credsStore")
    if helpers and isinstance(helper, str) and helper:
        found = _ask(helper, path, reference, deadline)
        if found:
            return found
    auths = document.get("auths")
    if not isinstance(auths, dict):
        return None
    entries = {_plain(key): entry for key, entry in auths.items()}
    for key in _keys(reference):
        entry = entries.get(key)
        if isinstance(entry, dict) and (found := _entry(entry, f"{path}: auths.{key}")):
            return found
    return None


def _keys(reference: Reference) -> Iterator[str]:
    """Keys that stand for a repository, the most specific first."""
    parts = reference.repository.split("/")
    for count in range(len(parts), -1, -1):
        yield "/".join([reference.registry, *parts[:count]])
    if reference.registry == DOCKER_HUB:
        yield _plain(_HUB_KEY)
        yield reference.host


def _plain(key: str) -> str:
    """A key without scheme, and without the API's path."""
    key = re.sub(r"^https?://", "", key).rstrip("/")
    return re.sub(r"/v[12]$", "", key)


def _entry(entry: dict[str, Any], where: str) -> Credentials | None:
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


def _ask(helper: str, path: str, reference: Reference, deadline: Deadline) -> Credentials | None:
    """Ask ``docker-credential-NAME``; None when it has nothing for this registry."""
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
    except (*NOT_JSON, KeyError, TypeError):
        raise _helper_error(program, "did not answer with JSON", path) from None
    return Credentials(identity_token=secret) if name == _TOKEN_USER else Credentials(name, secret)


def _helper_error(program: str, why: str, path: str) -> Unavailable:
    hint = f"it is named in {path}; install it, or run docker login again"
    return Unavailable(f"the credential helper {program} {why}", field="image", hint=hint)
