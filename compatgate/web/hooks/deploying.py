"""What the webhooks of deploy tools share: reading, asking, and errors in their own form.

None answers with a 5xx: most tools drop the body of one, and with it the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, Literal, TypeVar

import msgspec
from flask import Response, request
from msgspec import Struct
from msgspec.structs import replace

from compatgate.errors import CompatgateError
from compatgate.gate.admission.review import one_line
from compatgate.gate.hooks.words import Decision
from compatgate.web import body as bodies
from compatgate.web import problems
from compatgate.web.call import Call, Reply, Service
from compatgate.web.hooks.caller import caller
from compatgate.web.hooks.kubernetes import wait_s
from compatgate.web.links import base_url, verdict_link
from compatgate.web.query import parse_query
from compatgate.web.route import HOOKS, Body, Returns, Route, route
from compatgate.web.view import to_response

ALLOWED, DENIED, OPEN = 200, 409, 424
STATUSES: dict[str, int] = {"allow": ALLOWED, "deny": DENIED}
"""By decision; what is neither is `OPEN`."""
Q = TypeVar("Q", bound=Struct)
Refused = Callable[[CompatgateError], Reply]
_LONGEST = 1500
"""Characters of a reason."""
_encode = msgspec.json.Encoder(order="deterministic").encode
_NO_ACCESS = (401, 403)


class Hook(Struct, frozen=True):
    """A hook.

    Attributes:
        route: whose handler answers a request that could be read.
        refused: the answer in the tool's form to one that could not, or that nothing can decide.
    """

    route: Route
    refused: Refused


def hook(
    method: Literal["GET", "POST"],
    path: str,
    *,
    name: str,
    query: type[Q],
    returns: Returns,
    refused: Refused,
    body: Body | None = None,
    errors: tuple[int, ...] = (404, DENIED, OPEN),
) -> Callable[[Callable[[Call[Q]], Reply]], Hook]:
    """Make a handler a hook, whose errors have the form of its answers."""
    declare = route(
        method,
        path,
        prefix=HOOKS,
        scope="gate",
        tag="hooks",
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


def decide(
    call: Call[Any], question: dict[str, Any], tool: str, timeout: str | None
) -> tuple[dict[str, Any], str]:
    """The verdict in JSON form, logged, and its address.

    Args:
        call: of the tool.
        question: as ``POST /gate`` takes it.
        tool: as the log names it.
        timeout: how long the tool waits, as it says.

    Raises:
        CompatgateError: as `Gate.answer`.
    """
    began = perf_counter()
    source = f"hook:{tool}"
    verdict = call.gate.answer(
        _encode(question),
        asked_by=call.principal.name,
        source=source,
        image_s=wait_s(timeout or ""),
    ).verdict
    call.service.metrics.decided(verdict, source, perf_counter() - began)
    return verdict.to_json(), verdict_link(base_url(call.service), verdict.id)


def make_view(hook: Hook, service: Service) -> Callable[[], Response]:
    """The view of a hook."""
    route, settings = hook.route, service.settings

    def view() -> Response:
        try:
            query = parse_query(route.query, request.args)
            raw = bodies.read(route.body.media, settings.max_request_size) if route.body else b""
            principal = caller(raw, service)  # who signs, signs the bytes
            document = bodies.to_object(raw, settings.max_depth) if route.body else None
            reply = route.handler(Call(service, route, principal, {}, query, document))
        except CompatgateError as error:
            return _refused(hook, error)
        except Exception as error:
            return _refused(hook, problems.defect(error, request.environ))
        return to_response(reply)

    return view


def _refused(hook: Hook, error: CompatgateError) -> Response:
    told = problems.answer(error, request.environ)  # logs what is our fault
    response = to_response(replace(hook.refused(error), secret=True))
    if error.status in _NO_ACCESS:
        response.status_code = error.status
        response.headers["WWW-Authenticate"] = dict(told.headers)["WWW-Authenticate"]
    return response


def status_of(error: CompatgateError) -> int:
    """The status for an error; never a 5xx."""
    return OPEN if error.status >= 500 else error.status


def reason_of(error: CompatgateError) -> str:
    """An error as the reason for it, in one line."""
    said = "no decision" if decision_of(error) == "unknown" else "error"
    return f"{said}: {one_line(error.detail, _LONGEST)}"


def decision_of(error: CompatgateError) -> Decision:
    """What an error means for a deployment."""
    return "unknown" if error.status >= 500 else "error"
