"""Show the page that finds stacks for a target, with a link to ask about each."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from compatgate.core.solve_question import answer_question
from compatgate.core.stack import format_stack, parse_stack_text
from compatgate.kit import clock
from compatgate.kit.http.links import link
from compatgate.web.page import HtmlPage, PageRequest, page

_Text = Annotated[str, Meta(max_length=6000)]


class SolveQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Query parameters of the page.

    Attributes:
        target: its name; if empty, ``driver`` and ``gpu`` describe a pool.
        second: another target on which the stacks must pass, too.
        want: ``torch>=2.6,flash-attn``.
        stack: stack to change as little as possible, ``torch=2.4.1,cuda=12.1``.
        warnings: ``no`` leaves out stacks that pass with warnings.
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
