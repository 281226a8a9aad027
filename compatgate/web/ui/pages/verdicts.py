"""A verdict, rule by rule, with all that it rests on."""

from __future__ import annotations

import shlex
from typing import Any

from flask import request

from compatgate.core.rules import BY_ID
from compatgate.core.verdict import EXIT_NO_DECISION, exit_code
from compatgate.gate.waiving import begun_from
from compatgate.store import clock
from compatgate.web.links import base_url, verdict_link
from compatgate.web.route import PREFIX as API
from compatgate.web.ui.links import link
from compatgate.web.ui.page import Ask, Shown, page
from compatgate.web.ui.pages.decisions import listed
from compatgate.web.ui.question import Question, written

_LATEST = 20
_WORDS = {
    "pass": "It may run there.",
    "warn": "It may run there; read the warnings first.",
    "unknown": "Whether it can run there is not known.",
    "fail": "It cannot run there as it is.",
}
_BASES = {
    "image": "read from the image, and nothing else",
    "stated": "as whoever asked stated it",
    "what-if": "changed by the question: a what-if",
}


@page("/verdicts/<verdict_id>", nav="decisions")
def show(ask: Ask[Any]) -> Shown:
    """One verdict as it was first given, and who was told so."""
    verdict_id = ask.args["verdict_id"]
    verdict = ask.gate.show_verdict(verdict_id)
    given = ask.gate.history.list_decisions(verdict_id=verdict_id, limit=_LATEST)
    until = verdict.get("valid_until")
    context = {
        "verdict": verdict,
        "says": _WORDS[verdict["verdict"]],
        "answer": _answer(verdict),
        "basis": _BASES.get(verdict.get("basis", "")),
        "passed": _rules(verdict["checked"]["passed"]),
        "not_applicable": _rules(verdict["checked"]["not_applicable"]),
        "over": until is not None and clock.is_past(clock.from_iso(until)),
        "links": _links(ask, verdict),
    }
    table = listed(given.items, following=None)
    title = f"{verdict['target'] or 'A pool'}: {verdict['verdict']}"
    return Shown("verdict.html", title, {**context, "more": given.next is not None}, table=table)


def _links(ask: Ask[Any], verdict: dict[str, Any]) -> dict[str, str | None]:
    verdict_id = ask.args["verdict_id"]
    base, path = base_url(ask.service), f"{API}/verdicts/{verdict_id}"
    signed = ask.service.settings.signing.make is not None and verdict.get("basis") != "what-if"
    api = f"{request.script_root}{path}"
    return {
        "ask": _ask_again(verdict),
        "waive": _waive(verdict),
        "decisions": link("decisions", verdict_id=verdict_id),
        "api": api,
        "attestation": f"{api}/attestation" if signed else None,
        "curl": as_curl(f"{base}{path}"),
        "permanent": verdict_link(base, verdict_id),
    }


def as_curl(url: str) -> str:
    """A command that reads an address of the API."""
    return f'curl -s {shlex.quote(url)} \\\n  -H "Authorization: Bearer $COMPATGATE_TOKEN"'


def _answer(verdict: dict[str, Any]) -> tuple[str, str]:
    """What the policy made of it: a badge and its text."""
    if verdict["allowed"]:
        return "allowed", "allowed"
    if exit_code(verdict["verdict"], allowed=False) == EXIT_NO_DECISION:
        return "unknown", "no decision"
    return "denied", "denied"


def _rules(ids: list[str]) -> list[tuple[str, str]]:
    """Ids with names; a rule of another version of the gate has none here."""
    return [(one, BY_ID[one].name if one in BY_ID else "") for one in sorted(ids)]


def _ask_again(verdict: dict[str, Any]) -> str:
    where: dict[str, str] = {"target": verdict["target"]} if verdict["target"] else {}
    if not where and verdict["pools"]:
        pool = verdict["pools"][0]
        where = {key: pool[key] for key in ("driver", "gpu", "os", "cpu") if pool.get(key)}
    stack = written({k: v for k, v in verdict["stack"].items() if k != "measured"})
    return Question(stack=stack, image=verdict["image"] or "", **where).link()  # type: ignore[arg-type]


def _waive(verdict: dict[str, Any]) -> str | None:
    """The form for a waiver of what stands in the way."""
    begun = begun_from(verdict)
    return link("new-waiver", **begun) if begun["targets"] and begun["rules"] else None
