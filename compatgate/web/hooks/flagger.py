"""``POST /hooks/flagger``: Flagger's webhooks, of every type."""

from __future__ import annotations

from compatgate.errors import CompatgateError
from compatgate.gate.hooks import flagger, words
from compatgate.web.call import Call, Reply
from compatgate.web.hooks.deploying import decide, hook, reason_of, status_of
from compatgate.web.route import Body, Returns
from compatgate.wire.deploying import FLAGGER, FlaggerPayload, FlaggerQuery

TEXT = "text/plain"
_CHARSET = f"{TEXT}; charset=utf-8"


def _refused(error: CompatgateError) -> Reply:
    return _text(f"{reason_of(error)}\n", status_of(error))


def _text(text: str, status: int) -> Reply:
    return Reply(text.encode(), status=status, media=_CHARSET)


@hook(
    "POST",
    "/flagger",
    name="ask_flagger",
    query=FlaggerQuery,
    body=Body(FlaggerPayload, examples=FLAGGER),
    returns=Returns(str, "Yes: the canary advances; a rollback hook rolls back", media=(TEXT,)),
    refused=_refused,
)
def ask(call: Call[FlaggerQuery]) -> Reply:
    """Decide about a canary, as a webhook of Flagger.

    The first line of the answer is the reason, for Flagger writes it into the events of the Canary:
    409 where the gate denies, 424 where it cannot decide. A `rollback` hook is the other way round:
    200 where the gate denies, and nothing else rolls back. An `event` is answered 200 and nothing
    is decided. `metadata` names the `type` of the hook, `target`, `stack`, `image` and `set`.
    """
    payload, query = call.document(), call.query
    flagger.check(payload)
    kind = flagger.hook_type(payload, query.type)
    if kind == "event":
        return _text("noted: an event, nothing was decided\n", flagger.YES)
    verdict, link = decide(call, flagger.question(payload), "flagger", query.timeout)
    decision = words.decision(verdict)
    said = flagger.said(kind, decision, words.lines(verdict, link))
    return _text(said, flagger.status(kind, decision))
