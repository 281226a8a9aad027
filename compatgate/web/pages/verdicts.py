"""Show verdicts with their rules and basis."""

from __future__ import annotations

import re
from typing import Any

from flask import request

from compatgate.core.components import COMPONENTS, FRAMEWORKS, label_of
from compatgate.core.rule import REFUSING
from compatgate.core.rules import RULES
from compatgate.errors import NotFound
from compatgate.formats.markdown import render_section
from compatgate.formats.reports import Answer
from compatgate.kit import clock
from compatgate.kit.http.links import API_PREFIX as API
from compatgate.kit.http.links import link
from compatgate.kit.ui.filters import badge_decision, count_things
from compatgate.service.gate.questions.remedies import resolve_verdict
from compatgate.web.page import HtmlPage, PageRequest, Redirect, page
from compatgate.web.pages.decisions import decision_table
from compatgate.web.pages.next_steps import StepPlace, list_steps
from compatgate.web.pages.question_links import Question, format_curl, write_stack
from compatgate.web.service import answer_link, base_url

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
            **_make_links(ask, verdict),
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


_DIGITS_OF_ID = re.compile(r"(?:vd_)?([0-9a-f]{0,32})")
_SHORTEST_ID = 4


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


def _make_links(ask: PageRequest[Any], verdict: dict[str, Any]) -> dict[str, str | None]:
    verdict_id = ask.args["verdict_id"]
    path = f"{API}/verdicts/{verdict_id}"
    signed = ask.service.settings.signing.make is not None and verdict.get("basis") != "what-if"
    api = f"{request.script_root}{path}"
    return {
        "decisions": link("decisions", verdict_id=verdict_id),
        "api": api,
        "attestation": f"{api}/attestation" if signed else None,
        "curl": format_curl(f"{base_url(ask.service)}{path}"),
    }
