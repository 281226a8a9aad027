"""Make Flask's view of a route: caller, query, handler, answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from flask import Response, request

from compatgate.kit.http import replies
from compatgate.kit.http.call import Call
from compatgate.kit.http.limits import peer_address
from compatgate.kit.http.replies import Reply
from compatgate.kit.http.requests import parse_query
from compatgate.kit.principal import AccessRefused, Principal
from compatgate.web import auth, browser

if TYPE_CHECKING:
    from compatgate.kit.http.route import Route
    from compatgate.web.service import Service

_encode = msgspec.json.Encoder().encode


def make_route_view(route: Route, service: Service) -> Callable[..., Response]:
    """Return the view function of a route."""

    def view(**args: Any) -> Response:
        if route.changes:
            service.gate.require_writable()
        principal = auth.remember(browser.json_reader(service, changes=route.changes))
        service.limits.take(principal, peer_address())
        try:
            admit_to(principal, route)
            query = parse_query(route.query, request.args)
            reply = route.handler(Call(service, service.settings, route, principal, args, query))
        except AccessRefused as error:
            auth.note_refusal(error, f"{route.method} {request.path}", service)
            raise
        return to_response(reply)

    return view


def admit_to(principal: Principal, route: Route) -> None:
    """Require what a route requires of its caller before anything is read, as `auth.admit`."""
    what = f"{route.method} {route.prefix}{route.template}"
    auth.admit(principal, route.scope, part=route.part, targets=route.targets, what=what)


def to_response(reply: Reply) -> Response:
    """Convert an answer to HTTP; a GET gets 304 if the client has the answer."""
    if isinstance(reply.body, Iterator):
        streamed = Response(reply.body, content_type=reply.media, headers=reply.headers)
        streamed.headers["Cache-Control"] = "no-store"
        return streamed
    body = reply.body if isinstance(reply.body, bytes) else _encode(reply.body)
    if reply.status == 204:
        body = b""
    reads = request.method in ("GET", "HEAD")
    etag = reply.etag or (replies.body_etag(body) if reads and not reply.secret else None)
    if reads and etag and replies.is_not_modified(etag):
        response = Response(status=304)
    else:
        response = Response(body, status=reply.status, content_type=reply.media)
    for name, value in reply.headers.items():
        response.headers[name] = value
    if etag:
        response.headers["ETag"] = etag
    cached = reads and not reply.secret
    response.headers["Cache-Control"] = "private, no-cache" if cached else "no-store"
    return response
