"""Serve sign-in for the command line, the sessions of people, and who the caller is."""

from __future__ import annotations

from compatgate.errors import NotFound
from compatgate.kit.http.limits import RequestLimits
from compatgate.kit.http.replies import Reply, page_reply
from compatgate.kit.http.requests import to_struct
from compatgate.kit.http.route import Body, Call, NoQuery, Returns, Routes
from compatgate.kit.http.schemas import ListQuery
from compatgate.service.access.identity.schemas import (
    CallerBody,
    NewSessionBody,
    SessionBody,
    SessionRequest,
    SignInBody,
)
from compatgate.service.access.identity.service import Identity

routes = Routes("sessions", targets="free", scope="admin")


@routes.get(
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


@routes.post(
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


@routes.pages(
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


@routes.delete(
    "/sessions/{id}", Returns(SessionBody, "The ended session"), targets="refused", errors=(404,)
)
def end_session(call: Call[NoQuery]) -> Reply:
    """End the session of a person."""
    return Reply(call.use(Identity).sessions.end(call.args["id"], by=call.principal.name))


@routes.delete("/session", Returns(SessionBody, "The ended session"), scope=None, errors=(404,))
def end_own_session(call: Call[NoQuery]) -> Reply:
    """End the session of this request."""
    caller = call.principal
    if caller.kind != "person" or caller.token_id is None:
        hint = "this request uses a token, not a session; revoke the token instead"
        raise NotFound("the request is sent without a session of a person", hint=hint)
    return Reply(call.use(Identity).sessions.end(caller.token_id, by=caller.name))


@routes.get("/caller", Returns(CallerBody, "The caller"), scope=None)
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
