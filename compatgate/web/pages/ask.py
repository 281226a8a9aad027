"""Show the page Ask, which also reads pasted text and lists the versions that the facts allow.

Beside it, Triage names the causes of a pasted error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from flask import request
from msgspec import Struct
from msgspec.structs import replace
from werkzeug.datastructures import MultiDict

from compatgate.catalog import read_source
from compatgate.core.components import COMPONENTS, is_framework, label_of, sort_components
from compatgate.core.entry_stacks import known_versions
from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts
from compatgate.core.request import Target, parse_request
from compatgate.core.stack import Stack, format_stack, parse_stack
from compatgate.discovery.pasted import PastedText, read_pasted
from compatgate.errors import BadInput, CompatgateError
from compatgate.kit import clock
from compatgate.kit.http.limits import peer_address
from compatgate.kit.http.links import API_PREFIX, link
from compatgate.kit.http.requests import parse_query
from compatgate.service.gate.advice.api import name_causes
from compatgate.service.gate.advice.cells import PlaceAnswers, answer_places
from compatgate.service.gate.advice.schemas import MAX_PASTE
from compatgate.service.gate.questions.api import parse_matrix_time
from compatgate.service.gate.questions.decider import resolve_target
from compatgate.web.page import HtmlPage, PageRequest, Redirect, page
from compatgate.web.pages.cells import TONES
from compatgate.web.pages.question_links import (
    Question,
    format_ci_step,
    format_command,
    format_curl,
    read_words,
)

MAX_PLACES = 40
"""Pools that a question about a GPU is answered for."""
MAX_VERSIONS = 48
"""Versions in the list, the newest; a user can type older ones."""
_TRIAGED = ("target", "driver", "gpu", "stack")
_LIBRARIES = ("cuda", "cudnn", "nccl")
_PASTED = ("target", "stack")
"""Fields of the question that the form for pasted text sends along."""
LONGEST_PASTE = 512 * 1024
"""Characters of pasted text that are read."""


class Choice(Struct, frozen=True):
    """A version, with the first finding against it; ``chosen``: the question states it."""

    version: str
    fits: bool
    why: str
    chosen: bool


def list_choices(
    facts: Facts, target: Target, stack: Stack, component: str, now: datetime
) -> tuple[Choice, ...]:
    """Return versions of a component, newest first.

    A version fits unless a rule fails that holds without the component: faults of the rest of the
    stack do not count.
    """
    others = {name: v for name, v in stack.components.items() if name != component}
    rest = replace(stack, components=others)
    wrong = set(_list_failures(facts, target, rest, now)) if others or stack.arch else set()
    stated = stack.get(component)
    found = []
    listed = sorted(known_versions(facts, component), reverse=True)[:MAX_VERSIONS]
    if stated is not None and all(version.key != stated.key for version in listed):
        listed = [stated, *listed]
    for version in listed:
        tried = replace(stack, components={**others, component: version})
        failing = _list_failures(facts, target, tried, now)
        new = [message for rule, message in failing.items() if rule not in wrong]
        chosen = stated is not None and version.key == stated.key
        found.append(Choice(version.text, not new, new[0] if new else "", chosen))
    return tuple(found)


def _list_failures(facts: Facts, target: Target, stack: Stack, now: datetime) -> dict[str, str]:
    verdict = evaluate(stack, target, facts=facts, now=now, with_fixes=False)
    return {f.rule: f.message for f in verdict.findings if f.outcome == "fail"}


class ComponentChoice(Struct, frozen=True):
    """A component with selectable versions; ``version``: as stated; ``href`` lists them."""

    name: str
    label: str
    version: str
    href: str
    choices: tuple[Choice, ...] = ()


@page("/ask", scope="gate", nav="ask", query=Question)
def show_question(ask: PageRequest[Any]) -> HtmlPage:
    """Show the question, and its answer once the question is complete."""
    question = ask.query if isinstance(ask.query, Question) else _read_form(ask.form, _PASTED)
    error: CompatgateError | None = None
    verdict: dict[str, Any] | None = None
    places: PlaceAnswers | None = None
    body: dict[str, Any] = {}
    picked: list[ComponentChoice] = []
    typed, snapshot = question.stack, ask.gate.snapshot()
    assumed: tuple[str, ...] = ()
    try:
        question, assumed = read_words(question, ask.gate.facts, snapshot.targets)
        if question.asks_pools:
            stack = parse_stack(question.stack_body())
            places = answer_places(snapshot, stack, question.gpu, clock.now(), MAX_PLACES)
        if question.is_complete and not (places and places.places):
            body = question.body()
            at = question.at.strip()
            decided = ask.gate.what_would(body, at=parse_matrix_time(at)) if at else None
            verdict = (decided or ask.gate.preview(body)).to_json()
        picked = _list_component_choices(ask, question)
    except CompatgateError as problem:
        error = problem
    base = ask.service.settings.public_url or request.host_url.rstrip("/")
    command = format_command(body, base) if verdict else None
    context = {
        "question": question,
        "typed": typed if error else question.stack,
        "assumed": assumed,
        "verdict": verdict,
        "places": places,
        "tones": TONES,
        "pasted": ask.form.get("pasted", "")[:LONGEST_PASTE],
        "picked": picked,
        "targets": sorted(snapshot.documents),
        "gpus": sorted(ask.gate.facts.gpus.gpus),
        "curl": format_curl(f"{base}{API_PREFIX}/gate", body) if verdict else None,
        "command": command,
        "step": format_ci_step(command) if command else None,
        "fix": question.with_fix,
        "choose": question.with_component,
    }
    return HtmlPage("ask.html", "Ask", context, error=error)


def _list_component_choices(ask: PageRequest[Any], question: Question) -> list[ComponentChoice]:
    """Return the components to choose from; the picked one has its versions."""
    stated = question.stack_body() if question.stack.strip() else {}
    frameworks = filter(is_framework, sort_components(COMPONENTS))
    known = [name for name in frameworks if ask.gate.facts.framework(name)]
    found = []
    for name in [*_LIBRARIES, *known]:
        value = stated.get(name)
        choices: tuple[Choice, ...] = ()
        if question.pick == name and (place := _resolve_question(ask, question)) is not None:
            choices = list_choices(ask.gate.facts, *place, name, clock.now())
        version, href = value if isinstance(value, str) else "", question.link(pick=name)
        found.append(ComponentChoice(name, label_of(name), version, href, choices))
    return found


def _resolve_question(ask: PageRequest[Any], question: Question) -> tuple[Target, Stack] | None:
    """Return the target and the stack of a question, which may be empty; None: it has no place."""
    if not (question.target or question.driver or question.gpu):
        return None
    body = question.body()
    body.pop("image", None)
    empty = "stack" not in body
    body.setdefault("stack", {"arch": ""})
    snapshot = ask.gate.snapshot()
    asked = parse_request(body, snapshot.facts.gpus)
    return resolve_target(asked, snapshot), Stack({}) if empty else asked.stack


@page("/ask/paste", scope="gate", method="POST", nav="ask", refused=show_question)
def paste_question(ask: PageRequest[Any]) -> Redirect:
    """Fill the question from pasted text."""
    return fill_question(ask.form, read_text(ask, ask.form.get("pasted", "")[:LONGEST_PASTE]))


def read_text(ask: PageRequest[Any], text: str) -> PastedText:
    """Recognise and read pasted text."""
    return read_pasted(text, ask.gate.facts, read_source("image_signals"))


def _read_form(form: Mapping[str, str], names: Iterable[str]) -> Question:
    return parse_query(Question, MultiDict((name, form[name]) for name in names if form.get(name)))


def fill_question(form: dict[str, str], found: PastedText) -> Redirect:
    """Return the way to the page Ask, filled from pasted text; other fields stay as they are."""
    fields = {name: form.get(name, "") for name in ("target", "driver", "gpu", "stack", "image")}
    if found.pools:
        pool = found.pools[0]
        fields |= {"target": "", "driver": str(pool.get("driver") or "")}
        fields |= {"gpu": str(pool.get("gpu") or ""), "os": str(pool.get("os") or "")}
    if found.stack:
        fields["stack"] = format_stack(found.stack)
    if found.image:
        fields["image"] = found.image
    more = f"; used the first of {len(found.pools)} pools" if found.pools[1:] else ""
    notes = "".join(f"; {note}" for note in found.notes[:3])
    return Redirect(link("ask", **fields), f"Read as {found.kind}{more}{notes}")


@page("/ask/keep", scope="gate", method="POST", nav="ask")
def log_question(ask: PageRequest[Any]) -> Redirect:
    """Decide and log the question, and show the verdict at its permanent link."""
    question = _read_form(ask.form, Question.__struct_fields__)
    ask.service.limits.take_question(ask.principal, peer_address())
    verdict = ask.gate.decide(question.body(), asked_by=ask.principal.name, source="ui")
    return Redirect(link("verdicts", verdict.id), "Saved in the decision log.")


@page("/triage", scope="gate", nav="triage")
def show_triage(ask: PageRequest[Any]) -> HtmlPage:
    """Show the form."""
    return _triage_page(ask, _read_triaged(ask.form))


@page("/triage/causes", scope="gate", method="POST", nav="triage", refused=show_triage)
def show_causes(ask: PageRequest[Any]) -> HtmlPage:
    """Show the causes of a posted text; nothing is stored."""
    text, question = ask.form.get("text", ""), _read_triaged(ask.form)
    if not text.strip():
        raise BadInput("is empty", field="text", hint="paste an error or a log")
    if len(text) > MAX_PASTE:
        hint = "paste the lines around the first error"
        raise BadInput(f"has more than {MAX_PASTE} characters", field="text", hint=hint)
    found = name_causes(ask.gate, text, question.body() if question != Question() else {})
    # the question shows the values that the text states and that were used
    place = {name: value for name, value in found.stated.items() if name in ("driver", "gpu")}
    stack = ",".join(f"{name}={v}" for name, v in found.stated.items() if name not in place)
    question = replace(question, **place, **({"stack": stack} if stack else {}))
    return _triage_page(ask, question, [cause.to_json() for cause in found.causes])


def _read_triaged(form: Mapping[str, str]) -> Question:
    target, driver, gpu, stack = (form.get(name, "").strip() for name in _TRIAGED)
    return Question(target=target, driver=driver, gpu=gpu, stack=stack)


def _triage_page(
    ask: PageRequest[Any], question: Question, causes: list[dict[str, Any]] | None = None
) -> HtmlPage:
    context = {
        "text": ask.form.get("text", "")[:MAX_PASTE],
        "question": question,
        "causes": causes,
        "targets": sorted(ask.gate.snapshot().documents),
        "gpus": sorted(ask.gate.facts.gpus.gpus),
        "fix": question.with_fix,
    }
    return HtmlPage("triage.html", "Triage", context)
