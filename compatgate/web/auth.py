"""Identify the caller by its secret, check its scopes, and limit its requests.

Limits hold for each process: for failed authentications of a peer, for questions of anonymous
callers, whose verdicts fill the database, and for requests of a caller if the operator asks for
that. Health, metrics and Kubernetes admission are not limited by caller: a cluster must not stop
because its API server asks often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from flask import request

from compatgate.errors import Forbidden, Unauthorized
from compatgate.kit.http.notes import note_of
from compatgate.kit.http.rate import Rate, RateLimiter, peer_key, refuse_for
from compatgate.kit.principal import AccessRefused

if TYPE_CHECKING:
    from compatgate.core.rule import Verdict
    from compatgate.kit.principal import Principal
    from compatgate.web.call import Service
    from compatgate.web.route import TargetLimit

FAILED = Rate(30, 60.0)
"""Failed authentications of a peer; a forgotten script tries once a minute."""
_HINT = "create a token with: compatgate token create --name NAME --scope {scope}"


def authenticate(header: str | None, service: Service, peer: str) -> Principal:
    """Return the sender of a request."""
    if header is None:
        return service.nobody
    return verify_secret(_secret(header), service, peer)


def verify_secret(secret: str, service: Service, peer: str) -> Principal:
    """Return the holder of a token, of a person's session or of a job token."""
    known = service.identity.knows(secret)
    holders: Holders = service.identity if known else service.gate.tokens
    return service.limits.verify(secret, holders, peer)


def cached_sender(header: str | None, service: Service) -> Principal | None:
    """Return the sender from memory; None: `authenticate` must look it up."""
    if header is None:
        return service.nobody
    secret = _secret(header)
    if service.identity.knows(secret):
        return service.identity.at_hand(secret)
    return service.gate.tokens.at_hand(secret)


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
        service.gate.refusals.note(caller.identity, caller.name, place, error.problem)


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


def peer_address() -> str:
    """Return the address that the request came from: the client's, behind a trusted proxy."""
    return request.environ.get("REMOTE_ADDR") or ""


class Holders(Protocol):
    """Those whom secrets belong to: tokens, or people and jobs that an issuer vouches for."""

    def verify(self, secret: str) -> Principal:
        """Return the holder of a secret."""

    def was_valid(self, secret: str) -> bool:
        """Return whether this process has found the secret valid before."""


class RequestLimits:
    """The limits of one application.

    Failed authentications count by peer, requests by caller, questions by an anonymous caller's
    address; None: no limit.
    """

    def __init__(
        self,
        failed: Rate | None = None,
        requests: Rate | None = None,
        questions: Rate | None = None,
    ) -> None:
        self._failed = RateLimiter(failed) if failed else None
        self._requests = RateLimiter(requests) if requests else None
        self._questions = RateLimiter(questions) if questions else None

    def verify(self, secret: str, holders: Holders, peer: str) -> Principal:
        """Return the holder of a secret, and count a failure.

        A peer that has failed too often is refused without a look at the database, unless its
        secret was valid before: somebody behind the same address must not lock others out.
        """
        if not holders.was_valid(secret):
            self.check_failures(peer)
        try:
            return holders.verify(secret)
        except (Unauthorized, Forbidden):
            self.count_failure(peer)
            raise

    def check_failures(self, peer: str) -> None:
        """Refuse a peer that has failed to authenticate too often."""
        if self._failed is not None and (wait := self._failed.wait(peer_key(peer))):
            hint = "check the token; a token that was valid before is still accepted"
            raise refuse_for(wait, "too many failed authentications from this address", hint)

    def count_failure(self, peer: str) -> None:
        """Count a failed authentication."""
        if self._failed is not None:
            self._failed.take(peer_key(peer))

    def take(self, caller: Principal, peer: str) -> None:
        """Count a request."""
        if self._requests is None or caller.kind == "local":
            return
        key = f"peer:{peer_key(peer)}" if caller.is_anonymous else caller.identity
        if wait := self._requests.take(key):
            hint = "spread the requests, or ask the operator: serve --rate"
            raise refuse_for(wait, f"{caller.name} sends too many requests", hint)

    def take_question(self, caller: Principal, peer: str) -> None:
        """Count a question whose verdict is stored."""
        if self._questions is None or not caller.is_anonymous:
            return
        if wait := self._questions.take(peer_key(peer)):
            hint = "ask with a token, or ask the operator: serve --anonymous-rate"
            raise refuse_for(wait, "too many questions without a token from this address", hint)
