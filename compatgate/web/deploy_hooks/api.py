"""Serve the webhooks of deploy tools: Flagger, Argo Rollouts, driver rollouts, any other.

The caller shows a signature, a token, or a token as a URL's password. No answer is a 5xx: most
tools drop the body of one, and with it the reason.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from flask import Response, request
from msgspec import Struct
from msgspec.structs import replace

from compatgate.errors import BadInput, CompatgateError, Unauthorized
from compatgate.kit import clock
from compatgate.kit.http import replies, signatures
from compatgate.kit.http import requests as bodies
from compatgate.kit.http.limits import RequestLimits, peer_address
from compatgate.kit.http.links import HOOKS_PREFIX
from compatgate.kit.http.replies import Reply
from compatgate.kit.http.requests import parse_query
from compatgate.kit.http.route import Body, Call, Returns, Route, route
from compatgate.kit.kubernetes import to_one_line
from compatgate.kit.principal import Principal
from compatgate.service.changes.comparison.service import answer_what_if
from compatgate.service.cluster.admission.review import parse_timeout
from compatgate.service.gate.questions.service import Gate
from compatgate.web.auth import (
    authenticate,
    authorize,
    note_refusal,
    remember,
    remember_decision,
    verify_secret,
)
from compatgate.web.deploy_hooks import questions
from compatgate.web.deploy_hooks.questions import KEYS, Decision, question_of
from compatgate.web.deploy_hooks.schemas import (
    DRIVER,
    FLAGGER,
    QUESTIONS,
    ArgoQuery,
    DeployAnswer,
    DeployPoll,
    DeployQuery,
    DeployQuestion,
    DriverAnswer,
    DriverQuery,
    DriverQuestion,
    FlaggerPayload,
    FlaggerQuery,
)
from compatgate.web.metrics import Metrics
from compatgate.web.page_views import to_response
from compatgate.web.service import Service, answer_link

ALLOWED, DENIED, OPEN = 200, 409, 424
_STATUSES: dict[str, int] = {"allow": ALLOWED, "deny": DENIED}
"""Status by decision; other decisions have `OPEN`."""
_SIGNATURE = "HTTP_X_COMPATGATE_SIGNATURE"
_MAX_LENGTH = 1500
"""Maximum length of a reason."""
_NO_ACCESS = (401, 403, 429)
_CHARSET = "text/plain; charset=utf-8"
_encode = msgspec.json.Encoder(order="deterministic").encode
Q = TypeVar("Q", bound=Struct)
RefusalForm = Callable[[CompatgateError], Reply]


def caller(raw: bytes, service: Service) -> Principal:
    """Identify the sender of a request, and check that it may ask the gate.

    A signature decides if the request has one. If the operator set signing secrets, no caller is
    let in without a signature or a token.
    """
    header = request.environ.get("HTTP_AUTHORIZATION")
    signature = request.environ.get(_SIGNATURE)
    if signature is not None:
        service.limits.check_failures(peer_address())
        try:
            return _signed_caller(signature, raw, service)
        except Unauthorized:
            service.limits.count_failure(peer_address())
            raise
    scheme, _, secret = (header or "").strip().partition(" ")
    if scheme.lower() == "basic":
        principal = verify_secret(_token_of_password(secret), service, peer_address())
    else:
        principal = authenticate(header, service, peer_address())
    if service.settings.hook_secrets and principal.is_anonymous:
        hint = f"sign the request in {signatures.HEADER}, or send a token"
        raise Unauthorized("a signature or a token is required", hint=hint, reason="missing")
    authorize(principal, "gate")
    return principal


def _signed_caller(signature: str, raw: bytes, service: Service) -> Principal:
    secrets = service.settings.hook_secrets
    if not secrets:
        hint = "serve --hook-secret names the keys"
        what = "this gate has no signing keys"
        raise Unauthorized(what, field=signatures.HEADER, hint=hint, reason="signature")
    environ = request.environ
    path = environ.get("RAW_URI") or environ.get("REQUEST_URI") or request.full_path
    name = signatures.verify(secrets, signature, clock.now().timestamp(), request.method, path, raw)
    return Principal(f"hook:{name}", frozenset({"gate"}), kind="hook")


def _token_of_password(encoded: str) -> str:
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        decoded = ""
    password = decoded.partition(":")[2]
    if not password:
        hint = "send any user name, and a token as the password"
        what = "the password is not a token"
        raise Unauthorized(what, field="Authorization", hint=hint, reason="malformed")
    return password


class Hook(Struct, frozen=True):
    """A hook.

    Attributes:
        route: whose handler answers a request that could be read.
        refused: makes the answer, in the tool's form, to an unreadable or undecidable request.
    """

    route: Route
    refused: RefusalForm


def hook(
    method: Literal["GET", "POST"],
    path: str,
    *,
    name: str,
    query: type[Q],
    returns: Returns,
    refused: RefusalForm,
    body: Body | None = None,
    errors: tuple[int, ...] = (404, DENIED, OPEN),
) -> Callable[[Callable[[Call[Q]], Reply]], Hook]:
    """Make a handler a hook, whose errors have the form of its answers."""
    declare = route(
        method,
        path,
        prefix=HOOKS_PREFIX,
        scope="gate",
        tag="hooks",
        targets="checked",
        name=name,
        query=query,
        body=body,
        returns=returns,
        errors=errors,
        refusal=returns.model,
        refusal_media=returns.media[0],
        signed=True,
    )
    return lambda handler: Hook(declare(handler), refused)


def decide_hook(
    call: Call[Any], question: dict[str, Any], tool: str, timeout: str | None
) -> tuple[dict[str, Any], str]:
    """Return the verdict in JSON form, logged, and its address."""
    call.principal.require_question(question)
    call.use(RequestLimits).take_question(call.principal, peer_address())
    began = perf_counter()
    source = f"hook:{tool}"
    verdict = (
        call.use(Gate)
        .answer(
            _encode(question),
            asked_by=call.principal.name,
            source=source,
            image_s=parse_timeout(timeout or ""),
        )
        .verdict
    )
    call.use(Metrics).decided(verdict, source, perf_counter() - began)
    remember_decision(verdict)
    return call.use(Gate).with_state(verdict.to_json()), answer_link(call.use(Service), verdict.id)


def make_view(hook: Hook, service: Service) -> Callable[[], Response]:
    """Return the view of a hook."""
    route, settings = hook.route, service.settings

    def view() -> Response:
        try:
            query = parse_query(route.query, request.args)
            raw = (
                bodies.read_body(route.body.media, settings.max_request_size) if route.body else b""
            )
            principal = remember(caller(raw, service))  # who signs, signs the bytes
            service.limits.take(principal, peer_address())
            document = bodies.to_object(raw, settings.max_depth) if route.body else None
            reply = route.handler(Call(service, settings, route, principal, {}, query, document))
        except CompatgateError as error:
            note_refusal(error, f"{route.method} {request.path}", service)
            return _refusal(hook, error)
        except Exception as error:
            return _refusal(hook, service.explain(error, request.environ))
        return to_response(reply)

    return view


def _refusal(hook: Hook, error: CompatgateError) -> Response:
    told = replies.problem_answer(error, request.environ)  # logs what is our fault
    response = to_response(replace(hook.refused(error), secret=True))
    if error.status in _NO_ACCESS:
        response.status_code = error.status
        sent = dict(told.headers)
        for name in ("WWW-Authenticate", "Retry-After"):
            if name in sent:
                response.headers[name] = sent[name]
    return response


class Refusal(NamedTuple):
    """An error as an answer; its status is never a 5xx."""

    decision: Decision
    reason: str
    status: int


def refusal_of(error: CompatgateError) -> Refusal:
    """Return an error as the answer to it, with the reason in one line."""
    detail = to_one_line(error.detail, _MAX_LENGTH)
    if error.status >= 500:
        return Refusal("unknown", f"no decision: {detail}", OPEN)
    return Refusal("error", f"error: {detail}", error.status)


def _answer(call: Call[Any], fields: Mapping[str, Any], tool: str, wanted: str) -> Reply:
    """Decide, and answer with a flat object; the query may want 200 whatever is decided."""
    verdict, link = decide_hook(call, question_of(fields), tool, call.query.timeout)
    decision = questions.decision_of(verdict)
    body = {
        "decision": decision,
        "allowed": verdict["allowed"],
        "reason": questions.reason_of(verdict, link),
        "target": verdict["target"],
        "mode": verdict["mode"],
        "verdict": verdict["verdict"],
        "id": verdict["id"],
        "url": link,
        **({"degraded": verdict["degraded"]} if "degraded" in verdict else {}),
    }
    return Reply(body, status=status_for(decision, wanted))


def status_for(decision: str, wanted: str) -> int:
    """Return the status of a decision, or 200 if the query asks for it."""
    return ALLOWED if wanted == "200" else _STATUSES.get(decision, OPEN)


def refusal_reply(error: CompatgateError) -> Reply:
    """Answer an error as the query asks; ignore a wrong query."""
    always = request.args.getlist("status") == ["200"]
    return _refuse(error, ALLOWED if always else refusal_of(error).status)


def _refuse_argo(error: CompatgateError) -> Reply:
    return _refuse(error, ALLOWED)


def _refuse(error: CompatgateError, status: int) -> Reply:
    decision, reason, _ = refusal_of(error)
    return Reply({"decision": decision, "allowed": False, "reason": reason}, status=status)


@hook(
    "POST",
    "/generic",
    name="ask_generic",
    query=DeployQuery,
    body=Body(DeployQuestion, examples=QUESTIONS, argument="question"),
    returns=Returns(DeployAnswer, "The deployment is allowed; with `status=200`, any decision"),
    refused=refusal_reply,
)
def ask_generic(call: Call[DeployQuery]) -> Reply:
    """Decide about a deployment, for any tool that can send a request.

    The status is 200 if the gate allows, 409 if it denies, and 424 if it cannot decide (ask
    again). A wrong request gives the usual statuses. With `?status=200`, every answer except a
    refusal of access has status 200, and `decision` has the result.
    """
    return _answer(call, call.document(), "generic", call.query.status)


@hook(
    "GET",
    "/generic",
    name="poll_generic",
    query=DeployPoll,
    returns=Returns(DeployAnswer, "The deployment is allowed; with `status=200`, any decision"),
    refused=refusal_reply,
)
def poll_generic(call: Call[DeployPoll]) -> Reply:
    """Decide about a deployment, for a tool that polls; the question is in the query.

    Each poll is a separate decision in the log. Statuses are those of the POST.
    """
    fields = {key: getattr(call.query, key) for key in KEYS}
    return replace(_answer(call, fields, "generic", call.query.status), secret=True)


@hook(
    "POST",
    "/argo-rollouts",
    name="ask_argo_rollouts",
    query=ArgoQuery,
    body=Body(DeployQuestion, examples=QUESTIONS, argument="question"),
    returns=Returns(DeployAnswer, "Any decision, or the error of the question"),
    refused=_refuse_argo,
    errors=(),
)
def ask_argo_rollouts(call: Call[ArgoQuery]) -> Reply:
    """Decide about a rollout, as the web metric of an Argo Rollouts analysis.

    Every answer except a refusal of access has status 200, because Argo ignores the body of other
    statuses. A template with both a `successCondition` (`result.decision == "allow"`) and a
    `failureCondition` (`result.decision == "deny"`) leaves the rest inconclusive.
    """
    return _answer(call, call.document(), "argo-rollouts", "200")


def _refuse_flagger(error: CompatgateError) -> Reply:
    refusal = refusal_of(error)
    return _text(f"{refusal.reason}\n", refusal.status)


def _text(text: str, status: int) -> Reply:
    return Reply(text.encode(), status=status, media=_CHARSET)


@hook(
    "POST",
    "/flagger",
    name="ask_flagger",
    query=FlaggerQuery,
    body=Body(FlaggerPayload, examples=FLAGGER, argument="payload"),
    returns=Returns(
        str, "Allowed: the canary advances; a rollback hook rolls back", media=("text/plain",)
    ),
    refused=_refuse_flagger,
)
def ask_flagger(call: Call[FlaggerQuery]) -> Reply:
    """Decide about a canary, as a webhook of Flagger.

    The status is 200 if the gate allows, 409 if it denies, and 424 if it cannot decide. The first
    line of the answer is the reason, which Flagger writes into the events of the Canary. A
    `rollback` hook works in reverse: only a denial gives 200, and rolls back. The answer to an
    `event` is 200, without a decision. `metadata` names the `type` of the hook, `target`, `stack`,
    `image` and `set`.
    """
    payload, query = call.document(), call.query
    questions.check_flagger(payload)
    kind = questions.hook_type(payload, query.type)
    if kind == "event":
        return _text("noted: an event, nothing was decided\n", questions.YES)
    metadata = payload.get("metadata") or {}
    verdict, link = decide_hook(
        call,
        question_of({key: metadata[key] for key in KEYS if key in metadata}, "metadata"),
        "flagger",
        query.timeout,
    )
    decision = questions.decision_of(verdict)
    said = questions.flagger_body(kind, decision, questions.reason_lines(verdict, link))
    return _text(said, questions.flagger_status(kind, decision))


@hook(
    "POST",
    "/driver-rollout",
    name="ask_driver_rollout",
    query=DriverQuery,
    body=Body(DriverQuestion, examples=DRIVER, argument="question"),
    returns=Returns(DriverAnswer, "The driver is allowed; with `status=200`, any decision"),
    refused=refusal_reply,
)
def ask_driver_rollout(call: Call[DriverQuery]) -> Reply:
    """Decide whether a node, pool or target may get a driver.

    The gate evaluates every blessed and deprecated entry with the driver, as `POST /what-if` does.
    The body can be an unchanged Kubernetes Node, with `driver` in the query. Statuses are those of
    `/hooks/generic`. Nothing is logged.
    """
    document = call.document()
    named = {"driver": call.query.driver, "target": call.query.target, "pool": call.query.pool}
    stated = {key: value for key, value in named.items() if value is not None}
    for key in stated:
        if key in document:
            raise BadInput("is stated twice", field=key, hint="in the query or in the body")
    question = questions.rollout_question(document, stated)
    call.principal.require_question(question, named=True)
    found = call.use(Gate).compute(answer_what_if, question, call.use(Gate).snapshot(), clock.now())
    answered = questions.rollout_answer(found)
    answered = call.use(Gate).with_state(answered)
    return Reply(answered, status=status_for(answered["decision"], call.query.status))
