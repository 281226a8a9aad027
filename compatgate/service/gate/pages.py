"""Show verdicts with their rules and basis."""

from __future__ import annotations

import re
import shlex
from typing import Any

from flask import request

from compatgate.core.rules import BY_ID
from compatgate.errors import NotFound
from compatgate.kit import clock
from compatgate.kit.http.links import API_PREFIX as API
from compatgate.kit.http.links import link
from compatgate.service.gate.decisions_page import decision_table
from compatgate.service.gate.shared_verdict import (
    SharedVerdict,
    decision_badge,
    question_of,
    share_verdict,
    steps_of,
)
from compatgate.service.waivers.service import draft_waiver_form
from compatgate.service.web.call import base_url, verdict_link
from compatgate.service.web.page import HtmlPage, PageRequest, Redirect, page

_MAX_DECISIONS = 20
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
    steps = steps_of(verdict, ask.gate, base_url(ask.service))
    context = {
        "verdict": verdict,
        "answer": decision_badge(verdict),
        "basis": _BASIS_TEXTS.get(verdict.get("basis", "")),
        "compared": ask.gate.runs.comparisons(verdict["evidence"]),
        "passed": _name_rules(verdict["checked"]["passed"]),
        "not_applicable": _name_rules(verdict["checked"]["not_applicable"]),
        "over": until is not None and clock.is_past(clock.from_iso(until)),
        "links": _make_links(ask, verdict),
        "shared": _share(ask, verdict),
        "steps": steps,
        "waived_below": any(one.form and one.form.path == _NEW_WAIVER for one in steps),
        "fix": question_of(verdict).with_fix,
    }
    known = {verdict_id: verdict}
    table = decision_table(given.items, known)
    title = f"{verdict['target'] or 'A pool'}: {verdict['verdict']}"
    return HtmlPage("verdict.html", title, {**context, "more": given.next is not None}, table=table)


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
    base, path = base_url(ask.service), f"{API}/verdicts/{verdict_id}"
    signed = ask.service.settings.signing.make is not None and verdict.get("basis") != "what-if"
    api = f"{request.script_root}{path}"
    return {
        "ask": question_of(verdict).link(),
        "waive": _waiver_link(verdict),
        "decisions": link("decisions", verdict_id=verdict_id),
        "api": api,
        "attestation": f"{api}/attestation" if signed else None,
        "curl": make_curl_command(f"{base}{path}"),
        "permanent": verdict_link(base, verdict_id),
    }


def _share(ask: PageRequest[Any], verdict: dict[str, Any]) -> SharedVerdict:
    """Return what the panel Share offers; links without a token only where the operator says so."""
    links = ask.service.settings.verdict_links
    if links is not None:
        return share_verdict(verdict, links)
    return SharedVerdict(verdict, verdict_link(base_url(ask.service), verdict["id"]))


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
