"""``POST /gate``: the question that everything here is for; and the same as "what if"."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from compatgate.errors import BadInput
from compatgate.store.clock import parse_moment
from compatgate.web.asking import answer_here
from compatgate.web.call import Call, Reply
from compatgate.web.route import Body, NoQuery, Returns, route
from compatgate.wire.examples import QUESTIONS
from compatgate.wire.verdicts import GateRequest, VerdictBody

_QUESTION = Body(GateRequest, examples=QUESTIONS)
_VERDICT = Returns(VerdictBody, "The verdict; denials are answered 200 as well")
_LARGEST_REVISION = 2**31 - 1


@route(
    "POST",
    "/gate",
    scope="gate",
    tag="gate",
    body=_QUESTION,
    returns=_VERDICT,
    errors=(404, 502, 503, 504),
)
def ask(call: Call[NoQuery]) -> Reply:
    """Decide whether a stack may run on a target or pool.

    The decision is in the decision log before it is answered. Asking again gives the same id.

    An `image` whose registry the operator allows (`serve --registry`) is read: its stack wins over
    the stated one, a contradiction is a finding, and the answer's `image` has the digest. Any other
    image is a label; the answer says that it was not read, and the stack must be stated.
    """
    return Reply(answer_here(call.raw(), call.principal, call.service))


class When(Struct, frozen=True, forbid_unknown_fields=True):
    """Which matrix to ask."""

    at: Annotated[
        str | None,
        Meta(
            description="an older matrix: a revision, or a time (a date means its end, UTC)",
            examples=["41", "2026-11-03"],
        ),
    ] = None


@route(
    "POST",
    "/gate/preview",
    scope="gate",
    tag="gate",
    query=When,
    body=_QUESTION,
    returns=_VERDICT,
    errors=(404, 502, 503, 504),
)
def preview(call: Call[When]) -> Reply:
    """Say what the gate would answer, or would have answered; nothing is logged."""
    question: dict[str, Any] = call.document()
    if call.query.at is None:
        return Reply(call.gate.preview(question).to_json())
    return Reply(call.gate.what_would(question, at=moment_of(call.query.at)).to_json())


def moment_of(text: str) -> int | datetime:
    """The revision or the time that ``at`` names.

    Raises:
        BadInput: it is neither.
    """
    if not text.isascii() or not text.isdigit():
        return parse_moment(text, field="at", end_of_day=True)
    if len(text) > 10 or int(text) > _LARGEST_REVISION:
        raise BadInput("there is no such revision", field="at", value=text)
    return int(text)
