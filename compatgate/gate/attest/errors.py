"""Why an envelope is not to be trusted."""

from __future__ import annotations

from typing import Literal

from compatgate.errors import BadInput, CompatgateError

Reason = Literal[
    "unknown-key",
    "bad-signature",
    "wrong-payload-type",
    "malformed-statement",
    "unknown-predicate",
    "expired",
    "not-yet-valid",
    "wrong-subject",
    "wrong-target",
    "no-attestation",
]


class Refused(CompatgateError):
    """An attestation that proves nothing, or nothing about what was asked: never a pass."""

    status = 422
    exit_code = 1
    slug = "attestation-refused"

    def __init__(self, reason: Reason, problem: str, *, hint: str = "") -> None:
        super().__init__(problem, field="attestation", hint=hint)
        self.reason: Reason = reason


def missing_extra() -> BadInput:
    """The error where the packages that sign are not installed."""
    hint = "pip install 'compatgate[signing]'"
    return BadInput("signing and verifying need the extra packages", field="signing", hint=hint)
