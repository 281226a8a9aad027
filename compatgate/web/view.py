"""A route as Flask calls it: who asks, what they ask, the handler, the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from flask import Response, request

from compatgate.web import etags
from compatgate.web.auth import authorize
from compatgate.web.call import Call, Reply, Service
from compatgate.web.query import parse_query
from compatgate.web.route import Route
from compatgate.web.ui import session

_encode = msgspec.json.Encoder().encode


def make_view(route: Route, service: Service) -> Callable[..., Response]:
    """The view function of a route."""

    def view(**args: Any) -> Response:
        principal = session.reader(service)
        authorize(principal, route.scope)
        query = parse_query(route.query, request.args)
        reply = route.handler(Call(service, route, principal, args, query))
        return to_response(reply)

    return view


def to_response(reply: Reply) -> Response:
    """An answer as HTTP; a GET whose answer the client has is answered 304."""
    if isinstance(reply.body, Iterator):
        streamed = Response(reply.body, content_type=reply.media, headers=reply.headers)
        streamed.headers["Cache-Control"] = "no-store"
        return streamed
    body = reply.body if isinstance(reply.body, bytes) else _encode(reply.body)
    if reply.status == 204:
        body = b""
    reads = request.method in ("GET", "HEAD")
    etag = reply.etag or (etags.digest(body) if reads and not reply.secret else None)
    if reads and etag and etags.not_modified(etag):
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
