"""Sign in with an ID token, manage the sessions of people, and show the caller."""

from __future__ import annotations

from compatgate.client.request import Listing, Operation, Request, delete, get, members, pages, post
from compatgate.kit.http.schemas import Page
from compatgate.service.identity.schemas import (
    CallerBody,
    NewSessionBody,
    SessionBody,
    SessionRequest,
    SignInBody,
)


@Operation
def describe_sign_in() -> Request[SignInBody]:
    """Describe how people sign in on the command line."""
    return get("/sign-in", SignInBody)


@Operation
def open_session(id_token: str, access_token: str | None = None) -> Request[NewSessionBody]:
    """Exchange a fresh ID token for a session; only the answer contains its secret.

    Args:
        id_token: of the client that `describe_sign_in` names.
        access_token: if `describe_sign_in` asks for it.
    """
    body = members(id_token=id_token, access_token=access_token)
    return post("/sessions", NewSessionBody, body=body, reads=SessionRequest)


@Listing
def list_sessions() -> Request[Page[SessionBody]]:
    """List the sessions of people that have not ended."""
    return pages("/sessions", SessionBody)


@Operation
def end_session(id: str) -> Request[SessionBody]:  # noqa: A002 - the name in the path
    """End a session by its id."""
    return delete("/sessions/{id}", SessionBody, id=id)


@Operation
def end_own_session() -> Request[SessionBody]:
    """End the session that the request is sent with."""
    return delete("/session", SessionBody)


@Operation
def show_caller() -> Request[CallerBody]:
    """Show who the caller is: name, kind and scopes."""
    return get("/caller", CallerBody)
