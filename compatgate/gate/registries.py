"""The registries and indexes that the gate may ask, and the private networks they may lead to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from urllib.parse import urlsplit

from msgspec import Struct

from compatgate.discovery.image import Reference, parse_reference
from compatgate.errors import BadInput


class Place(Struct, frozen=True):
    """A registry, or the repositories below a path in it.

    Attributes:
        host: as references write it, with its port; ``docker.io`` for Docker Hub.
        path: ``team``; empty: the whole registry.
    """

    host: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.host}/{self.path}" if self.path else self.host

    def holds(self, name: Reference) -> bool:
        """Whether an image is there."""
        if name.registry != self.host:
            return False
        return not self.path or f"{name.repository}/".startswith(f"{self.path}/")


def allowed(name: Reference, places: Iterable[Place]) -> bool:
    """Whether an image is in one of the places."""
    return any(place.holds(name) for place in places)


def parse_places(texts: Sequence[str], field: str) -> tuple[Place, ...]:
    """Read ``registry.example``, ``registry.example:5000/team``; several with commas.

    Args:
        texts: values of the option or variable.
        field: its name, for errors.

    Raises:
        BadInput: one is not ``HOST[:PORT][/PREFIX]``.
    """
    return tuple(dict.fromkeys(_parse(item, field) for item in _items(texts)))


def parse_indexes(texts: Sequence[str], field: str) -> tuple[str, ...]:
    """Read ``https://pypi.org/simple``; several with commas or spaces.

    Args:
        texts: values of the option or variable.
        field: its name, for errors.

    Raises:
        BadInput: one is no URL of an index; a password in it is not repeated.
    """
    found = []
    for item in _items(texts):
        try:
            parts = urlsplit(item)
            fits = parts.scheme in ("https", "http") and parts.hostname and parts.port != 0
        except ValueError:
            fits = False
        if not fits or parts.query or parts.fragment:
            shown = item.rpartition("@")[2][:200]
            hint = "like https://pypi.org/simple"
            raise BadInput("is not a URL of an index", field=field, value=shown, hint=hint)
        found.append(item.rstrip("/"))
    return tuple(dict.fromkeys(found))


def parse_networks(texts: Sequence[str], field: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Read ``10.20.0.0/16``, ``fd00::/8`` or one address; several with commas.

    Args:
        texts: values of the option or variable.
        field: its name, for errors.

    Raises:
        BadInput: one is no network.
    """
    found = []
    for item in _items(texts):
        try:
            found.append(ip_network(item))
        except ValueError as error:
            hint = "like 10.20.0.0/16 or fd00::/8"
            raise BadInput(f"not a network: {error}", field=field, value=item, hint=hint) from None
    return tuple(dict.fromkeys(found))


def _items(texts: Sequence[str]) -> list[str]:
    return [item for text in texts for item in re.split(r"[,\s]+", text.strip()) if item]


def _parse(item: str, field: str) -> Place:
    host, _, path = item.rstrip("/").partition("/")
    wrong = not re.search(r"[.:]|^localhost$", host)
    try:
        name = parse_reference(f"{host}/{path}/x:1" if path else f"{host}/x/x:1")
    except BadInput:
        wrong = True
    if wrong:
        hint = "HOST[:PORT][/PREFIX], like registry.example or registry.example:5000/team"
        raise BadInput(f"{item!r} is not a registry", field=field, value=item, hint=hint)
    return Place(name.registry, path)
