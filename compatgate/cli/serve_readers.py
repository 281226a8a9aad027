"""Read the values of settings of ``compatgate serve``; errors name the option or variable."""

from __future__ import annotations

import ipaddress
import re
from argparse import ArgumentTypeError
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput, quote_error
from compatgate.kit.cli.usage import ABOVE_0, bounded, bounded_seconds
from compatgate.kit.cluster_api import ClusterApi
from compatgate.kit.http.rate import Rate, parse_rate
from compatgate.kit.kubernetes import ClusterAccess

if TYPE_CHECKING:
    from compatgate.service.access.identity.settings import IdentitySettings
    from compatgate.service.gate.decisions.batch_store import CommitMode

LOOPBACK_SCOPES = "read,gate,plan"
LOCAL_PROXIES = ("127.0.0.1", "::1")
_NONE = "none"
port = bounded("a port, 0 to 65535", 0, 65535)
count = bounded("a number from 1 to 1024", 1, 1024)
"""Number of processes, threads or concurrent runs."""
seconds = bounded_seconds(" up to 120", ABOVE_0, 120)
_SHORTEST_SESSION_S = 60
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_ACCESS_HINT = "in-cluster in a pod with a service account token, or the path of a kubeconfig"


def size(text: str) -> int:
    """Read a size in bytes, with a unit or without."""
    number, unit = (text[:-1], text[-1:].lower()) if text[-1:].isalpha() else (text, "")
    if not number.isdecimal() or unit not in _UNITS or int(number) < 1:
        raise ArgumentTypeError(f"'{text}' is not a size in bytes, like 1048576, 512k or 8m")
    return int(number) * _UNITS[unit]


def scopes(text: str | None, field: str) -> frozenset[str] | None:
    """Read scopes of callers without a token; None: nothing is stated."""
    from compatgate.service.access.tokens.service import parse_scopes

    if text is None:
        return None
    if text in ("", _NONE):
        return frozenset()
    try:
        return parse_scopes(text)
    except BadInput as error:
        error.field = field
        raise


def commit(text: str | None, field: str) -> CommitMode:
    """Read how decisions are committed."""
    modes: dict[str, CommitMode] = {"sync": "sync", "async": "async"}
    stated = text or "sync"
    if stated not in modes:
        hint = f"one of {', '.join(modes)}"
        raise BadInput(f"{stated!r} is not a known value", field=field, value=stated, hint=hint)
    return modes[stated]


def stale(text: str, field: str) -> timedelta:
    """Read the greatest age of a snapshot; 0: none is used."""
    return timedelta(0) if text == "0" else parse_duration(text, field=field)


def session(text: str, field: str) -> timedelta:
    """Read the end of a session, at least a minute."""
    duration = parse_duration(text, field=field)
    if duration.total_seconds() < _SHORTEST_SESSION_S:
        raise BadInput("is too short", field=field, value=text, hint="at least 60s")
    return duration


def rate(text: str | None, field: str) -> Rate | None:
    """Read a limit; None: there is none."""
    return None if text in (None, _NONE) else parse_rate(text, field=field)


def proxies(texts: Sequence[str], field: str) -> tuple[str, ...]:
    """Read the addresses and networks of trusted proxies; every address is refused."""
    items = [item.strip() for text in texts for item in text.split(",")]
    if not items or items == [_NONE]:
        return () if items else LOCAL_PROXIES
    hint = "an address or a network, like 10.0.0.7 or 10.0.0.0/24"
    for item in items:
        try:
            is_all = ipaddress.ip_network(item).prefixlen == 0
        except ValueError as error:
            what = f"{item!r} is not a network: {quote_error(error)}"
            raise BadInput(what, field=field, value=item, hint=hint) from None
        if is_all:
            what = "every client could then state its own address"
            raise BadInput(what, field=field, value=item, hint=hint)
    return tuple(items)


def url(text: str | None, field: str) -> str:
    """Read the public URL of the service; empty without one."""
    if text and not re.fullmatch(r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?", text):
        raise BadInput("is not a URL", field=field, value=text, hint="like https://gate.example")
    return text or ""


def access(named: str | None, field: str) -> ClusterAccess | None:
    """Return the access to a cluster, after a check of its credentials; it is not asked."""
    if named is None:
        return None
    in_cluster = named == "in-cluster"
    access = ClusterAccess(None if in_cluster else named, in_cluster=in_cluster)
    api = ClusterApi(access)
    try:
        api.connect()
    except BadInput as error:
        if error.field == "--kubeconfig":
            error.hint = _ACCESS_HINT
        error.field, error.value = field, named
        raise
    api.close()
    return access


def issuers(path: str | None, field: str) -> IdentitySettings:
    """Read the file of issuers that vouch for people and jobs."""
    from compatgate.service.access.identity.settings import IdentitySettings
    from compatgate.service.access.identity.settings_file import read_settings

    return read_settings(path, field) if path else IdentitySettings()
