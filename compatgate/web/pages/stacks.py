"""Find stacks for a target, with a link to ask about each; compare two side by side."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from compatgate.core.compare.differences import compare_verdicts
from compatgate.core.components import sort_components
from compatgate.core.entry_stacks import represent
from compatgate.core.rule import Finding, Verdict
from compatgate.core.solve import answer_question
from compatgate.core.stack import format_stack, parse_stack_text
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.http.links import link
from compatgate.web.page import MAX_CHOICES, HtmlPage, PageRequest, page
from compatgate.web.pages.question_links import Question, write_stack

_Text = Annotated[str, Meta(max_length=6000)]


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
