"""Describe how a person wants pages: theme, density, time zone, columns and views of lists.

The server applies all of it, so pages need no script. Pages read the preferences of the request
with `current_preferences`; whoever knows the caller says with `use_preferences` where they are
stored. Without that they are those of the browser, in a cookie.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Literal, get_args
from urllib.parse import unquote
from zoneinfo import ZoneInfo, available_timezones

import msgspec
from flask import g, has_request_context, request
from msgspec import Struct, field

from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput
from compatgate.kit import clock

Theme = Literal["auto", "light", "dark"]
Density = Literal["comfortable", "compact"]
THEMES: tuple[Theme, ...] = get_args(Theme)
DENSITIES: tuple[Density, ...] = get_args(Density)
BROWSER_ZONE = "browser"
"""The choice of the browser's own time zone, which a script tells in a cookie."""
ZONE_COOKIE = "compatgate_zone"
PREFERENCES_COOKIE = "compatgate_preferences"
MAX_VIEWS = 20
"""Maximum number of saved views of one list."""
MAX_VIEW_NAME = 60
MAX_VIEW_QUERY = 2000
_MAX_COOKIE = 3500
"""Bytes; browsers keep cookies of up to 4096 bytes with name and attributes."""
_LOADER = "load_preferences"
_KNOWN = "known_preferences"


class SavedView(Struct, frozen=True):
    """A named set of filters, order and columns of a list.

    Attributes:
        query: of the list's address, without the question mark.
    """

    name: str
    query: str


class Preferences(Struct, frozen=True, omit_defaults=True):
    """The preferences of a person.

    Attributes:
        zone: ``UTC``, ``browser``, or a name of the IANA time zone database.
        hidden: keys of the hidden columns, by the name of the table.
        views: saved views by the path of their list below ``/ui``.
        tour: step of the tour, from 1; 0: not begun; -1: over, or not wanted.
    """

    theme: Theme = "auto"
    density: Density = "comfortable"
    zone: str = "UTC"
    hidden: dict[str, tuple[str, ...]] = field(default_factory=dict)
    views: dict[str, tuple[SavedView, ...]] = field(default_factory=dict)
    tour: int = 0


DEFAULTS = Preferences()
_decode = msgspec.json.Decoder(Preferences).decode


def read_preferences(text: str | bytes) -> Preferences:
    """Parse stored preferences; those that cannot be read are the defaults."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return DEFAULTS


def write_preferences(chosen: Preferences) -> str:
    """Return preferences as JSON, without what is at its default."""
    return msgspec.json.encode(chosen).decode()


def pack_cookie(chosen: Preferences) -> str:
    """Return the value of the cookie that keeps preferences.

    Raises:
        BadInput: they are larger than a cookie.
    """
    packed = base64.urlsafe_b64encode(write_preferences(chosen).encode()).decode()
    if len(packed) > _MAX_COOKIE:
        hint = "sign in to keep more, or delete a view"
        raise BadInput("are too large for a browser cookie", field="preferences", hint=hint)
    return packed


def cookie_preferences() -> Preferences:
    """Return the preferences in the cookie of the request."""
    packed = request.cookies.get(PREFERENCES_COOKIE, "")[: _MAX_COOKIE + 1]
    try:
        return read_preferences(base64.urlsafe_b64decode(packed)) if packed else DEFAULTS
    except (binascii.Error, ValueError):
        return DEFAULTS


def use_preferences(load: Callable[[], Preferences]) -> None:
    """Say where the preferences of this request's caller are; they are loaded when needed."""
    g.pop(_KNOWN, None)
    setattr(g, _LOADER, load)


def current_preferences() -> Preferences:
    """Return the preferences of the request's caller; outside of a request, the defaults."""
    if not has_request_context():
        return DEFAULTS
    known: Preferences | None = g.get(_KNOWN)
    if known is None:
        load: Callable[[], Preferences] = g.get(_LOADER, cookie_preferences)
        known = load()
        setattr(g, _KNOWN, known)
    return known


@cache
def zone_names() -> tuple[str, ...]:
    """Return the names of time zones, in order, ``UTC`` first."""
    return ("UTC", *sorted(name for name in available_timezones() if "/" in name))


def check_zone(name: str) -> str:
    """Return the name of a time zone as it is stored.

    Raises:
        BadInput: the time zone does not exist.
    """
    if name == BROWSER_ZONE:
        return name
    by_folded = _folded_zones()
    if (found := by_folded.get(name.strip().casefold().replace(" ", "_"))) is not None:
        return found
    cities = {known.rpartition("/")[2].casefold(): known for known in by_folded.values()}
    hint = cities.get(name.strip().casefold().replace(" ", "_"))
    hint = f"did you mean {hint}?" if hint else suggest_name(name, zone_names())
    raise BadInput(
        "is not a time zone", field="zone", value=name, hint=hint or "a name like Europe/Berlin"
    )


@cache
def _folded_zones() -> Mapping[str, str]:
    return {name.casefold(): name for name in available_timezones()}


def current_zone() -> tuple[str, ZoneInfo | None]:
    """Return name and rules of the zone in which times are shown; no rules: UTC."""
    name = current_preferences().zone
    if name == BROWSER_ZONE:
        name = unquote(request.cookies.get(ZONE_COOKIE, ""))[:64] or "UTC"
    return _zone(name)


@cache
def _known_zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def _zone(name: str) -> tuple[str, ZoneInfo | None]:
    if name == "UTC" or name.casefold() not in _folded_zones():
        return "UTC", None
    known = _folded_zones()[name.casefold()]
    return known, _known_zone(known)


_OFFSET = re.compile(r"([+-]\d\d)(\d\d)$")


def local_time(when: datetime, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Format a time in the zone of the request's caller.

    The zone follows the time: ``UTC``, or its distance, as in ``2026-11-03 10:30:12 +01:00``. Names
    like CST stand for several zones, so none is used.

    Args:
        when: aware.
        form: of date and time.
    """
    _, zone = current_zone() if has_request_context() else ("UTC", None)
    if zone is None:
        return f"{when.astimezone(UTC):{form}} UTC"
    text = f"{when.astimezone(zone):{form} %z}"
    return _OFFSET.sub(r"\1:\2", text)


def both_times(when: datetime) -> str:
    """Format a time in the caller's zone and, where that is another one, in UTC."""
    local, utc = local_time(when), clock.readable(when)
    return local if local == utc else f"{local}, {utc}"
