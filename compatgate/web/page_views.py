"""Answer pages: HTML, a file, a redirect, or an error as a page.

What was typed into a form whose session is over is kept.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

import msgspec
import zstandard
from flask import Response, redirect, request
from msgspec.structs import replace
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import HTTPException

from compatgate.errors import CompatgateError, TooManyRequests, Unauthorized
from compatgate.kit.http import replies
from compatgate.kit.http.limits import peer_address
from compatgate.kit.http.links import link
from compatgate.kit.http.replies import CSP, Reply, to_problem
from compatgate.kit.http.requests import parse_query
from compatgate.kit.http.route import Call, NoQuery
from compatgate.kit.principal import AccessRefused, Principal
from compatgate.kit.ui.assets import style_sources
from compatgate.kit.ui.tables import is_export, to_csv
from compatgate.web import auth
from compatgate.web.page import HtmlPage, Page, PageRequest, Redirect, render

if TYPE_CHECKING:
    from flask import Flask
    from werkzeug.wrappers import Response as AnyResponse

    from compatgate.kit.http.route import Route, TargetLimit
    from compatgate.kit.principal import Principal
    from compatgate.web.service import Service

POLICY = (
    f"default-src 'none'; script-src 'self'; style-src {style_sources()}; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_DONE_COOKIE = "compatgate_done"
_MAX_WORD = 200
"""Of an address that leads nowhere, to search for."""
_YEAR = 365 * 86400
_NOT_SHOWN = ("shown",)
"""Fields that people do not type."""
_LARGEST = 1_000_000
"""Characters of the largest form that is kept: its sender may be anybody."""
_encode = msgspec.json.Encoder().encode


def add_route(
    app: Flask, path: str, name: str, view: Callable[..., AnyResponse], method: str = "GET"
) -> None:
    """Add a view that answers one method alone."""
    app.add_url_rule(path, name, view, methods=[method], provide_automatic_options=False)


def make_route_view(route: Route, service: Service) -> Callable[..., Response]:
    """Return the view function of a route."""

    def view(**args: Any) -> Response:
        if route.changes:
            service.gate.require_writable()
        principal = auth.remember(auth.json_reader(service, changes=route.changes))
        service.limits.take(principal, peer_address())
        try:
            what = f"{route.method} {route.prefix}{route.template}"
            auth.admit(principal, route.scope, part=route.part, targets=route.targets, what=what)
            query = parse_query(route.query, request.args)
            reply = route.handler(Call(service, service.settings, route, principal, args, query))
        except AccessRefused as error:
            auth.note_refusal(error, f"{route.method} {request.path}", service)
            raise
        return to_response(reply)

    return view


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
    etag = reply.etag
    if etag is None and reads and not reply.secret:
        etag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
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


def make_page_view(page: Page, service: Service) -> Callable[..., AnyResponse]:
    """Return the view function of a page."""

    def view(**args: Any) -> AnyResponse:
        principal = service.nobody
        try:
            service.gate.require_pages()
            principal = auth.remember(auth.page_viewer(service))
            service.limits.take(principal, peer_address())
            limit: TargetLimit = "refused" if page.scope else "free"
            auth.admit(principal, page.scope, targets=limit, what="the page")
            form = auth.check_form() if page.method == "POST" else {}
            filled = [one for one in request.args.items(multi=True) if one[1]]  # forms send empty
            query = parse_query(page.query, MultiDict(filled))
            ask = PageRequest(service, page, principal, args, query, form)
            try:
                answer = page(ask)
            except CompatgateError as error:
                if page.refused is None or error.status >= 500:
                    raise
                answer = replace(page.refused(ask), error=error)
            return _pack(to_http(answer, ask))
        except CompatgateError as error:
            return _pack(refuse_page(error, page, principal, service))
        except Exception as error:
            defect = service.explain(error, request.environ)
            return _pack(refuse_page(defect, page, principal, service))

    return view


def _pack(response: AnyResponse) -> AnyResponse:
    """Compress a page or a table, whatever its status; both are small, so a fast way is enough."""
    coding = request.accept_encodings.best_match(["zstd", "gzip"])
    if response.mimetype in ("text/html", "text/csv"):
        response.headers["Vary"] = "Accept-Encoding"
        if coding:
            data = response.get_data()
            response.data = zstandard.compress(data) if coding == "zstd" else gzip.compress(data, 6)
            response.headers["Content-Encoding"] = coding
    return response


def to_http(answer: Any, ask: PageRequest[Any]) -> AnyResponse:
    """Convert a handler's answer to HTTP."""
    if isinstance(answer, Redirect):
        redirection = redirect(answer.place, 303)
        shown_once = {_DONE_COOKIE: quote(answer.done)} if answer.done else {}
        for name, value in {**shown_once, **answer.cookies}.items():
            redirection.set_cookie(
                name, value, max_age=60 if name in shown_once else _YEAR, httponly=True,
                samesite="Lax", path="/", secure=request.is_secure,
            )  # fmt: skip
        redirection.headers["Cache-Control"] = "no-store"
        return redirection
    if not isinstance(answer, HtmlPage):
        return answer  # type: ignore[no-any-return]
    if answer.table is not None and is_export():
        file = quote(f"{answer.table.name}.csv")
        response = Response(to_csv(answer.table), content_type="text/csv; charset=utf-8")
        response.headers["Content-Disposition"] = f"attachment; filename={file}"
    else:
        done = unquote(request.cookies.get(_DONE_COOKIE, ""))[:500]
        html = render(answer, ask, done)
        status = answer.error.status if answer.error else 200
        response = Response(html, status=status, content_type="text/html; charset=utf-8")
        auth.set_visit_cookie(response)
        if done:
            response.delete_cookie(_DONE_COOKIE, path="/")
    response.headers["Cache-Control"] = "no-store"
    response.headers[CSP] = POLICY
    return response


def refuse_page(
    error: CompatgateError, page: Page, principal: Principal, service: Service
) -> AnyResponse:
    """Return an error as a page, with a link to sign in for callers without access."""
    if isinstance(error, Unauthorized) and request.method == "GET" and not auth.is_bearer():
        place = link("sign-in", next=request.full_path.rstrip("?"))
        if request.headers.get("HX-Request"):
            return Response(status=204, headers={"HX-Redirect": place})
        return redirect(place, 303)
    replies.note_error(error, request.environ)
    auth.note_refusal(error, f"{request.method} {request.path}", service)
    if error.status >= 500:
        replies.problem_answer(error, request.environ)  # for the log
    context = {"problem": to_problem(error), "word": request.path.rpartition("/")[2][:_MAX_WORD]}
    shown = keep_form(error, page, principal) or HtmlPage(
        "error.html", error.slug.replace("-", " ").capitalize(), context, error=error
    )
    response = to_http(shown, PageRequest(service, page, principal, {}, NoQuery(), {}))
    if isinstance(error, TooManyRequests):
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response


def keep_form(error: CompatgateError, page: Page, principal: Principal) -> HtmlPage | None:
    """Return the page that shows a refused form's fields, to send them again once signed in.

    None: the error is shown as any other. Only this site's own forms are kept: another site must
    not put words into a person's mouth.
    """
    over = isinstance(error, Unauthorized | auth.StaleForm)
    if not over or page.method != "POST" or page.scope is None or auth.is_bearer():
        return None
    site = request.headers.get("Sec-Fetch-Site")
    is_own = site == "same-origin"
    if not site:  # without TLS
        is_own = urlsplit(request.headers.get("Origin", "")).netloc == request.host
    if not is_own or request.headers.get("HX-Request"):
        return None
    try:
        fields = [one for one in request.form.items(multi=True) if one[0] != auth.FIELD]
    except HTTPException:  # no form, or too large
        return None
    if sum(len(name) + len(text) for name, text in fields) > _LARGEST:
        return None
    context = {
        "problem": to_problem(error),
        "place": request.full_path.rstrip("?"),
        "fields": fields,
        "typed": [(name, text) for name, text in fields if text and name not in _NOT_SHOWN],
        "files": any(file.filename for file in request.files.values()),
        "may_send": principal.may(page.scope),
    }
    return HtmlPage("kept-form.html", "Not sent yet", context, error=error)
