"""A page as Flask calls it: who looks, what they ask, the handler, HTML, a file, or an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from flask import Response, redirect, request
from werkzeug.datastructures import MultiDict

from compatgate.errors import CompatgateError, Unauthorized
from compatgate.web import problems
from compatgate.web.auth import authorize
from compatgate.web.headers import CSP
from compatgate.web.query import parse_query
from compatgate.web.ui import session
from compatgate.web.ui.links import link
from compatgate.web.ui.listing import is_export
from compatgate.web.ui.page import Ask, Goto, Page, Shown
from compatgate.web.ui.render import render
from compatgate.web.ui.tables import to_csv

if TYPE_CHECKING:
    from werkzeug.wrappers import Response as AnyResponse

    from compatgate.gate.auth import Principal
    from compatgate.web.call import Service

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_DONE = "compatgate_done"


def make_view(page: Page, service: Service) -> Callable[..., AnyResponse]:
    """The view function of a page."""

    def view(**args: Any) -> AnyResponse:
        principal = service.nobody
        try:
            principal = session.viewer(service)
            authorize(principal, page.scope)
            form = session.check_form() if page.method == "POST" else {}
            query = parse_query(page.query, _given(request.args))
            answer = page.handler(Ask(service, page, principal, args, query, form))
            return finish(answer, page, principal, service)
        except CompatgateError as error:
            return refuse(error, page, principal, service)
        except Exception as error:
            return refuse(problems.defect(error, request.environ), page, principal, service)

    return view


def _given(args: MultiDict[str, str]) -> MultiDict[str, str]:
    """A form sends its empty fields too; they ask for nothing."""
    return MultiDict([(key, value) for key, value in args.items(multi=True) if value])


def finish(answer: Any, page: Page, principal: Principal, service: Service) -> AnyResponse:
    """What a handler answered, as HTTP."""
    if isinstance(answer, Goto):
        return _go(answer)
    if not isinstance(answer, Shown):
        return answer  # type: ignore[no-any-return]
    if answer.table is not None and is_export():
        name = quote(f"{answer.table.name}.csv")
        response = Response(to_csv(answer.table), content_type="text/csv; charset=utf-8")
        response.headers["Content-Disposition"] = f"attachment; filename={name}"
    else:
        done = unquote(request.cookies.get(_DONE, ""))[:500]
        html = render(answer, page, principal, service, done)
        response = Response(html, status=answer.status, content_type="text/html; charset=utf-8")
        session.keep_visit(response)
        if done:
            response.delete_cookie(_DONE, path="/")
    response.headers["Cache-Control"] = "no-store"
    response.headers[CSP] = POLICY
    return response


def _go(answer: Goto) -> AnyResponse:
    response = redirect(answer.place, 303)
    if answer.done:
        response.set_cookie(
            _DONE, quote(answer.done), max_age=60, httponly=True, samesite="Lax", path="/"
        )
    response.headers["Cache-Control"] = "no-store"
    return response


def refuse(
    error: CompatgateError, page: Page, principal: Principal, service: Service
) -> AnyResponse:
    """An error as a page; whoever may not see a page is asked to sign in."""
    if isinstance(error, Unauthorized) and request.method == "GET" and not session.is_bearer():
        place = link("sign-in", next=request.full_path.rstrip("?"))
        if request.headers.get("HX-Request"):
            return Response(status=204, headers={"HX-Redirect": place})
        return redirect(place, 303)
    if error.status >= 500:
        problems.answer(error, request.environ)  # for the log
    shown = Shown(
        "error.html",
        error.slug.replace("-", " ").capitalize(),
        {"error": error, "problem": problems.to_problem(error)},
        status=error.status,
    )
    return finish(shown, page, principal, service)
