"""Read theme and time zone of pages from the reader's cookie, and format times in that zone.

The server applies both, so pages need no script.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Literal, get_args
from urllib.parse import unquote
from zoneinfo import ZoneInfo, available_timezones

import msgspec
from flask import g, has_request_context, request
from msgspec import Struct

from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput
from compatgate.kit import clock

Theme = Literal["auto", "light", "dark"]
THEMES: tuple[Theme, ...] = get_args(Theme)
BROWSER_ZONE = "browser"
"""The choice of the browser's own time zone, which a script tells in a cookie."""
ZONE_COOKIE = "compatgate_zone"
PREFERENCES_COOKIE = "compatgate_preferences"
_KNOWN = "known_preferences"
_MAX_COOKIE = 4096
_OFFSET = re.compile(r"([+-]\d\d)(\d\d)$")


class Preferences(Struct, frozen=True, omit_defaults=True):
    """How pages look; ``zone`` is ``UTC``, ``browser`` or a name of the IANA database."""

    theme: Theme = "auto"
    zone: str = "UTC"


def pack_cookie(chosen: Preferences) -> str:
    """Return the value of the cookie that keeps preferences."""
    return base64.urlsafe_b64encode(msgspec.json.encode(chosen)).decode()


def current_preferences() -> Preferences:
    """Return the preferences of the request's cookie; the defaults without one that is valid."""
    if not has_request_context():
        return Preferences()
    known: Preferences | None = g.get(_KNOWN)
    if known is None:
        known = Preferences()
        if packed := request.cookies.get(PREFERENCES_COOKIE, "")[:_MAX_COOKIE]:
            try:
                body = base64.urlsafe_b64decode(packed)
                known = msgspec.json.decode(body, type=Preferences)
            except (ValueError, msgspec.MsgspecError):
                pass
        setattr(g, _KNOWN, known)
    return known


@cache
def zone_names() -> tuple[str, ...]:
    """Return the names of time zones, in order, ``UTC`` first."""
    return ("UTC", *sorted(name for name in available_timezones() if "/" in name))


@cache
def _folded_zones() -> Mapping[str, str]:
    return {name.casefold(): name for name in available_timezones()}


def check_zone(name: str) -> str:
    """Return the name of a time zone as it is stored."""
    if name == BROWSER_ZONE:
        return name
    folded = name.strip().casefold().replace(" ", "_")
    if (zone := _folded_zones().get(folded)) is not None:
        return zone
    cities = {known.rpartition("/")[2].casefold(): known for known in _folded_zones().values()}
    city = cities.get(folded)
    hint = f"did you mean {city}?" if city else suggest_name(name, zone_names())
    hint = hint or "a name like Europe/Berlin"
    raise BadInput("is not a time zone", field="zone", value=name, hint=hint)


def current_zone() -> tuple[str, ZoneInfo | None]:
    """Return name and rules of the zone in which times are shown; no rules: UTC."""
    name = current_preferences().zone
    if name == BROWSER_ZONE:
        name = unquote(request.cookies.get(ZONE_COOKIE, ""))[:64]
    zone = _folded_zones().get(name.casefold(), "UTC")
    return (zone, ZoneInfo(zone)) if zone != "UTC" else ("UTC", None)


def local_time(when: datetime, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Format an aware time in the zone of the request's caller.

    The zone follows the time: ``UTC``, or its distance, as in ``2026-11-03 10:30:12 +01:00``. Names
    like CST stand for several zones, so none is used.
    """
    _, zone = current_zone()
    if zone is None:
        return f"{when.astimezone(UTC):{form}} UTC"
    text = f"{when.astimezone(zone):{form} %z}"
    return _OFFSET.sub(r"\1:\2", text)


def both_times(when: datetime) -> str:
    """Format a time in the caller's zone and, where that is another one, in UTC."""
    local, utc = local_time(when), clock.readable(when)
    return local if local == utc else f"{local}, {utc}"
