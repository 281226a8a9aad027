"""Show verdicts with their rules and basis, and the what-if page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any

from flask import request
from msgspec import Meta
from msgspec.structs import replace

from compatgate.check.formats.markdown import render_section
from compatgate.check.reports import Answer
from compatgate.core.entry_stacks import known_versions
from compatgate.core.facts import Facts
from compatgate.core.request import parse_changes_text
from compatgate.core.rule import EXIT_NO_DECISION, Finding, exit_code
from compatgate.core.rules import BY_ID
from compatgate.core.whatif_result import EntryChange, PoolChange, WhatIf
from compatgate.errors import CompatgateError, NotFound
from compatgate.kit import clock
from compatgate.kit.http.links import API_PREFIX as API
from compatgate.kit.http.links import link
from compatgate.kit.ui.tables import (
    Cell,
    Column,
    EmptyNotice,
    Table,
    TableQuery,
    make_table,
)
from compatgate.service.gate.decisions_page import decision_table
from compatgate.service.gate.next_steps import StepPlace, list_steps
from compatgate.service.gate.question_links import Question, format_stack
from compatgate.service.gate.what_if import what_if
from compatgate.service.waivers.service import draft_waiver_form
from compatgate.service.web.call import answer_link, base_url
from compatgate.service.web.page import HtmlPage, PageRequest, Redirect, page

_MAX_DECISIONS = 20
_WAIVER_DAYS = 7
_NEW_WAIVER = ("new-waiver",)
_BASIS_TEXTS = {
    "image": "read from the image",
    "stated": "stated by the client",
    "what-if": "changed by a what-if question",
}


@page("/verdicts/<verdict_id>", nav="decisions")
def show_verdict(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Show a verdict as first given, and the decisions with it.

    The beginning of an id leads to its verdict; for a mistyped one the page suggests others.
    """
    verdict_id = ask.args["verdict_id"]
    try:
        verdict = ask.gate.show_verdict(verdict_id)
    except NotFound as error:
        return _suggest_verdicts(ask, verdict_id, error)
    given = ask.gate.history.list_decisions(verdict_id=verdict_id, limit=_MAX_DECISIONS)
    until = verdict.get("valid_until")
    question = _question_of(verdict)
    steps = list_steps(verdict, _step_place(ask, verdict["target"] or ""))
    permanent = answer_link(ask.service, verdict_id)
    context = {
        "verdict": verdict,
        "answer": _decision_badge(verdict),
        "basis": _BASIS_TEXTS.get(verdict.get("basis", "")),
        "compared": ask.gate.runs.comparisons(verdict["evidence"]),
        "passed": _name_rules(verdict["checked"]["passed"]),
        "not_applicable": _name_rules(verdict["checked"]["not_applicable"]),
        "over": until is not None and clock.is_past(clock.from_iso(until)),
        "links": {**_make_links(ask, verdict), "ask": question.link(), "permanent": permanent},
        "markdown": render_section(Answer(verdict, link=permanent)),
        "steps": steps,
        "waived_below": any(one.form and one.form.path == _NEW_WAIVER for one in steps),
        "fix": question.with_fix,
    }
    known = {verdict_id: verdict}
    table = decision_table(given.items, known)
    title = f"{verdict['target'] or 'A pool'}: {verdict['verdict']}"
    return HtmlPage("verdict.html", title, {**context, "more": given.next is not None}, table=table)


def _question_of(verdict: dict[str, Any]) -> Question:
    """Return the question of a verdict, as the page Ask takes it."""
    where: dict[str, Any] = {"target": verdict["target"]} if verdict["target"] else {}
    if not where and verdict["pools"]:
        pool = verdict["pools"][0]
        where = {key: pool[key] for key in ("driver", "gpu", "os", "cpu") if pool.get(key)}
    stack = format_stack({k: v for k, v in verdict["stack"].items() if k != "measured"})
    return Question(stack=stack, image=verdict["image"] or "", **where)


def _step_place(ask: PageRequest[Any], target: str) -> StepPlace:
    document = ask.gate.snapshot().documents.get(target)
    owner = (document.metadata.owner if document else None) or ""
    expires = clock.today() + timedelta(days=_WAIVER_DAYS)
    return StepPlace(base_url(ask.service), expires.isoformat(), owner)


def _decision_badge(verdict: dict[str, Any]) -> tuple[str, str]:
    """Return the decision of the policy: a badge and its text."""
    if verdict["allowed"]:
        return "allowed", "allowed"
    if exit_code(verdict["verdict"], allowed=False) == EXIT_NO_DECISION:
        return "unknown", "no decision"
    return "denied", "denied"


_DIGITS_OF_ID = re.compile(r"(?:vd_)?([0-9a-f]{0,32})")
_SHORTEST_ID = 4


def _suggest_verdicts(ask: PageRequest[Any], given: str, error: NotFound) -> HtmlPage | Redirect:
    """Lead to the only verdict that begins so; else show verdicts with the longest shared part."""
    digits = match[1] if (match := _DIGITS_OF_ID.match(given.casefold())) else ""
    for length in range(len(digits), _SHORTEST_ID - 1, -1):
        found = ask.gate.history.find_verdict_ids(f"vd_{digits[:length]}", limit=6)
        is_whole = digits[:length] == given.casefold().removeprefix("vd_")
        if len(found) == 1 and is_whole and length < len(found[0]) - len("vd_"):
            return Redirect(link("verdicts", found[0]))
        if found:
            break
    else:
        found = []
    context = {"given": given, "error": error, "found": found}
    return HtmlPage("verdict-missing.html", "No such verdict", context, status=404)


def _make_links(ask: PageRequest[Any], verdict: dict[str, Any]) -> dict[str, str | None]:
    verdict_id = ask.args["verdict_id"]
    path = f"{API}/verdicts/{verdict_id}"
    signed = ask.service.settings.signing.make is not None and verdict.get("basis") != "what-if"
    api = f"{request.script_root}{path}"
    return {
        "waive": _waiver_link(verdict),
        "decisions": link("decisions", verdict_id=verdict_id),
        "api": api,
        "attestation": f"{api}/attestation" if signed else None,
        "curl": make_curl_command(f"{base_url(ask.service)}{path}"),
    }


def make_curl_command(url: str) -> str:
    """Return a shell command that reads a URL of the API."""
    return f'curl -s {shlex.quote(url)} \\\n  -H "Authorization: Bearer $COMPATGATE_TOKEN"'


def _name_rules(ids: list[str]) -> list[tuple[str, str]]:
    """Return rule ids with names; a rule that this version does not know has no name."""
    return [(one, BY_ID[one].name if one in BY_ID else "") for one in sorted(ids)]


def _waiver_link(verdict: dict[str, Any]) -> str | None:
    """Return a link to the form for a waiver of the failing rules; None: not possible."""
    begun = draft_waiver_form(verdict)
    return link(*_NEW_WAIVER, **begun) if begun["targets"] and begun["rules"] else None


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
_MAX_CHANGES = 50
"""Entries and pairs that the page shows, the worst ones first; an export has them all."""
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


@page("/what-if", scope="plan", nav="what-if", query=WhatIfQuery)
def show_what_if(ask: PageRequest[WhatIfQuery]) -> HtmlPage:
    """Show every entry in use on a target, before and after a change."""
    query, snapshot = ask.query, ask.gate.snapshot()
    found: WhatIf | None = None
    problem: CompatgateError | None = None
    if query.target and query.is_change:
        try:
            changes = query.changes()
            pool = query.pool or None
            found = ask.gate.compute(
                what_if, snapshot, query.target, changes, clock.now(), pool=pool
            )
        except CompatgateError as error:
            problem = error
    target = snapshot.targets.get(query.target)
    context: dict[str, Any] = {
        "query": query,
        "targets": sorted(snapshot.documents),
        "target": target,
        "gpus": sorted(ask.gate.facts.gpus.gpus),
        "drivers": list(_list_drivers(ask.gate.facts)),
        "cudas": _list_series(ask.gate.facts),
        "found": found,
        "entries": found.entries[:_MAX_CHANGES] if found else (),
        "problem": problem,
        "tally": _count_changes(found) if found else {},
        "pick": lambda **more: _what_if_link(query, **more),
        "left_out": 0,
    }
    table = _change_table(query, found) if found else None
    if table and query.format is None and len(table.rows) > _MAX_CHANGES:
        context["left_out"] = len(table.rows) - _MAX_CHANGES
        table = replace(table, rows=table.rows[:_MAX_CHANGES])
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
