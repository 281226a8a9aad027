"""Serve the webhooks of deploy tools: Flagger, Argo Rollouts, driver rollouts, any other.

The caller shows a signature, a token, or a token as a URL's password. No answer is a 5xx: most
tools drop the body of one, and with it the reason.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

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
from compatgate.kit.http.route import Body, Call, Method, Returns, Route, route
from compatgate.kit.kubernetes import to_one_line
from compatgate.kit.principal import Principal
from compatgate.service.changes.comparison.service import answer_what_if
from compatgate.service.cluster.review import parse_timeout
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
from compatgate.web.deploy_hooks.questions import ALLOWED, DENIED, KEYS, LONGEST, OPEN, question_of
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

_SIGNATURE = "HTTP_X_COMPATGATE_SIGNATURE"
_NO_ACCESS = (401, 403, 429)
_CHALLENGES = ("WWW-Authenticate", "Retry-After")
_encode = msgspec.json.Encoder(order="deterministic").encode
_ANSWERS = Returns(DeployAnswer, "The deployment is allowed; with `status=200`, any decision")
_QUESTION = Body(DeployQuestion, examples=QUESTIONS, argument="question")


def caller(raw: bytes, service: Service) -> Principal:
    """Identify the sender of a request, and check that it may ask the gate.

    A signature decides if the request has one. If the operator set signing secrets, no caller is
    let in without a signature or a token.
    """
    environ = request.environ
    if (signature := environ.get(_SIGNATURE)) is not None:
        with service.limits.counted_failures():
            return _signed_caller(signature, raw, service)
    header = environ.get("HTTP_AUTHORIZATION")
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
    """A hook; ``refused`` answers a request that is unreadable or undecidable, for its tool."""

    route: Route
    refused: Callable[[CompatgateError], Reply]


def hook(
    method: Method,
    path: str,
    refused: Callable[[CompatgateError], Reply],
    returns: Returns,
    *,
    errors: tuple[int, ...] = (404, DENIED, OPEN),
    **fields: Any,
) -> Callable[[Callable[[Call[Any]], Reply]], Hook]:
    """Make a handler a hook, whose errors have the form of its answers."""
    declare: Callable[[Callable[[Call[Any]], Reply]], Route] = route(
        method,
        path,
        prefix=HOOKS_PREFIX,
        scope="gate",
        tag="hooks",
        targets="checked",
        returns=returns,
        errors=errors,
        refusal=returns.model,
        refusal_media=returns.media[0],
        signed=True,
        **fields,
    )
    return lambda handler: Hook(declare(handler), refused)


def make_view(hook: Hook, service: Service) -> Callable[[], Response]:
    """Return the view of a hook."""
    route, settings = hook.route, service.settings

    def view() -> Response:
        try:
            query, raw = parse_query(route.query, request.args), b""
            if route.body:
                raw = bodies.read_body(route.body.media, settings.max_request_size)
            principal = remember(caller(raw, service))  # who signs, signs the bytes
            service.limits.take(principal, peer_address())
            document = bodies.to_object(raw, settings.max_depth) if route.body else None
            reply = route.handler(Call(service, settings, route, principal, {}, query, document))
        except CompatgateError as error:
            note_refusal(error, f"{route.method} {request.path}", service)
            return _refuse(hook, error)
        except Exception as error:
            return _refuse(hook, service.explain(error, request.environ))
        return to_response(reply)

    return view


def _refuse(hook: Hook, error: CompatgateError) -> Response:
    problem = replies.problem_answer(error, request.environ)  # logs what is our fault
    response = to_response(replace(hook.refused(error), secret=True))
    if error.status in _NO_ACCESS:
        response.status_code = error.status
        response.headers.extend(one for one in problem.headers if one[0] in _CHALLENGES)
    return response


def _explain(error: CompatgateError) -> tuple[str, str, int]:
    """Return an error as decision, reason in one line, and status, which is never a 5xx."""
    detail = to_one_line(error.detail, LONGEST)
    if error.status >= 500:
        return "unknown", f"no decision: {detail}", OPEN
    return "error", f"error: {detail}", error.status


def _refuse_flat(error: CompatgateError) -> Reply:
    """Answer an error as the query asks; ignore a wrong query."""
    decision, reason, status = _explain(error)
    if request.args.getlist("status") == ["200"]:
        status = ALLOWED
    return Reply({"decision": decision, "allowed": False, "reason": reason}, status=status)


def _refuse_text(error: CompatgateError) -> Reply:
    _, reason, status = _explain(error)
    return _text(f"{reason}\n", status)


def _text(text: str, status: int) -> Reply:
    return Reply(text.encode(), status=status, media="text/plain; charset=utf-8")


def decide(call: Call[Any], question: dict[str, Any], tool: str) -> tuple[dict[str, Any], str]:
    """Return the verdict in JSON form, logged, and its address."""
    call.principal.require_question(question)
    call.use(RequestLimits).take_question(call.principal, peer_address())
    began, source, gate = perf_counter(), f"hook:{tool}", call.use(Gate)
    wait_s, by = parse_timeout(call.query.timeout or ""), call.principal.name
    record = gate.answer(_encode(question), asked_by=by, source=source, image_s=wait_s)
    verdict = record.verdict
    call.use(Metrics).decided(verdict, source, perf_counter() - began)
    remember_decision(verdict)
    return gate.with_state(verdict.to_json()), answer_link(call.use(Service), verdict.id)


def _answer(call: Call[Any], fields: Mapping[str, Any], tool: str) -> Reply:
    verdict, link = decide(call, question_of(fields), tool)
    body = {
        "decision": questions.decision_of(verdict),
        "allowed": verdict["allowed"],
        "reason": questions.reason_of(verdict, link),
        **{name: verdict[name] for name in ("target", "mode", "verdict", "id")},
        "url": link,
        **({"degraded": verdict["degraded"]} if "degraded" in verdict else {}),
    }
    return _flat(call, body)


def _flat(call: Call[Any], body: dict[str, Any]) -> Reply:
    """Return the answer with the status of its decision; 200 if the tool reads no other."""
    always = getattr(call.query, "status", "200") == "200"
    return Reply(body, status=ALLOWED if always else questions.status_of(body["decision"]))


@hook("POST", "/generic", _refuse_flat, _ANSWERS, query=DeployQuery, body=_QUESTION)
def ask_generic(call: Call[DeployQuery]) -> Reply:
    """Decide about a deployment, for any tool that can send a request.

    The status is 200 if the gate allows, 409 if it denies, and 424 if it cannot decide (ask
    again). A wrong request gives the usual statuses. With `?status=200`, every answer except a
    refusal of access has status 200, and `decision` has the result.
    """
    return _answer(call, call.document(), "generic")


@hook("GET", "/generic", _refuse_flat, _ANSWERS, query=DeployPoll)
def poll_generic(call: Call[Any]) -> Reply:
    """Decide about a deployment, for a tool that polls; the question is in the query.

    Each poll is a separate decision in the log. Statuses are those of the POST.
    """
    fields = {key: getattr(call.query, key) for key in KEYS}
    return replace(_answer(call, fields, "generic"), secret=True)


@hook(
    "POST",
    "/argo-rollouts",
    lambda error: replace(_refuse_flat(error), status=ALLOWED),
    Returns(DeployAnswer, "Any decision, or the error of the question"),
    query=ArgoQuery,
    body=_QUESTION,
    errors=(),
)
def ask_argo_rollouts(call: Call[ArgoQuery]) -> Reply:
    """Decide about a rollout, as the web metric of an Argo Rollouts analysis.

    Every answer except a refusal of access has status 200, because Argo ignores the body of other
    statuses. A template with both a `successCondition` (`result.decision == "allow"`) and a
    `failureCondition` (`result.decision == "deny"`) leaves the rest inconclusive.
    """
    return _answer(call, call.document(), "argo-rollouts")


@hook(
    "POST",
    "/flagger",
    _refuse_text,
    Returns(str, "Allowed: the canary advances; a rollback hook rolls back", media=("text/plain",)),
    query=FlaggerQuery,
    body=Body(FlaggerPayload, examples=FLAGGER, argument="payload"),
)
def ask_flagger(call: Call[FlaggerQuery]) -> Reply:
    """Decide about a canary, as a webhook of Flagger.

    The status is 200 if the gate allows, 409 if it denies, and 424 if it cannot decide. The first
    line of the answer is the reason, which Flagger writes into the events of the Canary. A
    `rollback` hook works in reverse: only a denial gives 200, and rolls back. The answer to an
    `event` is 200, without a decision. `metadata` names the `type` of the hook, `target`, `stack`,
    `image` and `set`.
    """
    payload = call.document()
    metadata = questions.check_flagger(payload)
    kind = questions.hook_type(metadata, call.query.type)
    if kind == "event":
        return _text("noted: an event, nothing was decided\n", ALLOWED)
    stated = {key: metadata[key] for key in KEYS if key in metadata}
    verdict, link = decide(call, question_of(stated, "metadata"), "flagger")
    return _text(*questions.answer_flagger(kind, verdict, link))


@hook(
    "POST",
    "/driver-rollout",
    _refuse_flat,
    Returns(DriverAnswer, "The driver is allowed; with `status=200`, any decision"),
    query=DriverQuery,
    body=Body(DriverQuestion, examples=DRIVER, argument="question"),
)
def ask_driver_rollout(call: Call[DriverQuery]) -> Reply:
    """Decide whether a node, pool or target may get a driver.

    The gate evaluates every blessed and deprecated entry with the driver, as `POST /what-if` does.
    The body can be an unchanged Kubernetes Node, with `driver` in the query. Statuses are those of
    `/hooks/generic`. Nothing is logged.
    """
    document, gate = call.document(), call.use(Gate)
    named = {"driver": call.query.driver, "target": call.query.target, "pool": call.query.pool}
    stated = {key: value for key, value in named.items() if value is not None}
    for key in stated:
        if key in document:
            raise BadInput("is stated twice", field=key, hint="in the query or in the body")
    question = questions.rollout_question(document, stated)
    call.principal.require_question(question, named=True)
    found = gate.compute(answer_what_if, question, gate.snapshot(), clock.now())
    return _flat(call, gate.with_state(questions.rollout_answer(found)))
