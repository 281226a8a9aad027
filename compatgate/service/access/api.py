"""Serve tokens, sign-in for the command line, the sessions of people, and who the caller is."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta

from compatgate.documents.quantities import parse_duration
from compatgate.errors import NotFound
from compatgate.kit.clock import now
from compatgate.kit.http.limits import RequestLimits
from compatgate.kit.http.replies import Reply, page_reply
from compatgate.kit.http.requests import to_struct
from compatgate.kit.http.route import Body, Call, NoQuery, Returns, Routes
from compatgate.kit.http.schemas import ListQuery
from compatgate.kit.principal import SCOPES
from compatgate.service.access.identity import Identity
from compatgate.service.access.schemas import (
    TOKEN,
    CallerBody,
    NewSessionBody,
    NewTokenBody,
    RotationRequest,
    SessionBody,
    SessionRequest,
    SignInBody,
    TokenBody,
    TokenRequest,
)
from compatgate.service.access.tokens import Tokens

token_routes = Routes("tokens", scope="admin")
session_routes = Routes("sessions", targets="free", scope="admin")


class TokenFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of the list of tokens."""

    active: (
        Annotated[bool, Meta(description="true: tokens that are neither revoked nor expired")]
        | None
    ) = None


@token_routes.pages("/tokens", TokenBody, "A page of tokens", scope="admin", query=TokenFilters)
def list_tokens(call: Call[TokenFilters]) -> Reply:
    """List tokens by name, without secrets."""
    return page_reply(call.use(Tokens).list(**call.query.filters()), lambda row: row.to_body())


@token_routes.post(
    "/tokens",
    Returns(NewTokenBody, "The token with its secret, shown only once", status=201),
    body=Body(TokenRequest, examples={"ci": TOKEN}),
    errors=(409,),
)
def create_token(call: Call[NoQuery]) -> Reply:
    """Create a token."""
    wanted = to_struct(call.document(), TokenRequest, {"scopes": f"scopes: {', '.join(SCOPES)}"})
    made = call.use(Tokens).create(
        wanted.name,
        wanted.scopes,
        by=call.principal.name,
        expires_at=_end(wanted.expires),
        targets=wanted.targets,
        person=wanted.person,
    )
    body = NewTokenBody(made.secret, made.token.to_body())
    return Reply(body, status=201, secret=True)


@token_routes.post(
    "/tokens/{name}/rotate",
    Returns(NewTokenBody, "The token with its new secret, shown only once"),
    body=Body(RotationRequest, examples={"overlap": {"overlap": "24h"}}),
    errors=(404, 409),
)
def rotate_token(call: Call[NoQuery]) -> Reply:
    """Give a token a new secret; name, id, scopes and targets stay the same.

    The current secret ends immediately, or after `overlap`. Browsers that signed in with it are
    signed out when it ends.
    """
    wanted = to_struct(call.document(), RotationRequest)
    overlap = parse_duration(wanted.overlap, field="overlap") if wanted.overlap else timedelta()
    made = call.use(Tokens).rotate(
        call.args["name"], by=call.principal.name, overlap=overlap, expires_at=_end(wanted.expires)
    )
    return Reply(NewTokenBody(made.secret, made.token.to_body()), secret=True)


@token_routes.delete("/tokens/{name}", Returns(TokenBody, "The revoked token"), errors=(404, 409))
def revoke_token(call: Call[NoQuery]) -> Reply:
    """Revoke a token by its name or id.

    The last lasting token with the scope `admin` cannot be revoked (409): create another one
    first. A token that expires within 30 days is not lasting.
    """
    return Reply(call.use(Tokens).revoke(call.args["name"], by=call.principal.name).to_body())


def _end(expires: str | None) -> datetime | None:
    return None if expires is None else now() + parse_duration(expires, field="expires")


@session_routes.get(
    "/sign-in", Returns(SignInBody, "The issuer and its endpoints"), scope=None, errors=(404,)
)
def describe_sign_in(call: Call[NoQuery]) -> Reply:
    """Describe how people sign in on the command line.

    404: this gate has tokens only. 503: the issuer does not answer.
    """
    people = call.use(Identity).require_people()
    settings = people.settings
    if settings.command_line is None:
        what = "people cannot sign in on the command line here"
        raise NotFound(what, hint="the operator's file for --oidc names no command_line client")
    body = SignInBody(
        settings.label,
        settings.issuer,
        settings.command_line,
        people.issuer.endpoint("device_authorization_endpoint"),
        people.issuer.endpoint("token_endpoint"),
        settings.scopes,
        settings.userinfo,
    )
    return Reply(body)


@session_routes.post(
    "/sessions",
    Returns(NewSessionBody, "The session with its secret, shown only once", status=201),
    scope=None,
    body=Body(SessionRequest),
    errors=(403, 404),
)
def open_session(call: Call[NoQuery]) -> Reply:
    """Exchange a fresh ID token of the command line's client for a session.

    An ID token opens one session, within ten minutes of its issue.
    """
    wanted = to_struct(call.document(), SessionRequest)
    people = call.use(Identity).require_people()
    with call.use(RequestLimits).counted_failures():
        made = people.exchange(wanted.id_token, wanted.access_token)
    return Reply(NewSessionBody(made.secret, made.session), status=201, secret=True)


@session_routes.pages(
    "/sessions",
    SessionBody,
    "A page of sessions",
    scope="admin",
    targets="refused",
    query=ListQuery,
)
def list_sessions(call: Call[ListQuery]) -> Reply:
    """List the sessions of people that have not ended, without secrets."""
    found = call.use(Identity).sessions.list(**call.query.filters())
    return page_reply(found, lambda body: body)


@session_routes.delete(
    "/sessions/{id}", Returns(SessionBody, "The ended session"), targets="refused", errors=(404,)
)
def end_session(call: Call[NoQuery]) -> Reply:
    """End the session of a person."""
    return Reply(call.use(Identity).sessions.end(call.args["id"], by=call.principal.name))


@session_routes.delete(
    "/session", Returns(SessionBody, "The ended session"), scope=None, errors=(404,)
)
def end_own_session(call: Call[NoQuery]) -> Reply:
    """End the session of this request."""
    caller = call.principal
    if caller.kind != "person" or caller.token_id is None:
        hint = "this request uses a token, not a session; revoke the token instead"
        raise NotFound("the request is sent without a session of a person", hint=hint)
    return Reply(call.use(Identity).sessions.end(caller.token_id, by=caller.name))


@session_routes.get("/caller", Returns(CallerBody, "The caller"), scope=None)
def show_caller(call: Call[NoQuery]) -> Reply:
    """Show who the caller is: name, kind and scopes."""
    caller = call.principal
    body = {
        "name": caller.name,
        "kind": caller.kind,
        "scopes": sorted(caller.scopes),
        "targets": caller.targets,
        "id": caller.token_id,
    }
    return Reply(body, secret=True)
