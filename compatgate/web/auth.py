"""Identify the caller by its secret, check its scopes, and limit its requests.

Health, metrics and Kubernetes admission are not limited by caller: a cluster must not stop because
its API server asks often.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from flask import Response, g, request
from werkzeug.exceptions import HTTPException

from compatgate.errors import BadInput, Forbidden, Unauthorized
from compatgate.kit.http.limits import peer_address
from compatgate.kit.http.replies import HttpError
from compatgate.kit.principal import AccessRefused
from compatgate.kit.tracing import note_of
from compatgate.service.access.browser_sessions import (
    NewBrowserSession,
    form_token,
    is_form_token,
)

if TYPE_CHECKING:
    from compatgate.core.rule import Verdict
    from compatgate.kit.http.route import TargetLimit
    from compatgate.kit.principal import Principal
    from compatgate.service.access.identity import Identity
    from compatgate.service.access.tokens import Tokens
    from compatgate.web.service import Service

_HINT = (
    "ask an administrator of the gate to run: compatgate token create --name NAME --scope {scope}"
)
_NAME = "compatgate_session"
_VISIT_COOKIE = "compatgate_visit"
FIELD = "form_token"
_MAX_LENGTH = 256
_SAME_SITE = ("same-origin", "none")
_MAX_FIELDS = 256
"""Fields of a form; the largest page has about twenty."""


def authenticate(header: str | None, service: Service, peer: str) -> Principal:
    """Return the sender of a request."""
    if header is None:
        return service.nobody
    return verify_secret(_secret(header), service, peer)


def verify_secret(secret: str, service: Service, peer: str) -> Principal:
    """Return the holder of a token, of a person's session or of a job token."""
    return service.limits.verify(secret, _holders(secret, service), peer)


def _holders(secret: str, service: Service) -> Tokens | Identity:
    return service.identity if service.identity.knows(secret) else service.rooms.tokens


def cached_sender(header: str | None, service: Service) -> Principal | None:
    """Return the sender from memory; None: `authenticate` must look it up."""
    if header is None:
        return service.nobody
    secret = _secret(header)
    return _holders(secret, service).at_hand(secret)


def remember(principal: Principal) -> Principal:
    """Note who asks, for the log; return the same principal."""
    if (note := note_of(request.environ)) is not None:
        note.identity = principal.name
    return principal


def remember_decision(verdict: Verdict) -> None:
    """Note a decision of the request that this thread answers, for the log."""
    if (note := note_of(request.environ)) is not None:
        note.verdicts = (*note.verdicts, verdict)


def _secret(header: str) -> str:
    scheme, _, secret = header.strip().partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise Unauthorized(
            "not a bearer token",
            field="Authorization",
            hint="send Authorization: Bearer TOKEN",
            reason="malformed",
        )
    return secret.strip()


def admit(
    principal: Principal,
    scope: str | None,
    *,
    part: str | None = None,
    targets: TargetLimit = "checked",
    what: str = "",
) -> None:
    """Require a scope of the sender, and a limit to targets that the route knows.

    ``part`` is a scope that is enough, too. ``targets``: what the route makes of a limit;
    ``checked``: its handler checks.
    """
    if part is None or not principal.may(part):
        authorize(principal, scope)
    if targets == "refused":
        principal.require_no_limit(f"{what} concerns all targets and")


def note_refusal(error: Exception, place: str, service: Service) -> None:
    """Note a refused attempt for the audit log; ignore other errors."""
    if isinstance(error, AccessRefused):
        caller = error.principal
        service.rooms.refusals.note(caller.identity, caller.name, place, error.problem)


def authorize(principal: Principal, scope: str | None) -> None:
    """Require a scope of the sender."""
    if scope is None or principal.may(scope):
        return
    hint = _HINT.format(scope=scope)
    if principal.is_anonymous:
        raise Unauthorized(
            f"a token with the scope {scope} is required", hint=hint, reason="missing"
        )
    whose = "the token " if principal.kind == "token" else ""
    if not whose:
        hint = "the operator's file for --oidc says which groups and jobs have which scopes"
    raise AccessRefused(
        f"{whose}{principal.name} lacks the scope {scope}",
        principal=principal,
        field="scope",
        value=scope,
        hint=hint,
    )


def cookie_name(name: str = _NAME) -> str:
    """Return the full name of a cookie of this site."""
    # The prefix keeps a neighbouring host, or plain HTTP, from setting the cookie.
    return f"__Host-{name}" if request.is_secure else name


def session_cookie() -> str:
    """Return the session cookie; empty if the browser has none."""
    return request.cookies.get(cookie_name(), "")[:_MAX_LENGTH]


def _binding() -> str:
    """Return what forms are bound to: the session, or the visit before signing in."""
    return session_cookie() or request.cookies.get(cookie_name(_VISIT_COOKIE), "")[:_MAX_LENGTH]


def page_viewer(service: Service) -> Principal:
    """Return the caller of a page."""
    if header := request.environ.get("HTTP_AUTHORIZATION"):
        return authenticate(header, service, peer_address())
    if given := session_cookie():
        try:
            if service.identity.knows(given):
                return service.identity.sessions.verify(given, "browser")
            return service.rooms.sessions.principal(given) or service.nobody
        except Unauthorized:  # revoked since: nobody, until they sign in again
            return service.nobody
    return service.nobody


def json_reader(service: Service, *, changes: bool = False) -> Principal:
    """Return the caller of a JSON route, which may be a browser that follows a page's link.

    A browser session counts only for reading, and only from this site or a typed address.

    ``changes``: the route changes what is stored, also by a GET.
    """
    reads = request.method in ("GET", "HEAD") and not changes
    if reads and request.headers.get("Sec-Fetch-Site", "none") in _SAME_SITE:
        return page_viewer(service)
    return authenticate(request.environ.get("HTTP_AUTHORIZATION"), service, peer_address())


def is_bearer() -> bool:
    """Return whether the request has a bearer token, as programs send it."""
    return "HTTP_AUTHORIZATION" in request.environ


def form_field() -> str:
    """Return the form token of this browser; the first page with a form starts a visit."""
    if not _binding() and _VISIT_COOKIE not in g:
        setattr(g, _VISIT_COOKIE, secrets.token_urlsafe(32))
    return form_token(_binding() or g.get(_VISIT_COOKIE))


def set_visit_cookie(response: Response) -> None:
    """Set the cookie of a visit that began with this page."""
    if _VISIT_COOKIE in g:
        set_cookie(response, _VISIT_COOKIE, g.get(_VISIT_COOKIE))


class StaleForm(Forbidden):
    """The form was made for another session of the same browser."""


def check_form() -> dict[str, str]:
    """Return a posted form of this site."""
    if request.headers.get("Sec-Fetch-Site", "none") not in _SAME_SITE:
        raise Forbidden("another site submitted this form", hint="open the page and try again")
    try:
        if request.get_data(parse_form_data=False).count(b"&") >= _MAX_FIELDS:
            hint = f"at most {_MAX_FIELDS}"
            raise BadInput("the form has too many fields", field="form", hint=hint)
        form = request.form.to_dict()
    except HTTPException as error:
        problem = f"the form cannot be read: {error.name}"
        raise HttpError(error.code or 400, "bad-form", problem) from None
    if not (_binding() and is_form_token(_binding(), form.pop(FIELD, ""))):
        raise StaleForm(
            "this form belongs to another session", hint="reload the page and send it again"
        )
    return form


def set_session_cookie(response: Response, signed_in: NewBrowserSession) -> None:
    """Set the session cookie."""
    set_cookie(response, _NAME, signed_in.cookie, signed_in.seconds)


def set_cookie(response: Response, name: str, value: str, seconds: int | None = None) -> None:
    """Set a cookie that only this site reads, and no script; None: until the browser ends."""
    response.set_cookie(
        cookie_name(name),
        value,
        max_age=seconds,
        path="/",
        secure=request.is_secure,
        httponly=True,
        samesite="Lax",  # a link in a chat must open signed in; forms carry a token of their own
    )
