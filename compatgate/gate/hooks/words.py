"""A verdict as deploy tools show it: a decision, and one line that says why and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from compatgate.gate.admission.review import one_line

Decision = Literal["allow", "deny", "unknown", "error"]
"""``unknown``: no decision could be had, ask again; ``error``: the question is wrong."""
_LONGEST = 1500
_WEIGHING = ("fail", "unknown", "warn")


def decision(verdict: Mapping[str, Any]) -> Decision:
    """What is to become of a deployment.

    Args:
        verdict: in JSON form; what a change of a target does has the same members.
    """
    if verdict["allowed"]:
        return "allow"
    return "unknown" if verdict["verdict"] == "unknown" else "deny"


def headline(verdict: Mapping[str, Any]) -> str:
    """The decision and the finding that leads to it, in one line."""
    findings = _weighing(verdict)
    said = f"{findings[0]['rule']} {findings[0]['message']}" if findings else "every rule holds"
    return one_line(f"{_answer(verdict)}: {said}", _LONGEST)


def fix(verdict: Mapping[str, Any]) -> str:
    """What would mend the leading finding; empty where nothing is known to."""
    findings = _weighing(verdict)
    fixes = findings[0]["fixes"] if findings else ()
    return one_line(fixes[0]["message"], _LONGEST) if fixes else ""


def also(verdict: Mapping[str, Any]) -> str:
    """Further rules that object."""
    findings = _weighing(verdict)
    worst = {f["rule"] for f in findings if findings and f["outcome"] == findings[0]["outcome"]}
    return ", ".join(sorted(worst - {findings[0]["rule"]})) if findings else ""


def unread(verdict: Mapping[str, Any]) -> str:
    """What was not looked at, an image that is read nowhere first; empty where nothing was."""
    left = verdict["stack"].get("unread") or ()
    return one_line(str(left[0]), _LONGEST) if left else ""


def reason(verdict: Mapping[str, Any], link: str) -> str:
    """All of it in one field: why, what to do, where the verdict is."""
    parts = [headline(verdict)]
    if mend := fix(verdict):
        parts.append(f"fix: {mend}")
    if more := also(verdict):
        parts.append(f"also {more}")
    if left := unread(verdict):
        parts.append(left)
    return "; ".join([*parts, *filter(None, (link,))])


def lines(verdict: Mapping[str, Any], link: str) -> str:
    """The same on lines, the reason first."""
    mend, more = fix(verdict), also(verdict)
    found = [headline(verdict), f"fix: {mend}" if mend else "", f"also: {more}" if more else ""]
    return "\n".join(filter(None, [*found, unread(verdict), link])) + "\n"


def _answer(verdict: Mapping[str, Any]) -> str:
    outcome = verdict["verdict"]
    if not verdict["allowed"]:
        return "no decision" if outcome == "unknown" else "denied"
    if outcome in ("fail", "unknown"):
        what = "it fails" if outcome == "fail" else "it is not known whether it works"
        return f"allowed by mode '{verdict['mode']}', although {what}"
    return "allowed, with warnings" if outcome == "warn" else "allowed"


def _weighing(verdict: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Findings that weigh; the verdict has them worst first."""
    return [f for f in verdict["findings"] if f["outcome"] in _WEIGHING]
