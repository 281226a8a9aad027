"""Identify the caller by its secret, check its scopes, and limit its requests.

Limits hold for each process: for failed authentications of a peer, for questions of anonymous
callers, whose verdicts fill the database, and for requests of a caller if the operator asks for
that. Health, metrics and Kubernetes admission are not limited by caller: a cluster must not stop
because its API server asks often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import request

from compatgate.errors import Unauthorized
from compatgate.kit.http.notes import note_of
from compatgate.kit.principal import AccessRefused

if TYPE_CHECKING:
    from compatgate.core.rule import Verdict
    from compatgate.kit.http.limits import Holders
    from compatgate.kit.http.route import TargetLimit
    from compatgate.kit.principal import Principal
    from compatgate.web.service import Service

_HINT = (
    "ask an administrator of the gate to run: compatgate token create --name NAME --scope {scope}"
)


def authenticate(header: str | None, service: Service, peer: str) -> Principal:
    """Return the sender of a request."""
    if header is None:
        return service.nobody
    return verify_secret(_secret(header), service, peer)


def verify_secret(secret: str, service: Service, peer: str) -> Principal:
    """Return the holder of a token, of a person's session or of a job token."""
    known = service.identity.knows(secret)
    holders: Holders = service.identity if known else service.rooms.tokens
    return service.limits.verify(secret, holders, peer)


def cached_sender(header: str | None, service: Service) -> Principal | None:
    """Return the sender from memory; None: `authenticate` must look it up."""
    if header is None:
        return service.nobody
    secret = _secret(header)
    if service.identity.knows(secret):
        return service.identity.at_hand(secret)
    return service.rooms.tokens.at_hand(secret)


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
