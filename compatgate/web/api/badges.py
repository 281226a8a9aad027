"""Badges: what the gate says of a stack or an entry now, as a picture for a page."""

from __future__ import annotations

from typing import Any

from compatgate.core.matrix import ANY_TARGET, Status
from compatgate.core.stack import parse_stack_text
from compatgate.core.verdict import Outcome, Verdict
from compatgate.errors import NotFound
from compatgate.web.badge import MEDIA, Badge, Look, draw
from compatgate.web.call import Call, Reply
from compatgate.web.route import NoQuery, Returns, route

_BADGE = Returns(str, "The badge", media=(MEDIA,), etag=True)
_VERDICTS: dict[Outcome, Look] = {
    "pass": "good",
    "warn": "doubtful",
    "unknown": "neutral",
    "fail": "bad",
}
_STATUSES: dict[Status, Look] = {
    "blessed": "good",
    "deprecated": "doubtful",
    "candidate": "neutral",
    "revoked": "bad",
}


@route(
    "GET", "/badge/{target}/{stack}.svg", scope="gate", tag="badges", returns=_BADGE, errors=(404,)
)
def stack_badge(call: Call[NoQuery]) -> Reply:
    """Draw what the gate says of a stack on a target.

    The stack is written as on the command line, `cuda=12.4,torch=2.4.1+cu124`. It is asked anew
    each time, as a preview: nothing is logged.
    """
    target = call.args["target"]
    question: dict[str, Any] = {"target": target, "stack": parse_stack_text(call.args["stack"])}
    return Reply(draw(_of_verdict(call.gate.preview(question), target)), media=MEDIA)


@route(
    "GET",
    "/badge/{target}/entry/{entry}.svg",
    scope="read",
    tag="badges",
    returns=_BADGE,
    errors=(404,),
)
def entry_badge(call: Call[NoQuery]) -> Reply:
    """Draw the status of an entry of the matrix on a target."""
    target, name = call.args["target"], call.args["entry"]
    snapshot = call.gate.snapshot()
    snapshot.target(target)
    entry = snapshot.entries.get(name)
    if entry is None or not {target, ANY_TARGET} & set(entry.targets):
        raise NotFound(f"there is no entry {name!r} for {target}", field="entry", value=name)
    title = f"entry {name} on {target}: {entry.status}"
    badge = Badge(f"{target}: {name}", entry.status, _STATUSES[entry.status], title)
    return Reply(draw(badge), media=MEDIA)


def _of_verdict(verdict: Verdict, target: str) -> Badge:
    word: str = verdict.verdict
    if verdict.allowed and word in ("fail", "unknown"):
        word = f"{word}, not enforced"
    stack = ",".join(f"{name}={_shown(value)}" for name, value in verdict.stack.items())
    return Badge(target, word, _VERDICTS[verdict.verdict], f"{stack} on {target}: {word}")


def _shown(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)
