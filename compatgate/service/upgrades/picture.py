"""Draw the waves of an upgrade in time: rolled, soaking, and the earliest possible next ones.

Places are per cent of the picture's width, so one drawing fits every screen. What has not happened
is drawn as early as it could: without a wave that has finished, rolling takes no time. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from compatgate.core.upgrade_state import Freeze, Upgrade, Wave

BarKind = Literal["roll", "soak", "planned-roll", "planned-soak"]
_STEPS = tuple(
    timedelta(minutes=minutes)
    for minutes in (1, 5, 15, 30, 60, 180, 360, 720, 1440, 2880, 10_080, 20_160, 43_200, 129_600)
)
_MOST_TICKS = 4
_DAY = timedelta(days=1)
_LEAST = timedelta(minutes=10)
"""The shortest time that a picture shows."""


class Span(Struct, frozen=True):
    """A phase of a wave between two times; a planned phase has its earliest times."""

    kind: BarKind
    since: datetime
    until: datetime


class Bar(Struct, frozen=True):
    """A drawn span: place and width in per cent."""

    span: Span
    x: float
    width: float


class Closed(Struct, frozen=True):
    """A drawn freeze."""

    freeze: Freeze
    x: float
    width: float


class Tick(Struct, frozen=True):
    """A labelled time; ``anchor`` is how its text is aligned, as SVG names it."""

    x: float
    text: str
    anchor: str


class Axis(Struct, frozen=True):
    """A linear scale from times to per cent."""

    since: datetime
    until: datetime

    def place(self, at: datetime) -> float:
        """Return the place of a time, within the picture."""
        share = (at - self.since) / (self.until - self.since)
        return round(100 * min(max(share, 0.0), 1.0), 2)

    def draw(self, span: Span) -> Bar:
        """Return a span's bar."""
        x = self.place(span.since)
        return Bar(span, x, round(self.place(span.until) - x, 2))

    @property
    def ticks(self) -> tuple[Tick, ...]:
        """Return at most a few labelled times, at whole steps."""
        whole = self.until - self.since
        longest = _STEPS[-1] * (whole // (_STEPS[-1] * _MOST_TICKS) + 1)
        step = next((one for one in _STEPS if whole / one <= _MOST_TICKS), longest)
        day = self.since.replace(hour=0, minute=0, second=0, microsecond=0)
        at = day + step * ((self.since - day) // step + 1)
        found = []
        while at < self.until:
            x = self.place(at)
            text = at.strftime("%Y-%m-%d" if step >= _DAY else "%m-%d %H:%M")
            anchor = "start" if x < 8 else "end" if x > 92 else "middle"
            found.append(Tick(x, text, anchor))
            at += step
        return tuple(found)


class Picture(Struct, frozen=True):
    """Waves in time.

    Attributes:
        bars: of each wave, in their order.
        now: the place of this moment; None: it is outside.
        starts: when each wave may start at the earliest; None: it has, or that is not known.
    """

    axis: Axis
    bars: tuple[tuple[Bar, ...], ...]
    freezes: tuple[Closed, ...]
    now: float | None
    starts: tuple[datetime | None, ...]


def draw_upgrade(
    upgrade: Upgrade, freezes: Sequence[Freeze], now: datetime, ended: datetime | None = None
) -> Picture:
    """Return the picture of an upgrade.

    Args:
        upgrade: with everything that was noticed.
        freezes: that concern its target.
        now: the time.
        ended: when it was done or rolled back; None: it goes on.
    """
    spans, starts = _plan(upgrade, freezes, ended or now)
    times = [at for wave in spans for one in wave for at in (one.since, one.until)]
    since = min([upgrade.began or now, *times])
    until = max([*times, ended or now])
    room = max((until - since) / 40, _LEAST / 20)
    axis = Axis(since - room, max(until + room, since + _LEAST))
    shown = [one for one in freezes if one.until > axis.since and one.since < axis.until]
    return Picture(
        axis,
        tuple(tuple(map(axis.draw, wave)) for wave in spans),
        draw_freezes(shown, axis),
        axis.place(now) if axis.since <= now <= axis.until else None,
        tuple(starts),
    )


def draw_freezes(freezes: Iterable[Freeze], axis: Axis) -> tuple[Closed, ...]:
    """Return freezes as far as an axis shows them."""
    found = []
    for one in freezes:
        x = axis.place(one.since)
        found.append(Closed(one, x, round(axis.place(one.until) - x, 2)))
    return tuple(found)


def _plan(
    upgrade: Upgrade, freezes: Collection[Freeze], now: datetime
) -> tuple[list[tuple[Span, ...]], list[datetime | None]]:
    """Return what each wave did and would do, and when those to come may start."""
    soak = timedelta(seconds=upgrade.soak_s)
    goes_on = upgrade.state in ("proposed", "rolling")
    usual = _usual_time(upgrade.waves)
    free = now
    spans: list[tuple[Span, ...]] = []
    starts: list[datetime | None] = []
    for wave in upgrade.waves:
        start = None
        found = _spans_of(wave, soak, now)
        if not wave.started and wave.expected and goes_on:
            start = _after_freezes(free, freezes)
            rolled = start + usual
            found = (
                Span("planned-roll", start, rolled), Span("planned-soak", rolled, rolled + soak),
            )  # fmt: skip
        if not goes_on:
            found = tuple(one for one in found if one.kind != "planned-soak")
        free = max([free, *(one.until for one in found)])
        spans.append(found)
        starts.append(start)
    return spans, starts


def _usual_time(waves: Iterable[Wave]) -> timedelta:
    """Return the mean time that finished waves took; without one, none."""
    took = [one.finished - one.started for one in waves if one.started and one.finished]
    return sum(took, timedelta()) / len(took) if took else timedelta()


def _spans_of(wave: Wave, soak: timedelta, now: datetime) -> tuple[Span, ...]:
    """Return the spans of a wave that has started; of others, none."""
    if wave.started is None:
        return ()
    end = wave.finished or max(now, wave.started)
    kind: BarKind = "soak" if wave.finished else "planned-soak"
    return Span("roll", wave.started, end), Span(kind, end, end + soak)


def _after_freezes(at: datetime, freezes: Collection[Freeze]) -> datetime:
    """Return the first time from a moment on that no freeze holds."""
    for one in sorted(freezes, key=lambda freeze: freeze.since):
        if one.holds(at):
            at = one.until
    return at
