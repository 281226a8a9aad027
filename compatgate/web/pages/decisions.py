"""Show the decision log, narrowed by time and text or grouped by cause, and verdicts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any, Literal

from flask import request
from msgspec import Struct

from compatgate.core.components import COMPONENTS, FRAMEWORKS, label_of
from compatgate.core.rule import REFUSING
from compatgate.core.rules import RULES
from compatgate.core.stack import format_stack
from compatgate.errors import NotFound
from compatgate.formats.markdown import render_section
from compatgate.formats.reports import Answer
from compatgate.kit import clock
from compatgate.kit.http.links import API_PREFIX as API
from compatgate.kit.http.links import current_page_link, link
from compatgate.kit.http.schemas import Filter
from compatgate.kit.sections import shorten
from compatgate.kit.ui.filters import badge_decision, count_things, local_time
from compatgate.kit.ui.tables import Cell, Table, list_rows, make_page_query, make_table
from compatgate.service.gate.decisions.service import DAY, HOUR, MINUTE, DeniedVerdict
from compatgate.service.gate.questions.api import DecisionFilters
from compatgate.service.gate.questions.remedies import resolve_verdict
from compatgate.service.gate.questions.schemas import DecisionBody
from compatgate.web.page import HtmlPage, PageRequest, Redirect, listing, page
from compatgate.web.pages.next_steps import StepPlace, list_steps
from compatgate.web.pages.nodes import YesOrNo, yes_or_no
from compatgate.web.pages.question_links import Question, format_curl, write_stack
from compatgate.web.service import answer_link, base_url

DAYS = 14
MAX_VERDICTS = 500
"""Denied verdicts that are read to group them by cause, the most frequent."""
_MAX_BARS = 120
_LONGEST_STACK = 90
_LONGEST_REASON = 70
_DAY_BARS, _HOUR_BARS = timedelta(days=4), timedelta(hours=4)
_STEP_NAMES = {DAY: "day", HOUR: "hour", MINUTE: "minute"}


DecisionQuery = make_page_query(
    DecisionFilters, allowed=YesOrNo, rule=Filter, group=Literal["cause"], follow=Literal["yes"]
)
"""Filters of decisions; target, image, source and token are given by their beginning."""
_BEGINNINGS = ("target", "asked_by", "source", "image")
_MAX_DECISIONS = 20
_MAX_PARTS = 3
"""Parts of the stack that the heading names, frameworks first."""
_FOLDED = {"warn": "warning", "waived": "waived finding", "not-checked": "open point"}
"""What decides nothing, by outcome."""
_BASIS_TEXTS = {
    "image": "read from the image",
    "stated": "stated by the client",
    "what-if": "changed by a what-if question",
}
_DIGITS_OF_ID = re.compile(r"(?:vd_)?([0-9a-f]{0,32})")
_SHORTEST_ID = 4


@page("/decisions", nav="decisions", query=DecisionQuery)
def show_decisions(ask: PageRequest[Any]) -> HtmlPage:
    """Show the log, newest first, below a histogram whose bars narrow the time."""
    query, history = ask.query, ask.rooms.decisions
    until = min(query.until or clock.now(), clock.now())
    first = datetime.combine(until.date() - timedelta(days=DAYS - 1), time(), UTC)
    since = min(query.since or first, until)
    denied = _list_denied(ask, since, until) if query.rule or query.group else []
    ids = [row.verdict_id for row, _ in denied] if query.rule else None
    step, edges = split_time(since, until)
    texts = {name: getattr(query, name) for name in _BEGINNINGS}
    counted = history.count_bars(edges, texts=texts, verdict_ids=ids)
    on = f" on {query.target}…" if query.target else ""
    period = f"{local_time(edges[0])} to {local_time(edges[-1])}"
    if step == DAY:
        period = f"{edges[0].date()} to {edges[-2].date()}"
    context = {
        "bars": counted.bars,
        "last": step - timedelta(microseconds=1),
        "complete": counted.complete,
        "step": _STEP_NAMES[step].capitalize(),
        "caption": f"Decisions by {_STEP_NAMES[step]}{on}, {period}",
        "outcomes": ("pass", "warn", "unknown", "fail"),
    }
    table = _cause_table(query, denied) if query.group else _log_table(ask, ids)
    return HtmlPage("decisions.html", "Decisions", context, table)


def _log_table(ask: PageRequest[Any], ids: Sequence[str] | None) -> Table:
    query, history = ask.query, ask.rooms.decisions

    def fetch(**filters: Any) -> Any:
        others = {k: v for k, v in filters.items() if k not in ("rule", "group", "follow")}
        return history.list_decisions(**others, verdict_ids=ids, beginnings=True)

    found = list_rows(fetch, query, allowed=yes_or_no(query.allowed))
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

    def cells(row: DecisionBody) -> dict[str, Any]:
        verdict, place = verdicts.get(row.verdict_id), link("verdicts", row.verdict_id)
        reason = Cell(None)
        if finding := deciding_finding(verdict):
            rule, message = finding["rule"], finding["message"]
            brief = _shorten(message, _LONGEST_REASON)
            reason = Cell(rule, link("rules", rule), title=message, note=brief)
        tone, decision = badge_decision(row.outcome, allowed=row.allowed)
        stack = verdict["stack"] if verdict else {}
        text = format_stack({n: v for n, v in stack.items() if isinstance(v, str) or n == "arch"})
        short = _shorten(text, _LONGEST_STACK)
        return {
            "decided_at": Cell(row.decided_at, place),
            "target": row.target or Cell("a pool"),
            "verdict": Cell(row.outcome, place, title=row.verdict_id),
            "allowed": Cell(decision, tone=tone),
            "reason": reason,
            "stack": Cell(short or None, title=text if short != text else ""),
            "took": row.duration_us / 1000,
        }

    return make_table(
        listing("decisions"), rows, cells, sort=sort, following=following, filtered=True
    )


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


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
    ask: PageRequest[Any], since: datetime, until: datetime
) -> list[tuple[DeniedVerdict, dict[str, Any]]]:
    rule = (ask.query.rule or "").upper()
    rows = ask.rooms.decisions.list_denied(since, until, limit=MAX_VERDICTS)
    bodies = ask.rooms.decisions.read_verdicts([row.verdict_id for row in rows])
    found = ((row, deciding_finding(bodies.get(row.verdict_id))) for row in rows)
    return [(row, one) for row, one in found if one and (not rule or one["rule"] == rule)]


def _cause_table(query: Any, denied: Sequence[tuple[DeniedVerdict, dict[str, Any]]]) -> Table:
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

    def cells(cause: _Cause) -> dict[str, Any]:
        others = dict.fromkeys(("group", "sort", "columns"))
        narrowed = current_page_link(rule=cause.rule, **others, allowed="no")
        return {"count": Cell(cause.count, narrowed), "targets": shorten(sorted(cause.targets), 3)}

    frequent = sorted(causes.values(), key=lambda one: -one.count)
    return make_table(listing("denial-causes"), frequent, cells, sort=query.sort)


def split_time(since: datetime, until: datetime) -> tuple[timedelta, tuple[datetime, ...]]:
    """Split a time into days, hours or minutes; of too many, the last ones.

    Return the length of a span; the begins of the spans, and the end of the last one.
    """
    span = until - since
    step = DAY if span > _DAY_BARS else HOUR if span > _HOUR_BARS else MINUTE
    zero = datetime.min.replace(tzinfo=UTC)
    begin, last = (zero + (at - zero) // step * step for at in (since, until))
    begin = max(begin, last - step * (_MAX_BARS - 1))
    count = (last - begin) // step + 1
    return step, tuple(begin + step * place for place in range(count + 1))


@page("/verdicts/<verdict_id>", nav="decisions")
def show_verdict(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Show a verdict as first given, and the decisions with it.

    The beginning of an id leads to its verdict; for a mistyped one the page suggests others.
    """
    verdict_id = ask.args["verdict_id"]
    try:
        verdict = ask.rooms.decisions.show_verdict(verdict_id)
    except NotFound as error:
        return _suggest_verdicts(ask, verdict_id, error)
    given = ask.rooms.decisions.list_decisions(verdict_id=verdict_id, limit=_MAX_DECISIONS)
    until = verdict.get("valid_until")
    where: dict[str, Any] = {"target": verdict["target"]} if verdict["target"] else {}
    if not where and verdict["pools"]:
        pool = verdict["pools"][0]
        where = {key: pool[key] for key in ("driver", "gpu", "os", "cpu") if pool.get(key)}
    stack = write_stack(verdict["stack"])
    question = Question(stack=stack, image=verdict["image"] or "", **where)
    document = ask.gate.snapshot().documents.get(verdict["target"] or "")
    owner = (document.metadata.owner if document else None) or ""
    place = StepPlace(base_url(ask.service), owner)
    steps = list_steps(verdict, place, resolve_verdict(ask.gate.snapshot(), verdict))
    heading = _make_heading(verdict)
    permanent, target = answer_link(ask.service, verdict_id), verdict["target"]
    comparison = link("compare", target=target, left=stack) if target and stack else None
    path = f"{API}/verdicts/{verdict_id}"
    api = f"{request.script_root}{path}"
    signed = ask.service.settings.signing.make is not None and verdict.get("basis") != "what-if"
    groups = [
        (word, [f for f in verdict["findings"] if f["outcome"] == outcome])
        for outcome, word in _FOLDED.items()
    ]
    context = {
        "verdict": verdict,
        "heading": heading,
        "answer": badge_decision(verdict["verdict"], allowed=verdict["allowed"]),
        "changes": [one for one in steps if one.changes is not None],
        "steps": [one for one in steps if one.changes is None],
        "open": [f for f in verdict["findings"] if f["outcome"] in REFUSING],
        "folded": [(count_things(len(group), word), group) for word, group in groups if group],
        "basis": _BASIS_TEXTS.get(verdict.get("basis", "")),
        "compared": ask.rooms.runs.comparisons(verdict["evidence"]),
        "checked": verdict["checked"],
        "rule_names": {rule.id: rule.name for rule in RULES},
        "over": until is not None and clock.is_past(clock.from_iso(until)),
        "links": {
            "decisions": link("decisions", verdict_id=verdict_id),
            "api": api,
            "attestation": f"{api}/attestation" if signed else None,
            "curl": format_curl(f"{base_url(ask.service)}{path}"),
            "ask": question.link(),
            "permanent": permanent,
            "compare": comparison,
        },
        "markdown": render_section(Answer(verdict, link=permanent)),
        "fix": question.with_fix,
        "more": given.next is not None,
    }
    table = decision_table(given.items, {verdict_id: verdict})
    return HtmlPage("verdict.html", heading, context, table)


def _make_heading(verdict: dict[str, Any]) -> str:
    """Return the answer as a sentence, ``Denied: vLLM 0.14 + PyTorch 2.9.0 on inference-l4``."""
    parts = {name: v for name, v in verdict["stack"].items() if isinstance(v, str)}
    named = [name for name in parts if name in FRAMEWORKS or name not in COMPONENTS]
    names = named[::-1] or list(parts)  # what runs on top comes first; libraries follow from it
    shown = [f"{label_of(name)} {parts[name]}" for name in names[:_MAX_PARTS]]
    more = [f"{len(names) - _MAX_PARTS} more"] if len(names) > _MAX_PARTS else []
    stack = " + ".join([*shown, *more])
    what = f"{stack or verdict['image'] or 'an empty stack'} on {verdict['target'] or 'a pool'}"
    _, decision = badge_decision(verdict["verdict"], allowed=verdict["allowed"])
    ending = " would be denied" if decision == "not enforced" else ""
    return f"{decision.capitalize()}: {what}{ending}"


def _suggest_verdicts(ask: PageRequest[Any], given: str, error: NotFound) -> HtmlPage | Redirect:
    """Lead to the only verdict that begins so; else show verdicts with the longest shared part."""
    digits = match[1] if (match := _DIGITS_OF_ID.match(given.casefold())) else ""
    for length in range(len(digits), _SHORTEST_ID - 1, -1):
        found = ask.rooms.decisions.find_verdict_ids(f"vd_{digits[:length]}", limit=6)
        is_whole = digits[:length] == given.casefold().removeprefix("vd_")
        if len(found) == 1 and is_whole and length < len(found[0]) - len("vd_"):
            return Redirect(link("verdicts", found[0]))
        if found:
            break
    else:
        found = []
    context = {"given": given, "found": found}
    return HtmlPage("verdict-missing.html", "No such verdict", context, error=error)
