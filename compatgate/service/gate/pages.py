"""Show verdicts with their rules and basis, the decision log, and the what-if page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from flask import request
from msgspec import Meta

from compatgate.core.entry_stacks import known_versions
from compatgate.core.facts import Facts
from compatgate.core.request import parse_changes_text
from compatgate.core.rule import EXIT_NO_DECISION, Finding, Outcome, exit_code
from compatgate.core.rules import BY_ID
from compatgate.core.whatif_result import EntryChange, PoolChange, WhatIf
from compatgate.errors import CompatgateError
from compatgate.kit import clock
from compatgate.kit.http.links import API_PREFIX as API
from compatgate.kit.http.links import link
from compatgate.kit.http.replies import Filter
from compatgate.kit.http.requests import Since, Until
from compatgate.kit.ui.tables import (
    NO_MATCHES,
    Cell,
    Column,
    EmptyNotice,
    PagedTableQuery,
    Table,
    TableQuery,
    is_narrowed,
    list_rows,
    make_table,
)
from compatgate.service.gate.question_links import Question, format_stack
from compatgate.service.gate.repository import DecisionRow
from compatgate.service.gate.what_if import what_if
from compatgate.service.waivers.service import draft_waiver_form
from compatgate.service.web.call import base_url, verdict_link
from compatgate.service.web.page import HtmlPage, PageRequest, page

DAYS = 14
_DECISION_COLUMNS = (
    Column("decided_at", "Decided", "time"),
    Column("target", "Target"),
    Column("verdict", "Verdict", "badge"),
    Column("allowed", "Answer", "badge"),
    Column("image", "Image", "code"),
    Column("asked_by", "Asked by"),
    Column("source", "Source"),
    Column("revision", "Revision", "number"),
    Column("took", "Duration, ms", "number"),
)
_NO_DECISIONS = EmptyNotice(
    "No decisions yet.",
    "The log holds every question to the gate, with its answer.",
    "compatgate check --target NAME --stack cuda=12.4,torch=2.4.1",
)
YesOrNo = Literal["yes", "no"]


class DecisionQuery(PagedTableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of decisions."""

    target: Filter | None = None
    verdict: Outcome | None = None
    verdict_id: Filter | None = None
    allowed: Annotated[YesOrNo, Meta(description="decision of the policy")] | None = None
    source: Filter | None = None
    asked_by: Filter | None = None
    image: Filter | None = None
    since: Since | None = None
    until: Until | None = None


@page("/decisions", nav="decisions", query=DecisionQuery)
def show_decisions(ask: PageRequest[DecisionQuery]) -> HtmlPage:
    """Show the log, newest first, below a bar chart of the last two weeks."""
    query, history = ask.query, ask.gate.history
    found = list_rows(
        history.list_decisions,
        query,
        allowed=None if query.allowed is None else query.allowed == "yes",
    )
    context = {
        "query": query,
        "counted": history.decisions_per_day(DAYS, target=query.target),
        "outcomes": ("pass", "warn", "unknown", "fail"),
    }
    table = decision_table(found.items, sort=query.sort, following=found.next)
    return HtmlPage("decisions.html", "Decisions", context, table=table)


def decision_table(rows: Any, *, sort: str | None = None, following: str | None = None) -> Table:
    """Return decisions as a table."""
    lines = [_decision_row(row) for row in rows]
    return make_table(
        "decisions",
        _DECISION_COLUMNS,
        lines,
        NO_MATCHES if is_narrowed() else _NO_DECISIONS,
        sort=sort,
        following=following,
        label="decisions",
    )


def _decision_row(row: DecisionRow) -> tuple[Any, ...]:
    verdict = link("verdicts", row.verdict_id)
    return (
        Cell(row.decided_at, href=verdict),
        Cell(row.target, href=link("targets", row.target)) if row.target else "a pool",
        Cell(row.outcome, href=verdict, title=row.verdict_id),
        answer_cell(row),
        row.image,
        row.asked_by,
        row.source,
        Cell(row.matrix_revision, href=link("revisions", row.matrix_revision))
        if row.matrix_revision
        else None,
        row.duration_us / 1000,
    )


def answer_cell(row: DecisionRow) -> Cell:
    """Return the decision of the policy."""
    if row.allowed:
        return Cell("allowed")
    if row.outcome == "unknown":
        return Cell("no decision", tone="unknown")
    return Cell("denied")


_MOST_DECISIONS = 20
_OUTCOME_TEXTS = {
    "pass": "The stack may run.",
    "warn": "The stack may run; read the warnings first.",
    "unknown": "It is not known whether the stack can run.",
    "fail": "The stack cannot run without a change.",
}
_BASIS_TEXTS = {
    "image": "read from the image",
    "stated": "stated by the client",
    "what-if": "changed by a what-if question",
}


@page("/verdicts/<verdict_id>", nav="decisions")
def show_verdict(ask: PageRequest[Any]) -> HtmlPage:
    """Show a verdict as first given, and the decisions with it."""
    verdict_id = ask.args["verdict_id"]
    verdict = ask.gate.show_verdict(verdict_id)
    given = ask.gate.history.list_decisions(verdict_id=verdict_id, limit=_MOST_DECISIONS)
    until = verdict.get("valid_until")
    context = {
        "verdict": verdict,
        "says": _OUTCOME_TEXTS[verdict["verdict"]],
        "answer": _decision_badge(verdict),
        "basis": _BASIS_TEXTS.get(verdict.get("basis", "")),
        "passed": _name_rules(verdict["checked"]["passed"]),
        "not_applicable": _name_rules(verdict["checked"]["not_applicable"]),
        "over": until is not None and clock.is_past(clock.from_iso(until)),
        "links": _make_links(ask, verdict),
    }
    table = decision_table(given.items, following=None)
    title = f"{verdict['target'] or 'A pool'}: {verdict['verdict']}"
    return HtmlPage("verdict.html", title, {**context, "more": given.next is not None}, table=table)


def _make_links(ask: PageRequest[Any], verdict: dict[str, Any]) -> dict[str, str | None]:
    verdict_id = ask.args["verdict_id"]
    base, path = base_url(ask.service), f"{API}/verdicts/{verdict_id}"
    signed = ask.service.settings.signing.make is not None and verdict.get("basis") != "what-if"
    api = f"{request.script_root}{path}"
    return {
        "ask": _question_link(verdict),
        "waive": _waiver_link(verdict),
        "decisions": link("decisions", verdict_id=verdict_id),
        "api": api,
        "attestation": f"{api}/attestation" if signed else None,
        "curl": make_curl_command(f"{base}{path}"),
        "permanent": verdict_link(base, verdict_id),
    }


def make_curl_command(url: str) -> str:
    """Return a shell command that reads a URL of the API."""
    return f'curl -s {shlex.quote(url)} \\\n  -H "Authorization: Bearer $COMPATGATE_TOKEN"'


def _decision_badge(verdict: dict[str, Any]) -> tuple[str, str]:
    """Return the decision of the policy: a badge and its text."""
    if verdict["allowed"]:
        return "allowed", "allowed"
    if exit_code(verdict["verdict"], allowed=False) == EXIT_NO_DECISION:
        return "unknown", "no decision"
    return "denied", "denied"


def _name_rules(ids: list[str]) -> list[tuple[str, str]]:
    """Return rule ids with names; a rule that this version does not know has no name."""
    return [(one, BY_ID[one].name if one in BY_ID else "") for one in sorted(ids)]


def _question_link(verdict: dict[str, Any]) -> str:
    where: dict[str, str] = {"target": verdict["target"]} if verdict["target"] else {}
    if not where and verdict["pools"]:
        pool = verdict["pools"][0]
        where = {key: pool[key] for key in ("driver", "gpu", "os", "cpu") if pool.get(key)}
    stack = format_stack({k: v for k, v in verdict["stack"].items() if k != "measured"})
    return Question(stack=stack, image=verdict["image"] or "", **where).link()  # type: ignore[arg-type]


def _waiver_link(verdict: dict[str, Any]) -> str | None:
    """Return a link to the form for a waiver of the failing rules; None: not possible."""
    begun = draft_waiver_form(verdict)
    return link("new-waiver", **begun) if begun["targets"] and begun["rules"] else None


_Text = Annotated[str, Meta(max_length=200)]
_CHANGE_COLUMNS = (
    Column("entry", "Entry"),
    Column("status", "Status", "badge"),
    Column("pool", "Pool"),
    Column("before", "Now", "badge"),
    Column("after", "Then", "badge"),
    Column("change", "Change"),
    Column("why", "Why"),
    Column("fix", "Fix"),
)
_NO_CHANGES = EmptyNotice(
    "No entries in use on this target.",
    "Blessed and deprecated entries are evaluated before and after the change.",
    "compatgate matrix import entries.yaml --reason 'what runs today'",
)


class WhatIfQuery(TableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The target, and the changes to it."""

    target: _Text = ""
    pool: _Text = ""
    driver: _Text = ""
    gpu: _Text = ""
    cuda: _Text = ""
    set: _Text = ""

    @property
    def is_change(self) -> bool:
        """Return whether a change is stated."""
        return any((self.driver, self.gpu, self.cuda, self.set))

    def changes(self) -> dict[str, Any]:
        """Return the stated changes.

        Raises:
            BadInput: an item of ``set`` is not ``name=value``.
        """
        named = {n: v for n in ("driver", "gpu", "cuda") if (v := getattr(self, n).strip())}
        return {**parse_changes_text(self.set), **named}


@page("/what-if", scope="gate", nav="what-if", query=WhatIfQuery)
def show_what_if(ask: PageRequest[WhatIfQuery]) -> HtmlPage:
    """Show every entry in use on a target, before and after a change."""
    query, snapshot = ask.query, ask.gate.snapshot()
    found: WhatIf | None = None
    problem: CompatgateError | None = None
    if query.target and query.is_change:
        try:
            changes = query.changes()
            found = what_if(snapshot, query.target, changes, clock.now(), pool=query.pool or None)
        except CompatgateError as error:
            problem = error
    target = snapshot.targets.get(query.target)
    context = {
        "query": query,
        "targets": sorted(snapshot.documents),
        "target": target,
        "gpus": sorted(ask.gate.facts.gpus.gpus),
        "drivers": list(_list_drivers(ask.gate.facts)),
        "cudas": _list_series(ask.gate.facts),
        "found": found,
        "problem": problem,
        "tally": _count_changes(found) if found else {},
        "pick": lambda **more: _what_if_link(query, **more),
    }
    table = _change_table(query, found) if found else None
    return HtmlPage("what-if.html", "What if", context, table, problem.status if problem else 200)


def _what_if_link(query: WhatIfQuery, **changes: str) -> str:
    given = {n: getattr(query, n) for n in ("target", "pool", "driver", "gpu", "cuda", "set")}
    return link("what-if", **{**given, **changes})


def _list_drivers(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield the newest driver of each supported branch, newest first, with a note."""
    branches = facts.driver_branches.branches
    for number in sorted(branches, reverse=True):
        branch = branches[number]
        if branch.last is not None and not branch.ended:
            until = f", supported to {branch.eol}" if branch.eol else ""
            yield branch.last.text, f"branch {number}{until}"


def _list_series(facts: Facts) -> list[str]:
    pairs = {version.major_minor for version in known_versions(facts, "cuda")}
    return [f"{major}.{minor}" for major, minor in sorted(pairs, reverse=True)]


def _count_changes(found: WhatIf) -> dict[str, int]:
    return {change: len(found.of(change)) for change in ("breaks", "worsens", "same", "improves")}


def _change_table(query: WhatIfQuery, found: WhatIf) -> Table:
    rows = [row for entry in found.entries for row in _change_rows(query, entry)]
    name = f"what-if-{found.target}"
    return make_table(
        name, _CHANGE_COLUMNS, rows, _NO_CHANGES, sort=query.sort, label="pairs of entry and pool"
    )


def _change_rows(query: WhatIfQuery, entry: EntryChange) -> Iterator[tuple[Any, ...]]:
    name = Cell(entry.entry, link("entries", entry.entry))
    if entry.open:
        yield (name, entry.status, "", "unknown", "unknown", "open", "; ".join(entry.open), "")
    for pool in entry.pools:
        yield (
            name,
            entry.status,
            pool.pool,
            pool.before.verdict,
            pool.after.verdict,
            Cell(pool.change, tone=_CHANGE_TONES.get(pool.change, "")),
            _explain_change(pool),
            "; ".join(fix.message for f in pool.lost for fix in f.fixes[:1]),
        )


_CHANGE_TONES = {"breaks": "fail", "worsens": "warn", "improves": "pass", "same": "muted"}


def _explain_change(pool: PoolChange) -> str:
    if pool.lost:
        return "; ".join(_finding_text(finding) for finding in pool.lost)
    return f"resolved: {'; '.join(_finding_text(f) for f in pool.gained)}" if pool.gained else ""


def _finding_text(finding: Finding) -> str:
    return f"{finding.rule} {finding.message}"
