"""Show the decision log: narrowed by time and by the beginning of a text, or grouped by cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from compatgate.core.rule import Outcome
from compatgate.core.stack import format_stack
from compatgate.kit import clock
from compatgate.kit.http.links import current_page_link, link
from compatgate.kit.http.schemas import Filter, Since, Until
from compatgate.kit.ui.preferences import local_time
from compatgate.kit.ui.tables import (
    NO_MATCHES,
    Cell,
    Column,
    EmptyNotice,
    PagedTableQuery,
    Table,
    is_narrowed,
    list_rows,
    make_table,
)
from compatgate.service.gate.decisions.service import DAY, HOUR, MINUTE, Bar, DeniedVerdict
from compatgate.service.gate.questions.schemas import DecisionBody
from compatgate.web.page import HtmlPage, PageRequest, page

DAYS = 14
MAX_VERDICTS = 500
"""Denied verdicts that are read to group them by cause, the most frequent."""
_MAX_BARS = 120
_LONGEST_STACK = 90
_LONGEST_REASON = 70
_DAY_BARS, _HOUR_BARS = timedelta(days=4), timedelta(hours=4)
_STEP_NAMES = {DAY: "day", HOUR: "hour", MINUTE: "minute"}
_DAY_FORMAT, _TIME_FORMAT = "%Y-%m-%d", "%Y-%m-%d %H:%M"
_COLUMNS = (
    Column("decided_at", "Decided", "time"),
    Column("target", "Target", "name"),
    Column("verdict", "Verdict", "badge"),
    Column("allowed", "Answer", "badge"),
    Column("reason", "Deciding rule"),
    Column("stack", "Stack", "code"),
    Column("image", "Image", "code"),
    Column("asked_by", "Asked by"),
    Column("source", "Source"),
    Column("revision", "Revision", "number"),
    Column("took", "Duration, ms", "number"),
)
_CAUSE_COLUMNS = (
    Column("count", "Decisions", "number"),
    Column("rule", "Deciding rule"),
    Column("reason", "Reason"),
    Column("targets", "Targets"),
    Column("stacks", "Verdicts", "number"),
    Column("last", "Last", "time"),
)
_NO_DECISIONS = EmptyNotice(
    "No decisions yet.",
    "The log holds every question to the gate, with its answer.",
    "compatgate check --target NAME --stack cuda=12.4,torch=2.4.1",
)
_NO_DENIALS = EmptyNotice("Nothing was denied in this time.", "Choose a longer time.")
YesOrNo = Literal["yes", "no"]


class DecisionQuery(PagedTableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of decisions; target, image, source and token are given by their beginning."""

    target: Filter | None = None
    verdict: Outcome | None = None
    verdict_id: Filter | None = None
    allowed: Annotated[YesOrNo, Meta(description="decision of the policy")] | None = None
    rule: Filter | None = None
    source: Filter | None = None
    asked_by: Filter | None = None
    image: Filter | None = None
    since: Since | None = None
    until: Until | None = None
    group: Literal["cause"] | None = None
    follow: Literal["yes"] | None = None

    def texts(self) -> dict[str, str | None]:
        """Return the filters that are beginnings of texts."""
        return {name: getattr(self, name) for name in ("target", "asked_by", "source", "image")}


class LinkedBar(Struct, frozen=True):
    """A bar of the chart, and the page that narrows the time to it.

    Attributes:
        at: its beginning, in seconds since the epoch.
    """

    bar: Bar
    label: str
    at: float
    href: str


@page("/decisions", nav="decisions", query=DecisionQuery)
def show_decisions(ask: PageRequest[DecisionQuery]) -> HtmlPage:
    """Show the log, newest first, below a histogram whose bars narrow the time."""
    query, history = ask.query, ask.rooms.decisions
    until = min(query.until or clock.now(), clock.now())
    first = datetime.combine(until.date() - timedelta(days=DAYS - 1), time(), UTC)
    since = min(query.since or first, until)
    denied = _list_denied(ask, since, until) if query.rule or query.group else []
    ids = [row.verdict_id for row, _ in denied] if query.rule else None
    step, edges = split_time(since, until)
    counted = history.count_bars(edges, texts=query.texts(), verdict_ids=ids)
    context = {
        "query": query,
        "bars": [_link_bar(bar, step) for bar in counted.bars],
        "complete": counted.complete,
        "step": _STEP_NAMES[step].capitalize(),
        "caption": f"Decisions by {_STEP_NAMES[step]}"
        f"{f' on {query.target}…' if query.target else ''},"
        f" {local_time(edges[0])} to {local_time(edges[-1])}",
        "outcomes": ("pass", "warn", "unknown", "fail"),
        "shown_since": _field(query.since, time()),
        "shown_until": _field(query.until, time.max),
    }
    table = _cause_table(query, denied) if query.group else _log_table(ask, ids)
    return HtmlPage("decisions.html", "Decisions", context, table=table)


def _log_table(ask: PageRequest[DecisionQuery], ids: Sequence[str] | None) -> Table:
    query, history = ask.query, ask.rooms.decisions

    def fetch(**filters: Any) -> Any:
        others = {k: v for k, v in filters.items() if k not in ("rule", "group", "follow")}
        return history.list_decisions(**others, verdict_ids=ids, beginnings=True)

    allowed = None if query.allowed is None else query.allowed == "yes"
    found = list_rows(fetch, query, allowed=allowed)
    verdicts = history.read_verdicts([row.verdict_id for row in found.items])
    return decision_table(found.items, verdicts, sort=query.sort, following=found.next)


def decision_table(
    rows: Any,
    verdicts: Mapping[str, dict[str, Any]],
    *,
    sort: str | None = None,
    following: str | None = None,
) -> Table:
    """Return decisions as a table."""
    lines = [_decision_row(row, verdicts.get(row.verdict_id)) for row in rows]
    empty = NO_MATCHES if is_narrowed() else _NO_DECISIONS
    return make_table(
        "decisions",
        _COLUMNS,
        lines,
        empty,
        sort=sort,
        following=following,
        label="decisions",
    )


def _decision_row(row: DecisionBody, verdict: dict[str, Any] | None) -> tuple[Any, ...]:
    href = link("verdicts", row.verdict_id)
    finding = deciding_finding(verdict)
    revision = row.matrix_revision
    return (
        Cell(row.decided_at, href=href),
        Cell(row.target, href=link("targets", row.target)) if row.target else "a pool",
        Cell(row.outcome, href=href, title=row.verdict_id),
        answer_cell(row),
        _reason_cell(finding),
        _stack_cell(verdict),
        row.image,
        row.asked_by,
        row.source,
        Cell(revision, href=link("revisions", revision)) if revision else None,
        row.duration_us / 1000,
    )


def _reason_cell(finding: Mapping[str, Any] | None) -> Cell:
    if finding is None:
        return Cell(None)
    message = finding["message"]
    short = message if len(message) <= _LONGEST_REASON else f"{message[:_LONGEST_REASON]}…"
    return Cell(finding["rule"], link("rules", finding["rule"]), title=message, note=short)


def _stack_cell(verdict: dict[str, Any] | None) -> Cell:
    stack = verdict["stack"] if verdict else {}
    shown = {n: v for n, v in stack.items() if isinstance(v, str) or n == "arch"}
    text = format_stack(shown)
    short = text if len(text) <= _LONGEST_STACK else f"{text[:_LONGEST_STACK]}…"
    return Cell(short or None, title=text if short != text else "")


def answer_cell(row: DecisionBody) -> Cell:
    """Return the decision of the policy."""
    if row.allowed:
        return Cell("allowed")
    if row.outcome == "unknown":
        return Cell("no decision", tone="unknown")
    return Cell("denied")


def deciding_finding(verdict: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the first finding with the outcome of the verdict; None: nothing was found."""
    if verdict is None:
        return None
    found = (f for f in verdict["findings"] if f["outcome"] == verdict["verdict"])
    return next(found, None)


class _Cause(Struct):
    rule: str
    message: str
    count: int = 0
    targets: set[str] = set()
    verdicts: int = 0
    last: datetime | None = None


def _list_denied(
    ask: PageRequest[DecisionQuery], since: datetime, until: datetime
) -> list[tuple[DeniedVerdict, dict[str, Any]]]:
    """Return the most frequent denied verdicts of a time with the finding that decided each."""
    rule = (ask.query.rule or "").upper()
    rows = ask.rooms.decisions.list_denied(since, until, limit=MAX_VERDICTS)
    bodies = ask.rooms.decisions.read_verdicts([row.verdict_id for row in rows])
    found = ((row, deciding_finding(bodies.get(row.verdict_id))) for row in rows)
    return [(row, one) for row, one in found if one and (not rule or one["rule"] == rule)]


def _cause_table(
    query: DecisionQuery, denied: Sequence[tuple[DeniedVerdict, dict[str, Any]]]
) -> Table:
    """Return denials by deciding rule, component and need."""
    causes: dict[tuple[str, ...], _Cause] = {}
    for row, finding in denied:
        if not (row.target or "").startswith(query.target or ""):
            continue
        key = (finding["rule"], finding.get("component") or "", finding.get("need") or "")
        cause = causes.setdefault(key, _Cause(finding["rule"], finding["message"]))
        cause.count += row.count
        cause.verdicts += 1
        cause.targets = cause.targets | ({row.target} if row.target else {"a pool"})
        cause.last = max(cause.last or row.last, row.last)
    lines = [_cause_row(cause) for cause in sorted(causes.values(), key=lambda one: -one.count)]
    return make_table("causes", _CAUSE_COLUMNS, lines, _NO_DENIALS, sort=query.sort, label="causes")


def _cause_row(cause: _Cause) -> tuple[Any, ...]:
    shown = sorted(cause.targets)
    more = f" and {len(shown) - 3} more" if shown[3:] else ""
    narrowed = current_page_link(rule=cause.rule, group=None, sort=None, columns=None, allowed="no")
    return (
        Cell(cause.count, href=narrowed),
        Cell(cause.rule, link("rules", cause.rule)),
        cause.message,
        ", ".join(shown[:3]) + more,
        cause.verdicts,
        cause.last,
    )


def split_time(since: datetime, until: datetime) -> tuple[timedelta, tuple[datetime, ...]]:
    """Split a time into days, hours or minutes; of too many, the last ones.

    Returns:
        The length of a span; the begins of the spans, and the end of the last one.
    """
    span = until - since
    step = DAY if span > _DAY_BARS else HOUR if span > _HOUR_BARS else MINUTE
    begin, last = (_floor(at.astimezone(UTC), step) for at in (since, until))
    begin = max(begin, last - step * (_MAX_BARS - 1))
    count = (last - begin) // step + 1
    return step, tuple(begin + step * place for place in range(count + 1))


def _floor(at: datetime, step: timedelta) -> datetime:
    day = datetime.combine(at.date(), time(), UTC)
    return day + (at - day) // step * step


def _link_bar(bar: Bar, step: timedelta) -> LinkedBar:
    begin, until = bar.begin, bar.begin + step - timedelta(microseconds=1)
    label = f"{begin:{_DAY_FORMAT}}" if step == DAY else local_time(begin, _TIME_FORMAT)
    since, end = clock.iso(begin), clock.iso(until)
    href = current_page_link(since=since, until=end, cursor=None, follow=None)
    return LinkedBar(bar, label, begin.timestamp(), href)


def _field(at: datetime | None, whole: time) -> date | str | None:
    """Return a limit of time as its field shows it: a date, or a moment as text."""
    if at is None:
        return None
    utc = at.astimezone(UTC)
    return utc.date() if utc.time() == whole else clock.iso(utc)
