"""``POST /hooks/flagger``: Flagger's webhooks, of every type."""

from __future__ import annotations

from compatgate.errors import CompatgateError
from compatgate.gate.admission.review import one_line
from compatgate.gate.hooks import flagger, words
from compatgate.web.call import Call, Reply
from compatgate.web.hooks.deploying import Asked, Hook, status_of
from compatgate.web.route import HOOKS, Body, Returns, route
from compatgate.wire.deploying import FLAGGER, FlaggerPayload, FlaggerQuery

TEXT = "text/plain"
_CHARSET = f"{TEXT}; charset=utf-8"
_LONGEST = 1500


@route(
    "POST",
    "/flagger",
    prefix=HOOKS,
    scope="gate",
    tag="hooks",
    name="ask_flagger",
    query=FlaggerQuery,
    body=Body(FlaggerPayload, examples=FLAGGER),
    returns=Returns(str, "Yes: the canary advances; a rollback hook rolls back", media=(TEXT,)),
    errors=(404, 409, 424),
    refusal=str,
    refusal_media=TEXT,
    signed=True,
)
def ask(call: Call[FlaggerQuery]) -> Reply:
    """Decide about a canary, as a webhook of Flagger.

    The first line of the answer is the reason, for Flagger writes it into the events of the Canary:
    409 where the gate denies, 424 where it cannot decide. A `rollback` hook is the other way round:
    200 where the gate denies, and nothing else rolls back. An `event` is answered 200 and nothing
    is decided. `metadata` names the `type` of the hook, `target`, `stack`, `image` and `set`.
    """
    raise NotImplementedError  # `HOOK` answers


def _answer(asked: Asked) -> Reply:
    flagger.check(asked.document)
    kind = flagger.hook_type(asked.document, asked.query.type)
    if kind == "event":
        return _text("noted: an event, nothing was decided\n", flagger.YES)
    verdict, link = asked.decide(flagger.question(asked.document), "flagger")
    decision = words.decision(verdict)
    said = flagger.said(kind, decision, words.lines(verdict, link))
    return _text(said, flagger.status(kind, decision))


def _refused(error: CompatgateError) -> Reply:
    answer = "no decision" if error.status >= 500 else "error"
    return _text(f"{answer}: {one_line(error.detail, _LONGEST)}\n", status_of(error))


def _text(text: str, status: int) -> Reply:
    return Reply(text.encode(), status=status, media=_CHARSET)


HOOK = Hook(ask, _answer, _refused)
