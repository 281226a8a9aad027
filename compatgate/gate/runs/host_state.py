"""How a staging host stands. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

import msgspec
from msgspec import Struct

from compatgate.canary.hosts import Quiet
from compatgate.canary.quiet import is_quiet
from compatgate.errors import BadInput
from compatgate.store.run_rows import HostRow

SILENT = timedelta(minutes=2)
"""Workers say every ten seconds which hosts they serve; after so long a silence one is stale."""


class HostState(Struct, frozen=True):
    """How a host stands, and why in one line."""

    name: Literal["ready", "busy", "quiet", "stale", "unknown"]
    why: str = ""


def hours_of(host: HostRow) -> list[Quiet]:
    """When a host takes no new run."""
    return msgspec.convert(host.quiet, list[Quiet])


def state_of(host: HostRow, now: datetime) -> HostState:
    """How a host stands.

    Args:
        host: with the slots that runs have.
        now: aware.
    """
    if host.busy >= host.slots:
        return HostState("busy", "runs have all of its slots")  # a full worker says nothing new
    if now - host.seen_at > SILENT:
        why = "its worker is silent, or cannot reach it: no run begins here"
        return HostState("stale", why)
    try:
        quiet = is_quiet(hours_of(host), now)
    except BadInput:
        return HostState("unknown", "its quiet hours cannot be read")
    if quiet:
        return HostState("quiet", "it takes no new run in its quiet hours")
    return HostState("busy", "runs have some of its slots") if host.busy else HostState("ready")


def in_words(quiet: Quiet) -> str:
    """``20:00 to 06:00 Europe/Berlin, every day``."""
    days = ", ".join(quiet.days) or "every day"
    return f"{quiet.start} to {quiet.end} {quiet.timezone}, {days}"
