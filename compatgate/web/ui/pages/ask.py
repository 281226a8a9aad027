"""Ask: may this stack run on that target? With what fits, why not, and what would."""

from __future__ import annotations

from typing import Any

from flask import request
from msgspec import Struct
from werkzeug.datastructures import MultiDict

from compatgate.core.components import COMPONENTS, in_order, is_framework, label_of
from compatgate.core.request import parse_request
from compatgate.core.target import Target
from compatgate.errors import CompatgateError
from compatgate.gate.choices import Choice, choices
from compatgate.gate.deciding import asked_target
from compatgate.gate.pasted import Pasted, recognise
from compatgate.store import clock
from compatgate.web.api.gate import moment_of
from compatgate.web.query import parse_query
from compatgate.web.ui.links import link
from compatgate.web.ui.page import Ask, Goto, Shown, page
from compatgate.web.ui.question import Question, as_ci_step, as_command, as_curl, written

_LIBRARIES = ("cuda", "cudnn", "nccl")
_LONGEST_PASTE = 512 * 1024


class Picked(Struct, frozen=True):
    """A component whose versions can be chosen.

    Attributes:
        version: the one that is stated; empty: none.
        href: where its versions are listed.
        choices: its versions, where they are listed.
    """

    name: str
    label: str
    version: str
    href: str
    choices: tuple[Choice, ...] = ()


@page("/ask", scope="gate", nav="ask", query=Question)
def show(ask: Ask[Question]) -> Shown:
    """The question, and its answer as soon as there is enough of it."""
    return _shown(ask, ask.query)


def _shown(
    ask: Ask[Any], question: Question, *, error: CompatgateError | None = None, pasted: str = ""
) -> Shown:
    verdict: dict[str, Any] | None = None
    body: dict[str, Any] = {}
    picked: list[Picked] = []
    try:
        if question.is_complete:
            body = question.body()
            verdict = _answer(ask, question, body)
        picked = _picked(ask, question)
    except CompatgateError as problem:
        error = error or problem
    snapshot = ask.gate.snapshot()
    base = ask.service.settings.public_url or request.host_url.rstrip("/")
    command = as_command(body, base) if verdict else None
    context = {
        "question": question,
        "verdict": verdict,
        "problem": error,
        "pasted": pasted,
        "picked": picked,
        "targets": sorted(snapshot.documents),
        "gpus": sorted(ask.gate.facts.gpus.gpus),
        "curl": as_curl(body, base) if verdict else None,
        "command": command,
        "step": as_ci_step(command) if command else None,
        "fix": question.with_fix,
        "choose": question.with_component,
    }
    return Shown("ask.html", "Ask", context, status=error.status if error else 200)


def _answer(ask: Ask[Any], question: Question, body: dict[str, Any]) -> dict[str, Any]:
    """The verdict now, or as it would have been."""
    if not question.at.strip():
        return ask.gate.preview(body).to_json()
    return ask.gate.what_would(body, at=moment_of(question.at.strip())).to_json()


def _picked(ask: Ask[Any], question: Question) -> list[Picked]:
    """Components that are stated, and those that could be; one of them with its versions."""
    stated = question.stack_body() if question.stack.strip() else {}
    names = [name for name in in_order(COMPONENTS) if name != "driver"]
    frameworks = [n for n in names if is_framework(n)]
    known = [n for n in frameworks if ask.gate.facts.framework(n)]
    found = []
    for name in [*_LIBRARIES, *known]:
        value = stated.get(name)
        here = Picked(
            name,
            label_of(name),
            value if isinstance(value, str) else "",
            question.link(pick=name),
        )
        if question.pick == name:
            here = _with_choices(ask, question, here)
        found.append(here)
    return found


def _with_choices(ask: Ask[Any], question: Question, picked: Picked) -> Picked:
    target, stack = _asked(ask, question)
    if target is None:
        return picked
    found = choices(ask.gate.facts, target, stack, picked.name, clock.now())
    return Picked(picked.name, picked.label, picked.version, picked.href, found)


def _asked(ask: Ask[Any], question: Question) -> tuple[Target | None, Any]:
    """Where and what, as far as the question goes; a stack that is still empty is one as well."""
    if not (question.target or question.driver or question.gpu):
        return None, None
    body = question.body()
    body.pop("image", None)
    empty = "stack" not in body
    body.setdefault("stack", {"arch": ""})
    snapshot = ask.gate.snapshot()
    asked = parse_request(body, snapshot.facts.gpus)
    return asked_target(asked, snapshot), _empty(asked.stack) if empty else asked.stack


def _empty(stack: Any) -> Any:
    return type(stack)({})


@page("/ask/paste", scope="gate", method="POST", nav="ask")
def paste(ask: Ask[Any]) -> Shown | Goto:
    """Fill the question with what somebody pasted."""
    text = ask.form.get("pasted", "")[:_LONGEST_PASTE]
    question = Question(target=ask.form.get("target", ""), stack=ask.form.get("stack", ""))
    try:
        found = recognise(text, ask.gate.facts)
    except CompatgateError as error:
        return _shown(ask, question, error=error, pasted=text)
    return Goto(_filled(ask.form, found), _said(found))


def _filled(form: dict[str, str], found: Pasted) -> str:
    fields = {name: form.get(name, "") for name in ("target", "driver", "gpu", "stack", "image")}
    if found.pools:
        pool = found.pools[0]
        fields |= {"target": "", "driver": str(pool.get("driver") or "")}
        fields |= {"gpu": str(pool.get("gpu") or ""), "os": str(pool.get("os") or "")}
    if found.stack:
        fields["stack"] = written(found.stack)
    if found.image:
        fields["image"] = found.image
    return link("ask", **fields)


def _said(found: Pasted) -> str:
    more = f"; of {len(found.pools)} kinds of GPU, the first was taken" if found.pools[1:] else ""
    notes = "".join(f"; {note}" for note in found.notes[:3])
    return f"Read as {found.kind}{more}{notes}"


@page("/ask/keep", scope="gate", method="POST", nav="ask")
def keep(ask: Ask[Any]) -> Goto:
    """Decide and log: the answer gets a permanent address."""
    given = MultiDict((n, ask.form[n]) for n in Question.__struct_fields__ if ask.form.get(n))
    question = parse_query(Question, given)
    verdict = ask.gate.decide(question.body(), asked_by=ask.principal.name, source="ui")
    return Goto(link("verdicts", verdict.id), "Saved in the decision log.")
