"""Bound the reading of an image: options, limits, one deadline, and errors for exceeding them.

The deadline is one time limit for everything, whatever the registry does.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network
from typing import Literal, TypeVar
from weakref import WeakSet

import msgspec
from msgspec import Struct

from compatgate.core.facts.nvidia import CudaArch
from compatgate.core.facts.packages import NO_KNOWN_PACKAGES, Packages
from compatgate.errors import (
    BadInput,
    DamagedContent,
    RegistryTimeout,
    RequestTooLarge,
    quote_error,
)
from compatgate.strict_json import DECODE_ERRORS

T = TypeVar("T")
Layers = Literal["auto", "all", "none"]
MIRRORS = "COMPATGATE_REGISTRY_MIRRORS"
CA_FILE = "COMPATGATE_REGISTRY_CA"
GIB = 1024**3


class Limits(Struct, frozen=True):
    """Limits on an image; a larger image counts as hostile.

    The ``ratio`` of decompressed to compressed bytes is checked from ``ratio_from`` bytes of a
    layer on, since small layers of zeros are harmless and compress a thousandfold. ``remembered``
    are paths that may hide others (1,000,000 take some 80 MB), ``window`` the bytes of the largest
    zstd window.
    """

    unpacked: int = 256 * GIB
    ratio: int = 200
    ratio_from: int = 4 * GIB
    layers: int = 512
    members: int = 20_000_000
    wanted: int = 200_000
    remembered: int = 1_000_000
    whiteouts: int = 200_000
    window: int = 64 * 1024**2


class ImageOptions(Struct, frozen=True):
    """Settings for `read_image`.

    Reading stops when each component that it ``needs`` was found in a layer. ``mirrors`` are base
    URLs that are tried first, ``plain_http`` registries without TLS besides loopback. Without
    ``internal``, redirects and token services may be at public addresses, those of ``networks`` and
    the registry's own alone. ``leads`` are hosts that a redirect may lead to (None: any).
    ``docker_config`` is the folder of Docker's ``config.json``; ``cache`` that of earlier readings,
    None disables it.
    """

    layers: Layers = "auto"
    needs: tuple[str, ...] = ()
    mirrors: Mapping[str, tuple[str, ...]] = {}
    plain_http: frozenset[str] = frozenset()
    unverified_tls: frozenset[str] = frozenset()
    ca_file: str | None = None
    registries: frozenset[str] | None = None
    internal: bool = True
    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    leads: frozenset[str] | None = None
    docker_config: str | None = None
    helpers: bool = True
    cache: str | None = None
    arch_facts: CudaArch | None = None
    packages: Packages = NO_KNOWN_PACKAGES
    limits: Limits = Limits()


def read_options(
    environment: Mapping[str, str] | None = None, *, cache: str | None = None
) -> ImageOptions:
    """Return the options of ``COMPATGATE_REGISTRY_MIRRORS`` and ``COMPATGATE_REGISTRY_CA``."""
    environment = os.environ if environment is None else environment
    return ImageOptions(
        mirrors=parse_mirrors(environment.get(MIRRORS, "")),
        ca_file=environment.get(CA_FILE) or None,
        cache=cache,
    )


def parse_mirrors(text: str) -> dict[str, tuple[str, ...]]:
    """Read ``docker.io=https://mirror.example,docker.io=http://localhost:5001``."""
    mirrors: dict[str, tuple[str, ...]] = {}
    for item in re.split(r"[,\s]+", text.strip()):
        registry, equals, url = item.partition("=")
        if not item:
            continue
        if not equals or not registry or not re.match(r"https?://[^/?#\s]+", url):
            hint = "like docker.io=https://mirror.example"
            raise BadInput(f"{item!r} is not REGISTRY=URL", field=MIRRORS, value=item, hint=hint)
        mirrors[registry] = (*mirrors.get(registry, ()), url.rstrip("/"))
    return mirrors


class Deadline:
    """A time limit that also ends waiting for a socket.

    A socket's own timeout restarts with every byte; a server that sends one byte a second would
    never reach it. At the deadline every watched socket is shut down, so that its reader continues
    at once.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._shut)
        self._timer.daemon = True

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    @property
    def left(self) -> float:
        """Return the remaining seconds, never less than 0."""
        return max(0.0, self._end - time.monotonic())

    def check(self, what: str) -> None:
        """Raise an error once the deadline has passed."""
        if not self.left:
            raise self.error(what)

    def error(self, what: str) -> RegistryTimeout:
        """Return the error for a deadline that has passed."""
        return RegistryTimeout(
            f"{what} took longer than the allowed {self.seconds:g} seconds",
            field="image",
            hint="allow more time, or use a nearer registry or mirror",
        )

    def watch(self, sock: socket.socket) -> None:
        """Shut this socket down at the deadline."""
        with self._lock:
            self._sockets.add(sock)
        if not self.left:
            self._shut()

    def _shut(self) -> None:
        with self._lock:
            for sock in list(self._sockets):
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue


def decode_content(data: bytes, kind: type[T], what: str) -> T:
    """Decode JSON of an image or artifact."""
    try:
        return msgspec.json.decode(data, type=kind)
    except DECODE_ERRORS as error:
        raise damaged_error(f"{what} cannot be read: {quote_error(error)}") from None


def damaged_error(problem: str) -> DamagedContent:
    """Return the error for bytes that do not match their digest or size."""
    hint = "nothing was stored; push the image again, or check the mirror or proxy"
    return DamagedContent(problem, field="image", hint=hint)


def too_large_error(problem: str) -> RequestTooLarge:
    """Return the error for an image that exceeds the limits."""
    return RequestTooLarge(problem, field="image", hint="nothing was stored")
