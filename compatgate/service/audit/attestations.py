"""Sign stored verdicts."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from compatgate.errors import CompatgateError, Conflict, Unavailable, quote_error
from compatgate.service.audit.keys import key_pem, key_set
from compatgate.service.audit.statement import (
    VerdictContent,
    verdict_content,
    verdict_statement,
)

if TYPE_CHECKING:
    from securesystemslib.signer import Signer, SSlibKey


VALID_FOR = timedelta(days=7)
_encode = msgspec.json.Encoder(order="sorted").encode


class SigningOptions(Struct, frozen=True):
    """The operator's signing options; an attestation is valid for so long after a decision."""

    make: Callable[[], Signer] | None = None
    keys: tuple[SSlibKey, ...] = ()
    valid_for: timedelta = VALID_FOR


class SignedStatement(Struct, frozen=True):
    """A statement in its envelope; the tag changes with the statement and the signing key."""

    envelope: dict[str, Any]
    about: VerdictContent
    etag: str


class Attestations:
    """The service that signs the verdicts of a database, and nothing else.

    ``read_own`` returns a verdict of this gate, and when it was last given; ``still_holds`` tells
    whether the gate would answer its question alike now.
    """

    def __init__(
        self,
        signing: SigningOptions,
        read_own: Callable[[str], tuple[str, datetime | None]],
        still_holds: Callable[[Mapping[str, Any]], bool],
    ) -> None:
        self._read_own = read_own
        self._still_holds = still_holds
        self._signing = signing
        self._lock = threading.Lock()
        self._signer: Signer | None = None

    def read_verdict(self, verdict_id: str) -> dict[str, Any]:
        """Return a verdict of this gate as it was given."""
        found: dict[str, Any] = msgspec.json.decode(self._read_own(verdict_id)[0])
        return found

    def attest(self, verdict_id: str) -> SignedStatement:
        """Sign a verdict as it was given."""
        from compatgate.service.audit.envelope import sign

        stored, confirmed = self._read_own(verdict_id)
        about = verdict_content(stored, confirmed_at=confirmed, valid_for=self._signing.valid_for)
        if not self._still_holds(msgspec.json.decode(stored)):
            what = f"verdict {verdict_id} no longer holds: the gate would answer otherwise now"
            raise Conflict(what, field="id", value=verdict_id, hint="ask the gate again")
        key_id, statement = self.key_id("id"), verdict_statement(about)
        mark = hashlib.sha256(_encode([statement, key_id])).hexdigest()
        signed = self._with_signer(lambda signer: sign(statement, signer))
        return SignedStatement(signed, about, f'"{mark[:32]}"')

    @property
    def keys(self) -> Sequence[SSlibKey]:
        """Return the published public keys."""
        return self._signing.keys

    def key_set(self) -> dict[str, Any]:
        """Return the public keys as a JSON Web Key Set."""
        return key_set(self._signing.keys)

    def key_pem(self) -> bytes:
        """Return the public keys in PEM, the signing key first; empty if there are none."""
        return key_pem(self._signing.keys)

    def key_id(self, field: str | None = None) -> str:
        """Return the id of the signing key; an error names the field."""
        if self._signing.make is None:
            hint = "the operator sets one with compatgate serve --signing-key"
            raise Conflict("this gate has no signing key", field=field, hint=hint)
        return self._signing.keys[0].keyid

    def sign_payload(self, payload: bytes, kind: str) -> list[dict[str, Any]]:
        """Return the signatures of a payload of another type than a statement."""
        from compatgate.service.audit.envelope import sign_payload

        self.key_id()
        made: list[dict[str, Any]] = self._with_signer(
            lambda signer: sign_payload(payload, kind, signer)
        )["signatures"]
        return made

    def _with_signer(self, sign: Callable[[Signer], dict[str, Any]]) -> dict[str, Any]:
        assert self._signing.make is not None  # noqa: S101 - the caller looked
        try:
            with self._lock:  # a token's session serves one at a time
                self._signer = self._signer or self._signing.make()
                return sign(self._signer)
        except CompatgateError:
            raise
        except Exception as error:
            self._signer = None
            reason = quote_error(error)
            hint = "check the gate's log, $PYKCS11LIB, credentials and network"
            raise Unavailable(f"the signing key cannot sign: {reason}", hint=hint) from error
