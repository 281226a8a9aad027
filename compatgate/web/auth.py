"""Who asks: a bearer token, or nobody; and whether they may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.errors import Forbidden, Unauthorized

if TYPE_CHECKING:
    from compatgate.gate.auth import Principal
    from compatgate.web.call import Service

_HINT = "create a token with: compatgate token create --name NAME --scope {scope}"


def authenticate(header: str | None, service: Service) -> Principal:
    """The sender of a request.

    Args:
        header: ``Authorization``, None when there is none.
        service: knows the tokens, and what nobody may do.

    Raises:
        Unauthorized: not a bearer token, or not a valid one.
    """
    if header is None:
        return service.nobody
    return service.gate.tokens.verify(_secret(header))


def known_sender(header: str | None, service: Service) -> Principal | None:
    """Return the sender where memory alone knows; None: `authenticate` must look.

    Raises:
        Unauthorized: as `authenticate`.
    """
    if header is None:
        return service.nobody
    return service.gate.tokens.at_hand(_secret(header))


def _secret(header: str) -> str:
    scheme, _, secret = header.strip().partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise Unauthorized(
            "not a bearer token", field="Authorization", hint="send Authorization: Bearer TOKEN"
        )
    return secret.strip()


def authorize(principal: Principal, scope: str | None) -> None:
    """Let pass whoever has the scope.

    Raises:
        Unauthorized: there was no token, and nobody lacks the scope.
        Forbidden: the token lacks it.
    """
    if scope is None or principal.may(scope):
        return
    hint = _HINT.format(scope=scope)
    if principal.token_id is None:
        raise Unauthorized(f"this needs a token with the scope {scope}", hint=hint)
    raise Forbidden(
        f"the token {principal.name} lacks the scope {scope}", field="scope", value=scope, hint=hint
    )
