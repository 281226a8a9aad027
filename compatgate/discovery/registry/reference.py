"""Parse image references: ``registry.example:5000/team/app:1.2@sha256:...``.

Source: distribution/reference, ``reference.go`` (grammar) and ``normalize.go`` (Docker Hub's
defaults).
"""

from __future__ import annotations

import re
from ipaddress import ip_address

from msgspec import Struct

from compatgate.errors import BadInput

DOCKER_HUB = "docker.io"
_DOCKER_HUB_HOST = "registry-1.docker.io"
_DOCKER_HUB_ALIASES = (DOCKER_HUB, "index.docker.io", _DOCKER_HUB_HOST)
_LONGEST = 4096
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*", re.ASCII)
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:]+\])(?::(\d{{1,5}}))?", re.ASCII)
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")


class Reference(Struct, frozen=True):
    """An image in a registry.

    Attributes:
        registry: as written, with its port; ``docker.io`` when none is.
        repository: repository, as ``library/ubuntu``.
        tag: ``latest`` when neither tag nor digest is written; None with a digest alone.
        digest: ``sha256:...``; decides over the tag.
    """

    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    @property
    def host(self) -> str:
        """Return the registry's host with its port."""
        return _DOCKER_HUB_HOST if self.registry == DOCKER_HUB else self.registry

    @property
    def locator(self) -> str:
        """Return the digest, else the tag, which names the manifest."""
        return self.digest or self.tag or "latest"

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.registry}/{self.repository}{tag}{digest}"


def parse_reference(text: str) -> Reference:
    """Read an image reference.

    Args:
        text: ``pytorch/pytorch:2.4.1-cuda12.4-cudnn9-runtime``, ``localhost:5000/app@sha256:...``.

    Raises:
        BadInput: the text is not a reference; the message names the wrong part.
    """
    rest = text.strip().removeprefix("docker://")
    if not rest:
        raise _bad(text, "is empty")
    if "://" in rest or len(rest) > _LONGEST or any(c in rest for c in " \t\n${}<>"):
        raise _bad(text, "is not an image reference")
    rest, at, digest = rest.partition("@")
    if at and not is_digest(digest):
        raise _bad(text, f"{digest!r} is not a digest", "a digest is sha256: and 64 digits")
    head, slash, tail = rest.partition("/")
    named = bool(slash) and ("." in head or ":" in head or head == "localhost" or head[:1] == "[")
    registry, path = (head, tail) if named else (DOCKER_HUB, rest)
    path, colon, tag = path.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise _bad(text, f"{tag!r} is not a tag")
    if path.lower() != path:
        raise _bad(text, "a repository's name is in lower case")
    if not _PATH.fullmatch(path):
        raise _bad(text, f"{path!r} is not a repository's name")
    if registry.lower() in _DOCKER_HUB_ALIASES:
        registry, path = DOCKER_HUB, path if "/" in path else f"library/{path}"
    _check_host(text, registry)
    return Reference(registry, path, tag or (None if digest else "latest"), digest or None)


def is_digest(text: str) -> bool:
    """Return whether the text is a digest of a supported algorithm."""
    return _DIGEST.fullmatch(text) is not None


def is_loopback(host: str) -> bool:
    """Return whether a host, with or without port, is this machine; Docker uses HTTP there."""
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) and host[-1] != "]" else host
    name = name.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _check_host(text: str, registry: str) -> None:
    match = _HOST.fullmatch(registry)
    if not match:
        raise _bad(text, f"{registry!r} is not a registry's name")
    if match[1] and not 0 < int(match[1]) < 65536:
        raise _bad(text, f"{match[1]} is not a port")


def _bad(text: str, problem: str, hint: str = "") -> BadInput:
    example = "like registry.example/team/app:1.2 or app@sha256:..."
    shown = text if len(text) <= 200 else f"{text[:200]}..."
    return BadInput(f"{shown!r}: {problem}", field="image", value=shown, hint=hint or example)
