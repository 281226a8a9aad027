"""Sign and verify requests: HMAC-SHA256 over the time, the request line and the body.

``X-Compatgate-Signature: t=1795262400,v1=<hex>`` where the signed bytes are
``v1:<t>:<METHOD> <path with query>``, a newline and the body: the path's query says what an
answer does.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from compatgate.errors import BadInput, Unauthorized

HEADER = "X-Compatgate-Signature"
WINDOW_S = 300
"""Tolerated difference between the time of a request and the gate's, in seconds."""
MIN_SECRET_BYTES = 16
_LARGEST = 4096
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SIGNATURE_PATTERN = re.compile(r"t=(\d{1,12}),v1=([0-9a-fA-F]{64})")
_KEY_PATTERN = re.compile(r"(?=.*[0-9])[A-Za-z0-9+/=_-]{16,}")
_FROM_ENVIRONMENT = "env:"


class Secret(Struct, frozen=True):
    """A named signing key; several keys allow a rotation."""

    name: str
    key: bytes

    def __repr__(self) -> str:
        """Return the object without its key, because errors and logs show objects."""
        return f"Secret({self.name!r})"


def read_secrets(values: Iterable[str], field: str) -> tuple[Secret, ...]:
    """Read ``NAME=FILE``, or ``NAME=env:VARIABLE``."""
    found: dict[str, Secret] = {}
    for value in values:
        name, _, source = value.partition("=")
        if not _NAME.fullmatch(name) or not source:
            hint = "NAME=FILE or NAME=env:VARIABLE, like ci=/etc/compatgate/ci.key"
            raise BadInput("is not a named secret", field=field, value=name, hint=hint)
        if name in found:
            raise BadInput(f"{name} is named twice", field=field, value=name)
        found[name] = Secret(name, _key(source, f"{field} {name}"))
    return tuple(found.values())


def _key(source: str, field: str) -> bytes:
    if source.startswith(_FROM_ENVIRONMENT):
        variable = source.removeprefix(_FROM_ENVIRONMENT)
        key = os.environ.get(variable, "").encode()
        where = f"the variable {_hide_key(variable)}"
    else:
        where = _hide_key(source)
        try:
            with Path(source).open("rb") as file:
                key = file.read(_LARGEST)
        except OSError as error:
            raise BadInput(f"cannot read {where}: {error.strerror}", field=field) from None
    key = key.strip(b"\r\n")
    if len(key) < MIN_SECRET_BYTES:
        hint = f"at least {MIN_SECRET_BYTES} bytes; openssl rand -hex 32 makes one"
        raise BadInput(f"{where} contains no key of sufficient length", field=field, hint=hint)
    return key


def _hide_key(source: str) -> str:
    """Return the source of a key for logs; hide a text that may be the key itself."""
    return "(not shown)" if _KEY_PATTERN.fullmatch(source) else source


def sign(key: bytes, at: int, method: str, path: str, body: bytes) -> str:
    """Return the header's value; ``at``: seconds since the epoch."""
    return f"t={at},v1={_digest(key, at, method, path, body)}"


def verify(
    secrets: Sequence[Secret], header: str, now: float, method: str, path: str, body: bytes
) -> str:
    """Return the name of the secret that a request was signed with.

    Every secret is tried, and compared in constant time.
    """
    stated = _SIGNATURE_PATTERN.fullmatch(header.strip())
    if stated is None:
        raise _refuse("the signature is malformed", "t=SECONDS,v1=HEX of HMAC-SHA256")
    at = int(stated[1])
    if abs(now - at) > WINDOW_S:
        hint = f"sign every request separately; clocks may differ by {WINDOW_S} seconds"
        raise _refuse("the signature is too old or in the future", hint)
    given = stated[2].lower()
    matching = [
        secret.name
        for secret in secrets
        if hmac.compare_digest(_digest(secret.key, at, method, path, body), given)
    ]
    if not matching:
        hint = "sign the path with its query, and the body, exactly as sent"
        raise _refuse("no known key made the signature", hint)
    return matching[0]


def _refuse(problem: str, hint: str) -> Unauthorized:
    return Unauthorized(problem, field=HEADER, hint=hint, reason="signature")


def _digest(key: bytes, at: int, method: str, path: str, body: bytes) -> str:
    signed = f"v1:{at}:{method} {path}\n".encode("latin-1", "replace") + body
    return hmac.new(key, signed, hashlib.sha256).hexdigest()
