"""Who calls a deploy webhook: by signature, by token, or by a token as a URL's password."""

from __future__ import annotations

import base64
import binascii
import time
from typing import TYPE_CHECKING

from flask import request

from compatgate.errors import Unauthorized
from compatgate.gate.auth import Principal
from compatgate.gate.hooks import signatures
from compatgate.web.auth import authenticate, authorize

if TYPE_CHECKING:
    from compatgate.web.call import Service

_SIGNATURE = "HTTP_X_COMPATGATE_SIGNATURE"


def caller(raw: bytes, service: Service) -> Principal:
    """Who sends a request, and that they may ask the gate.

    A signature decides where there is one. Where the operator keeps secrets for signing, nobody is
    let in without a signature or a token.

    Args:
        raw: the body.
        service: knows secrets and tokens.

    Raises:
        Unauthorized: no valid signature or token.
        Forbidden: the token lacks the scope.
    """
    header = request.environ.get("HTTP_AUTHORIZATION")
    signature = request.environ.get(_SIGNATURE)
    if signature is not None:
        return _signed(signature, raw, service)
    scheme, _, secret = (header or "").strip().partition(" ")
    if scheme.lower() == "basic":
        principal = service.gate.tokens.verify(_password(secret))
    else:
        principal = authenticate(header, service)
    if service.settings.hook_secrets and principal.token_id is None:
        hint = f"sign the request in {signatures.HEADER}, or send a token"
        raise Unauthorized("this needs a signature or a token", hint=hint)
    authorize(principal, "gate")
    return principal


def _signed(signature: str, raw: bytes, service: Service) -> Principal:
    secrets = service.settings.hook_secrets
    if not secrets:
        hint = "serve --hook-secret names the keys"
        raise Unauthorized("no keys are known here", field=signatures.HEADER, hint=hint)
    environ = request.environ
    path = environ.get("RAW_URI") or environ.get("REQUEST_URI") or request.full_path
    name = signatures.verify(secrets, signature, time.time(), request.method, path, raw)
    return Principal(f"hook:{name}", frozenset({"gate"}))


def _password(encoded: str) -> str:
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        decoded = ""
    password = decoded.partition(":")[2]
    if not password:
        hint = "any user name, and a token as the password"
        raise Unauthorized("no token is the password", field="Authorization", hint=hint)
    return password
