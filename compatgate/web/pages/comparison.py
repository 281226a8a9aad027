"""Show what a change of a target does, which stacks pass on it, and two stacks side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from compatgate.core.compare.differences import compare_verdicts
from compatgate.core.components import sort_components
from compatgate.core.entry_stacks import known_versions, represent
from compatgate.core.facts import Facts
from compatgate.core.request import parse_changes_text
from compatgate.core.rule import Finding, Verdict
from compatgate.core.solve import answer_question
from compatgate.core.stack import format_stack, parse_stack_text
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.http.links import link
from compatgate.kit.ui.tables import Cell, TableQuery, make_table
from compatgate.service.changes.comparison.sections import arrange_outlook
from compatgate.service.changes.comparison.service import plan_upgrade
from compatgate.web.page import MAX_CHOICES, HtmlPage, PageRequest, listing, page
from compatgate.web.pages.question_links import Question, write_stack

_Word = Annotated[str, Meta(max_length=256)]
_MAX_SHOWN = 50
"""Rows that the page shows, the worst first; an export has them all."""
_TONES = {"breaks": "fail", "worsens": "warn", "improves": "pass", "same": "muted"}
_CAUSES = {
    "facts": "Facts: what the vendors' facts break",
    "matrix": "Matrix: what needs an edited entry",
    "evidence": "Evidence: what needs a canary run",
}
_PARTS = ("driver", "gpu", "cuda")
_Text = Annotated[str, Meta(max_length=6000)]


class ChangeQuery(TableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The target, and the changes to it: ``set`` has others, like ``kernel-modules=open``."""

    target: _Word = ""
    pool: _Word = ""
    driver: _Word = ""
    gpu: _Word = ""
    cuda: _Word = ""
    set: _Word = ""

    def body(self) -> dict[str, Any]:
        """Return the question; without changes it asks nothing."""
        changes = parse_changes_text(self.set)
        changes |= {n: v for n in _PARTS if (v := getattr(self, n).strip())}
        return {"set": changes, "pool": self.pool or None}

    def link(self, **more: str) -> str:
        """Return the link to this question with some fields changed."""
        named = {name: getattr(self, name) for name in ("target", "pool", *_PARTS, "set")}
        return link("what-if", **{**named, **more})


def _change_page(ask: PageRequest[ChangeQuery], plan: dict[str, Any] | None = None) -> HtmlPage:
    query, snapshot, facts = _query_of(ask), ask.gate.snapshot(), ask.gate.facts
    pairs = {version.major_minor for version in known_versions(facts, "cuda")}
    context: dict[str, Any] = {
        "query": query,
        "targets": sorted(snapshot.documents),
        "target": snapshot.targets.get(query.target),
        "gpus": sorted(facts.gpus.gpus),
        "drivers": list(_list_drivers(facts)),
        "cudas": [f"{major}.{minor}" for major, minor in sorted(pairs, reverse=True)],
        "found": plan,
        "left_out": 0,
    }
    table = None
    if plan:
        context |= _describe(ask, plan)
        rows = [row for one in plan["subjects"] for row in _list_rows(one)]
        name = f"what-if-{plan['target']}"
        table = make_table(replace(listing("what-if"), name=name), rows, dict, sort=query.sort)
        if query.format is None:
            context["left_out"] = max(0, len(table.rows) - _MAX_SHOWN)
            table = replace(table, rows=table.rows[:_MAX_SHOWN])
    title = f"What a change of {query.target} breaks" if query.target else "What a change breaks"
    return HtmlPage("what-if.html", title, context, table)


def _query_of(ask: PageRequest[ChangeQuery]) -> ChangeQuery:
    """Return the question; the page of a target names the target in its address."""
    return replace(ask.query, target=ask.args["name"]) if "name" in ask.args else ask.query


def _plan_change(ask: PageRequest[ChangeQuery]) -> HtmlPage:
    query, gate, rooms = _query_of(ask), ask.gate, ask.rooms
    if not query.target or not (body := query.body())["set"]:
        return _change_page(ask)
    return _change_page(ask, plan_upgrade(gate, rooms.matrix, rooms.nodes, query.target, body))


@page("/what-if", scope="plan", nav="what-if", query=ChangeQuery, refused=_change_page)
def show_change(ask: PageRequest[ChangeQuery]) -> HtmlPage:
    """Show everything in use on a target before and after a change, and what the change needs."""
    return _plan_change(ask)


@page("/targets/<name>/plan", scope="plan", nav="what-if", query=ChangeQuery, refused=_change_page)
def show_plan(ask: PageRequest[ChangeQuery]) -> HtmlPage:
    """Show the same page at the address of a target."""
    ask.rooms.matrix.get("Target", ask.args["name"])
    return _plan_change(ask)


def _describe(ask: PageRequest[Any], plan: dict[str, Any]) -> dict[str, Any]:
    lost = [one for one in plan["subjects"] if one["change"] in ("breaks", "worsens")]
    groups = [
        (title, [group for group in plan["groups"] if group["cause"] == cause])
        for cause, title in _CAUSES.items()
    ]
    breaks = any(f["outcome"] == "fail" for f in plan["host"]) or any(
        one["change"] == "breaks" and one["cause"] in ("facts", None) for one in lost
    )
    words = ", ".join(f"{name} {value or 'removed'}" for name, value in plan["set"].items())
    target, driver = plan["target"], plan["set"].get("driver")
    name = f"{target}-{driver}"[:128].rstrip(".-_")
    return {
        "tone": plan["verdict"] if breaks or plan["verdict"] != "fail" else "warn",
        "breaks": breaks,
        "groups": [(title, found) for title, found in groups if found],
        "counts": {cause: sum(one["cause"] == cause for one in lost) for cause in _CAUSES},
        "same": sum(one["change"] == "same" for one in plan["subjects"]),
        "improves": sum(one["change"] == "improves" for one in plan["subjects"]),
        "images": {one["name"]: one["image"] for one in plan["subjects"]},
        "sections": arrange_outlook(plan),
        "reason": f"{words} on {target}",
        "upgrade": link(
            "new-upgrade", name=name, target=target, driver=driver, pool=ask.query.pool
        ),
        "no_upgrade": _explain_no_upgrade(ask, plan),
    }


def _list_drivers(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield the newest driver of each supported branch, newest first, with a note.

    A branch without a published end may be supported if it is newer than one that is.
    """
    branches, today = facts.driver_branches.branches, clock.today().isoformat()
    oldest = min((n for n, one in branches.items() if (one.eol or "") >= today), default=0)
    for number in sorted(branches, reverse=True):
        branch = branches[number]
        has_ended = branch.ended or (branch.eol or today) < today
        if branch.last is not None and not has_ended and number >= oldest:
            until = f", supported to {branch.eol}" if branch.eol else ""
            yield branch.last.text, f"branch {number}{until}"


def _list_rows(one: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    place = "entries" if one["kind"] == "entry" else "verdicts"
    subject = {
        "name": Cell(one["image"] or one["name"], link(place, one["name"])),
        "status": one["status"],
    }
    if one["open"]:
        nothing = dict.fromkeys(("pool", "cause", "fix"), "")
        unknown = {"before": "unknown", "after": "unknown", "change": "open"}
        yield subject | nothing | unknown | {"why": "; ".join(one["open"])}
    for pool in one["pools"]:
        found = pool["lost"] or pool["gained"]
        tone = "warn" if pool["cause"] in ("matrix", "evidence") else _TONES[pool["change"]]
        why = "; ".join(f"{f['rule']} {f['message']}" for f in found)
        fixes = [fix["message"] for f in pool["lost"] for fix in f["fixes"][:1]]
        yield {
            **subject,
            **pool,
            "change": Cell(pool["change"], tone=tone),
            "why": why if pool["lost"] or not why else f"resolved: {why}",
            "fix": "; ".join(fixes),
        }


def _explain_no_upgrade(ask: PageRequest[Any], plan: Mapping[str, Any]) -> str:
    if "driver" not in plan["set"]:
        return "An upgrade rolls out a driver; this change names none."
    if others := [name for name in plan["set"] if name != "driver"]:
        return f"An upgrade rolls out a driver alone; leave out {' and '.join(others)}."
    if not plan["order"]["waves"]:
        return (
            "No node of this target reports an older driver, so there is nothing to roll out."
            " Nodes report with compatgate nodes report."
        )
    if not ask.principal.may("upgrade"):
        return "To create an upgrade, sign in with the scope upgrade."
    return ""


class SolveQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Query parameters of the page.

    Without a target, ``driver`` and ``gpu`` describe a pool; ``second``: another target on which
    the stacks must pass, too. ``stack`` is to change as little as possible.
    """

    target: _Text = ""
    second: _Text = ""
    driver: _Text = ""
    gpu: _Text = ""
    want: _Text = ""
    stack: _Text = ""
    warnings: Literal["", "yes", "no"] = ""

    @property
    def is_complete(self) -> bool:
        """Tell whether the question can be answered."""
        return bool((self.target or self.driver or self.gpu) and self.want.strip())

    def body(self) -> dict[str, Any]:
        """Return the body of ``POST /solve``."""
        body: dict[str, Any] = {"want": [self.want]}
        if self.target:
            body["targets"] = [name for name in (self.target, self.second) if name]
        else:
            described = {"driver": self.driver.strip(), "gpu": self.gpu.strip()}
            body["pool"] = {name: value for name, value in described.items() if value}
        if self.stack.strip():
            body["from"] = parse_stack_text(self.stack)
        if self.warnings == "no":
            body["warnings"] = False
        return body

    def link_to(self, stack: dict[str, Any]) -> str:
        """Return the link that asks about a stack on the same target or pool."""
        where = {"target": self.target, "driver": self.driver, "gpu": self.gpu}
        return link("ask", **where, stack=format_stack(stack))


def _solve_page(ask: PageRequest[SolveQuery], found: dict[str, Any] | None = None) -> HtmlPage:
    snapshot = ask.gate.snapshot()
    context = {
        "found": found,
        "targets": sorted(snapshot.documents),
        "gpus": sorted(snapshot.facts.gpus.gpus),
        "ask": ask.query.link_to,
    }
    return HtmlPage("solve.html", "Find a stack", context)


@page("/solve", scope="plan", nav="ask", query=SolveQuery, refused=_solve_page)
def show_solve(ask: PageRequest[SolveQuery]) -> HtmlPage:
    """Show stacks that pass, best first, or the nearest misses."""
    query, snapshot = ask.query, ask.gate.snapshot()
    if not query.is_complete:
        return _solve_page(ask)
    found = ask.gate.compute(
        answer_question,
        query.body(),
        snapshot.target,
        facts=snapshot.facts,
        matrix=snapshot.matrix,
        now=clock.now(),
    )
    return _solve_page(ask, found)


class CompareQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The target, and two stacks: each as text, or as the name of an entry."""

    target: _Text = ""
    left: _Text = ""
    right: _Text = ""


class Side(Struct, frozen=True):
    """A stack with its verdict; ``entry``: whose newest stack it is; empty: it was stated."""

    stack: dict[str, Any]
    verdict: Verdict
    entry: str = ""

    @property
    def question(self) -> Question:
        """Return the question that asks about it."""
        return Question(target=self.verdict.target or "", stack=write_stack(self.stack))


def _compare_page(ask: PageRequest[CompareQuery], *sides: Side) -> HtmlPage:
    snapshot = ask.gate.snapshot()
    context = {
        "targets": sorted(snapshot.documents),
        "entries": sorted(snapshot.entries)[:MAX_CHOICES],
        "sides": sides,
        "parts": [],
        "difference": None,
        "findings": (),
    }
    if sides:
        context |= _compare_sides(*sides)
    return HtmlPage("compare.html", "Compare two stacks", context)


@page("/compare", scope="gate", nav="ask", query=CompareQuery, refused=_compare_page)
def compare_stacks(ask: PageRequest[CompareQuery]) -> HtmlPage:
    """Show components, verdicts, findings and evidence of two stacks on a target."""
    query = ask.query
    if not (query.target and query.left.strip() and query.right.strip()):
        return _compare_page(ask)
    return _compare_page(ask, _read_side(ask, "left"), _read_side(ask, "right"))


def _read_side(ask: PageRequest[CompareQuery], field: str) -> Side:
    text, snapshot = getattr(ask.query, field).strip(), ask.gate.snapshot()
    entry = snapshot.entries.get(text)
    try:
        if entry is None:
            stack = Question(target=ask.query.target, stack=text).stack_body()
        elif stacks := represent(entry, snapshot.facts).stacks:
            stack = stacks[0].to_json()
        else:
            raise BadInput("no known stack represents this entry", field=field, value=text)
        verdict = ask.gate.preview({"target": ask.query.target, "stack": stack})
    except BadInput as error:
        raise error.at(field) if (error.field or "").startswith("stack") else error from None
    return Side(verdict.stack, verdict, entry.name if entry else "")


def _compare_sides(left: Side, right: Side) -> dict[str, Any]:
    names = [name for name in {**left.stack, **right.stack} if name != "measured"]
    parts = [(n, left.stack.get(n), right.stack.get(n)) for n in sort_components(names)]
    ours, theirs = left.verdict.findings, right.verdict.findings
    shared = {_key(one) for one in ours} & {_key(one) for one in theirs}
    left_alone, right_alone = (
        [one.to_json() for one in side if _key(one) not in shared] for side in (ours, theirs)
    )
    both = [one.to_json() for one in ours if _key(one) in shared]
    return {
        "parts": sorted(parts, key=lambda part: part[1] == part[2]),  # what differs comes first
        "difference": compare_verdicts(left.verdict, right.verdict),
        "findings": (left_alone, right_alone, both),
    }


def _key(finding: Finding) -> tuple[str, str | None, str]:
    return finding.rule, finding.component, finding.outcome
