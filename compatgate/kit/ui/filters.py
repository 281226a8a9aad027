"""Format values for pages: times, numbers, digests.

Theme and time zone come from the reader's cookie; the server applies both, so pages need no script.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from functools import cache
from typing import Any, Literal, get_args
from urllib.parse import unquote
from zoneinfo import ZoneInfo, available_timezones

import msgspec
from flask import g, has_request_context, request
from markupsafe import Markup
from msgspec import Struct

from compatgate.core.components import COMPONENTS
from compatgate.core.vocabulary import ALIASES
from compatgate.discovery.stated_stack import describe_contents
from compatgate.documents.quantities import describe_seconds
from compatgate.documents.sources import suggest_name
from compatgate.documents.text import to_yaml
from compatgate.errors import BadInput
from compatgate.kit import clock

_NAMES = {"compatgate", *COMPONENTS, *ALIASES}
_PARTS = ("driver", "entry", "kernel", "stack", "canary", "persistence")
"""Parts that rules speak of, and that no program or package is called."""
_WORD = re.compile(r"[a-z]+(?![\w.,+=/@-])")
_STEPS = ((60, "s", 1), (3600, "min", 60), (86400, "h", 3600))
_STATUSES = {
    "✓": "pass, active, passed, blessed, ready, approved, allowed, ok, same, healthy",
    "-": "expired, not-checked, cancelled, replaced",
    "!": "warn, error, suspect, shared, warning, stale, away",
    "▾": "deprecated",
    "?": "inconclusive, unknown, no-baseline, not measured",
    "~": "waived",
    "○": "candidate, waiting, queued, proposed",
    "✕": "fail, failed, denied, revoked, timeout, regression, sick, fatal, refused",
    "⊘": "incompatible",
    "·": "elsewhere",
    "▸": "leased, preparing, running, judging, busy",
    "▴": "improvement",
    "≠": "differs",
    "☾": "quiet",
}
"""Statuses by their mark, because colour alone is not accessible."""
_MARKS = {status: mark for mark, found in _STATUSES.items() for status in found.split(", ")}
_LONG_DIGEST = re.compile(r"((?:sha256:|\bvd_)[0-9a-f]{12})[0-9a-f]{8,}")
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


def to_moment(value: datetime | str | int | float | None) -> datetime | None:
    """Convert ISO text or seconds since the epoch to an aware time."""
    if value is None or isinstance(value, datetime):
        return value
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC)
    return clock.from_iso(value)


def format_age(value: datetime | str | int | float | None) -> Markup | str:
    """Format a time as ``3 h ago`` or ``in 12 d``, with the exact time as tool tip."""
    at = to_moment(value)
    if at is None:
        return "never"
    seconds = (clock.now() - at).total_seconds()
    reach = abs(seconds)
    steps = (one for one in _STEPS if reach < one[0])
    _, unit, size = next(steps, (None, "d", 86400))
    span = f"{math.floor(reach / size)} {unit}"
    text = f"{span} ago" if seconds >= 0 else f"in {span}"
    return _time(at, "now" if reach < 1 else text)


def format_time(value: datetime | str | int | float | None) -> Markup | str:
    """Format a time as ``2026-11-03 09:30:12 UTC``, or in the zone that the reader chose."""
    at = to_moment(value)
    return "" if at is None else _time(at, local_time(at))


def format_day(value: datetime | date | str | int | float | None) -> str:
    """Format the day of a time, in UTC, as ``2026-11-03``."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    at = to_moment(value)
    return "" if at is None else at.astimezone(UTC).date().isoformat()


def _time(at: datetime, text: str) -> Markup:
    exact = at.astimezone(UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        exact.isoformat(), both_times(exact), text
    )


def format_number(value: Any) -> str:
    """Format a number as ``12,345``; a fraction keeps four significant digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def component_label(component: str) -> str:
    """Return the display name of a component."""
    known = COMPONENTS.get(component)
    return known.label if known else component


def format_compact(value: dict[str, Any]) -> str:
    """Format a small object as ``target prod-a100, count 3``, without empty members."""
    shown = ((key, item) for key, item in value.items() if item not in (None, "", [], {}))
    return ", ".join(f"{key} {_inline(item)}" for key, item in shown)


def _inline(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(map(_inline, value))
    return f"({format_compact(value)})" if isinstance(value, dict) else str(value)


def count_things(number: int, thing: str) -> str:
    """Format a number with its noun: ``1 node``, ``2,000 nodes``, ``3 entries``."""
    if number == 1:
        return f"1 {thing}"
    ending = f"{thing[:-1]}ies" if thing.endswith("y") else f"{thing}s"
    return f"{format_number(number)} {ending}"


def count_rows(number: int, things: str) -> str:
    """Format a number with the plural that a list has: ``1 entry``, ``2,000 entries``."""
    if number != 1:
        return f"{format_number(number)} {things}"
    plural, of, rest = things.partition(" of ")
    for ending, singular in (("ies", "y"), ("ches", "ch"), ("s", "")):
        if plural.endswith(ending):
            return f"1 {plural.removesuffix(ending)}{singular}{of}{rest}"
    return f"1 {things}"


def begin_sentence(text: str, name: str = "") -> str:
    """Return a text with a capital, unless it begins with a name: of a part, or ``name``.

    Rules and errors speak in parts of sentences, which follow a rule's id or a field elsewhere.
    """
    word = _WORD.match(text)
    if word is None or (word[0] in {*_NAMES, name} and word[0] not in _PARTS):
        return text
    return f"{text[:1].upper()}{text[1:]}"


def badge_decision(outcome: str, *, allowed: bool) -> tuple[str, str]:
    """Return the tone of the policy's decision, and its name."""
    if allowed:
        return ("warn", "not enforced") if outcome == "fail" else ("allowed", "allowed")
    return ("unknown", "no decision") if outcome == "unknown" else ("denied", "denied")


def shorten(digest: str | None) -> str:
    """Return the beginning of a digest or an id."""
    if not digest:
        return ""
    kind, colon, rest = digest.partition(":")
    return f"{kind}:{rest[:12]}" if colon else digest[:15]


def format_value(value: Any) -> str:
    """Format a value of a document: text unchanged, lists with commas, nested values as YAML."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and not any(isinstance(one, list | dict) for one in value):
        return ", ".join(map(str, value))
    return format_yaml(value) if isinstance(value, list | dict) else str(value)


def format_yaml(value: Any) -> str:
    """Format a document as YAML, as in files."""
    return to_yaml([value]).rstrip()


FILTERS: dict[str, Callable[..., Any]] = {
    "said": format_value,
    "carried": describe_contents,
    "yaml": format_yaml,
    "field": lambda path: path.removeprefix("spec."),
    "seconds": lambda day: int(datetime.combine(day, time(), UTC).timestamp()),
    "iso": clock.iso,
    "whole_day": lambda at: at is None or at.astimezone(UTC).time() in (time(), time.max),
    "ago": format_age,
    "when": format_time,
    "day": format_day,
    "readable": local_time,
    "duration": describe_seconds,
    "number": format_number,
    "counted": count_things,
    "rows": count_rows,
    "mark": lambda status: _MARKS.get(status, "•"),
    "begin": begin_sentence,
    "decision": badge_decision,
    "label": component_label,
    "pretty": lambda value: msgspec.json.format(msgspec.json.encode(value), indent=2).decode(),
    "sentence": lambda text: f"{text[:1].upper()}{text[1:]}.",
    "short": shorten,
    "brief": lambda text: _LONG_DIGEST.sub(r"\1…", text),
}
