"""Show the page Triage: paste an error, read its causes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from compatgate.errors import BadInput
from compatgate.service.gate.advice.api import name_causes
from compatgate.service.gate.advice.schemas import MAX_PASTE
from compatgate.web.page import HtmlPage, PageRequest, page
from compatgate.web.pages.question_links import Question

_PLACE = ("target", "driver", "gpu", "stack")


@page("/triage", scope="gate", nav="triage")
def show_triage(ask: PageRequest[Any]) -> HtmlPage:
    """Show the form."""
    return _page(ask, _question_of(ask.form))


@page("/triage/causes", scope="gate", method="POST", nav="triage", refused=show_triage)
def show_causes(ask: PageRequest[Any]) -> HtmlPage:
    """Show the causes of a posted text; nothing is stored."""
    text, question = ask.form.get("text", ""), _question_of(ask.form)
    if not text.strip():
        raise BadInput("is empty", field="text", hint="paste an error or a log")
    if len(text) > MAX_PASTE:
        hint = "paste the lines around the first error"
        raise BadInput(f"has more than {MAX_PASTE} characters", field="text", hint=hint)
    found = name_causes(ask.gate, text, question.body() if question != Question() else {})
    causes = [cause.to_json() for cause in found.causes]
    return _page(ask, _fill(question, found.stated), causes)


def _question_of(form: Mapping[str, str]) -> Question:
    target, driver, gpu, stack = (form.get(name, "").strip() for name in _PLACE)
    return Question(target=target, driver=driver, gpu=gpu, stack=stack)


def _fill(question: Question, stated: Mapping[str, str]) -> Question:
    """Return the question with the values that the text states and that were used."""
    place = {name: value for name, value in stated.items() if name in ("driver", "gpu")}
    stack = {name: value for name, value in stated.items() if name not in place}
    text = ",".join(f"{name}={value}" for name, value in stack.items())
    return replace(question, **place, **({"stack": text} if stack else {}))


def _page(
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
