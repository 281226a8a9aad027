"""Serve previews, bundles, verdicts, the decision log, the batches of far gates, and badges.

A badge is a picture of the current verdict on a stack, or of the status of an entry.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from flask import request
from msgspec import Meta, Struct

from compatgate.core.matrix import ANY_TARGET, EntryStatus
from compatgate.core.rule import REFUSING, Outcome
from compatgate.core.stack import parse_stack_text
from compatgate.errors import BadInput, NotFound
from compatgate.kit.clock import parse_moment
from compatgate.kit.http.replies import Reply, is_not_modified, page_reply
from compatgate.kit.http.requests import to_struct
from compatgate.kit.http.route import Body, Call, NoQuery, Returns, Routes
from compatgate.kit.http.schemas import Filter, ListQuery, Since, Until
from compatgate.kit.principal import Principal
from compatgate.kit.ui.assets import BADGE_MEDIA, Badge, Look, draw_badge
from compatgate.service.audit.attestations import Attestations
from compatgate.service.audit.envelope import MEDIA as DSSE
from compatgate.service.gate.decisions.service import Decisions
from compatgate.service.gate.far.bundles import BundleSource
from compatgate.service.gate.far.receiving import DeliveryDesk
from compatgate.service.gate.far.schemas import DeliveryBody, DeliveryRequest
from compatgate.service.gate.questions.remedies import Resolution, resolve_verdict
from compatgate.service.gate.questions.schemas import (
    QUESTION_EXAMPLES,
    BundleBody,
    DecisionBody,
    GateRequest,
    VerdictBody,
)
from compatgate.service.gate.questions.service import Gate

gate_routes = Routes("gate", targets="checked", scope="gate")
decisions_routes = Routes("decisions", targets="checked")
badges_routes = Routes("badges", targets="checked")
QUESTION = Body(GateRequest, examples=QUESTION_EXAMPLES, argument="question", members=True)
VERDICT = Returns(VerdictBody, "The verdict; denials also return 200")
_LARGEST_REVISION = 2**31 - 1


class PreviewOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a preview."""

    at: Annotated[
        str | None,
        Meta(
            description="older matrix to use: a revision, or a time (a date means its end, UTC)",
            examples=["41", "2026-11-03"],
        ),
    ] = None


@gate_routes.post(
    "/gate/preview", VERDICT, query=PreviewOptions, body=QUESTION, errors=(404, 502, 503, 504)
)
def preview(call: Call[PreviewOptions]) -> Reply:
    """Decide a question without logging it, now or with an older matrix."""
    question: dict[str, Any] = call.document()
    call.principal.require_question(question)
    gate, at = call.use(Gate), call.query.at
    if at is None:
        found = gate.preview(question)
    else:
        found = gate.what_would(question, at=parse_matrix_time(at))
    return Reply(gate.with_state(found.to_json()))


def parse_matrix_time(text: str) -> int | datetime:
    """Return the revision or the time that ``at`` names."""
    if not text.isascii() or not text.isdigit():
        return parse_moment(text, field="at", end_of_day=True)
    if len(text) > 10 or int(text) > _LARGEST_REVISION:
        raise BadInput("is not a known revision", field="at", value=text)
    return int(text)


@gate_routes.get(
    "/bundle",
    Returns(BundleBody, "The signed bundle", media=(DSSE,), etag=True),
    targets="refused",
    errors=(409,),
)
def show_bundle(call: Call[NoQuery]) -> Reply:
    """Return the signed bundle: matrix, evidence and overlay facts, to decide elsewhere.

    Poll with `If-None-Match`: 304 needs no database query. `compatgate bundle pull` does that,
    verifies the signature, and refuses an older bundle. The answer is 409 without `serve
    --signing-key`.
    """
    signing, headers = call.use(Attestations), {"Vary": "Accept-Encoding"}
    served = call.use(BundleSource).serve(signing.key_id(), signing.sign_payload)
    if is_not_modified(served.etag):
        return Reply(b"", media=DSSE, etag=served.etag, headers=headers)
    if request.accept_encodings.quality("gzip") <= 0:
        return Reply(served.content, media=DSSE, etag=served.etag, headers=headers)
    headers["Content-Encoding"] = "gzip"
    return Reply(served.compressed, media=DSSE, etag=f"W/{served.etag}", headers=headers)


@gate_routes.shows("/verdicts/{id}", VerdictBody, "The verdict as first given")
def show_verdict(call: Call[NoQuery]) -> Reply:
    """Show a verdict by its id."""
    verdict = call.use(Decisions).show_verdict(call.args["id"])
    require_answered(call.principal, verdict["target"])
    return Reply(verdict)


@gate_routes.get(
    "/verdicts/{id}/resolution",
    Returns(Resolution, "Changes that end in *allowed*, and a waiver of what denies"),
    slow=True,
    errors=(404,),
)
def show_resolution(call: Call[NoQuery]) -> Reply:
    """Show what turns a stored denial into an allowed stack, evaluated on the matrix of now.

    Each of `remedies` is a `set` of changes to the question; the smallest comes first. `waiver` has
    the fields of a waiver; `uncovered` says what denies in spite of it.
    """
    verdict = call.use(Decisions).show_verdict(call.args["id"])
    require_answered(call.principal, verdict["target"])
    return Reply(resolve_verdict(call.use(Gate).snapshot(), verdict))


def require_answered(principal: Principal, target: str | None) -> None:
    """Require that a caller reaches the target of an answer; an answer about a pool has none."""
    if target is not None:
        principal.require_targets([target])


class DecisionFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of decisions."""

    target: Filter | None = None
    verdict: Annotated[Outcome, Meta(description="outcome of the verdict")] | None = None
    verdict_id: Filter | None = None
    allowed: bool | None = None
    asked_by: Filter | None = None
    source: (
        Annotated[Filter, Meta(description="channel of the question", examples=["rest"])] | None
    ) = None
    image: Annotated[Filter, Meta(description="exact image reference")] | None = None
    since: Since | None = None
    until: Until | None = None


@decisions_routes.pages("/decisions", DecisionBody, "A page of decisions", query=DecisionFilters)
def list_decisions(call: Call[DecisionFilters]) -> Reply:
    """List decisions, newest first."""
    return page_reply(call.use(Decisions).list_decisions(**call.filters()))


@decisions_routes.shows("/decisions/{id:big}", DecisionBody, "The decision")
def show_decision(call: Call[NoQuery]) -> Reply:
    """Show a decision; `verdict_id` names its verdict."""
    decision = call.use(Decisions).show_decision(call.args["id"])
    require_answered(call.principal, decision.target)
    return Reply(decision)


_BADGE = Returns(str, "The badge", media=(BADGE_MEDIA,), etag=True)
_VERDICT_LOOKS: dict[Outcome, Look] = {
    "pass": "good",
    "warn": "doubtful",
    "unknown": "neutral",
    "fail": "bad",
}
_STATUS_LOOKS: dict[EntryStatus, Look] = {
    "blessed": "good",
    "deprecated": "doubtful",
    "candidate": "neutral",
    "revoked": "bad",
}


@badges_routes.get("/badge/{target}/{stack}.svg", _BADGE, scope="gate", errors=(404,))
def stack_badge(call: Call[NoQuery]) -> Reply:
    """Draw the current verdict on a stack and a target.

    Write the stack as on the command line, `cuda=12.4,torch=2.4.1+cu124`. Each request is a new
    preview: nothing is logged.
    """
    target = call.args["target"]
    call.principal.require_targets([target])
    question: dict[str, Any] = {"target": target, "stack": parse_stack_text(call.args["stack"])}
    verdict = call.use(Gate).preview(question)
    word: str = verdict.verdict
    if verdict.allowed and word in REFUSING:
        word = f"{word}, not enforced"
    stack = ",".join(
        f"{name}={'+'.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in verdict.stack.items()
    )
    look, title = _VERDICT_LOOKS[verdict.verdict], f"{stack} on {target}: {word}"
    return Reply(draw_badge(Badge(target, word, look, title)), media=BADGE_MEDIA)


@badges_routes.get("/badge/{target}/entry/{entry}.svg", _BADGE, errors=(404,))
def entry_badge(call: Call[NoQuery]) -> Reply:
    """Draw the status of an entry of the matrix on a target."""
    target, name = call.args["target"], call.args["entry"]
    call.principal.require_targets([target])
    snapshot = call.use(Gate).snapshot()
    snapshot.target(target)
    entry = snapshot.entries.get(name)
    if entry is None or not {target, ANY_TARGET} & set(entry.targets):
        raise NotFound(f"entry {name!r} does not exist for {target}", field="entry", value=name)
    title = f"entry {name} on {target}: {entry.status}"
    badge = Badge(f"{target}: {name}", entry.status, _STATUS_LOOKS[entry.status], title)
    return Reply(draw_badge(badge), media=BADGE_MEDIA)


@decisions_routes.post(
    "/decisions/batches",
    Returns(DeliveryBody, "The batches are on disk"),
    scope="deliver",
    body=Body(DeliveryRequest, argument="body"),
    repeatable=True,
    errors=(409,),
)
def deliver_decisions(call: Call[NoQuery]) -> Reply:
    """Deliver batches of decisions that a far gate has recorded.

    `compatgate serve --bundle` does that. Sending a stored batch again changes nothing, so repeat
    the request after an error. The gate verifies the writer's hash chain. 409 `chain-forked`:
    another batch of this writer and sequence is stored. 409 `chain-gap`: the batch before is not
    stored. Begin another writer then. 503: try again later.
    """
    request = to_struct(call.document(), DeliveryRequest)
    return Reply(call.use(DeliveryDesk).receive(request, call.principal))
