"""What an envelope is worth: signed by whom, about what, and whether it still counts. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from compatgate.core.evaluate import shown_moment
from compatgate.errors import BadInput
from compatgate.gate.attest.envelope import open_envelope
from compatgate.gate.attest.errors import Refused
from compatgate.gate.attest.statement import PREDICATE_TYPE, STATEMENT_TYPE, Predicate, Subject
from compatgate.gate.attest.strict import read_json
from compatgate.gate.attest.subjects import DigestSet
from compatgate.gate.attest.summary import SUMMARY_TYPE

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

SKEW = timedelta(minutes=5)
"""How far the clocks of who signs and who verifies may be apart."""


class Expected(Struct, frozen=True):
    """What the caller wants to know about; what is left out is not asked.

    Attributes:
        subjects: digests, one of which must be the subject's; None: any subject.
        target: that must have been asked about.
    """

    subjects: tuple[DigestSet, ...] | None = None
    target: str | None = None


class Verified(Struct, frozen=True):
    """A statement that a trusted key signed, that is about what was asked, and that counts now."""

    predicate: Predicate
    subjects: tuple[Subject, ...]
    predicate_type: str
    key_id: str


class _Statement(Struct, frozen=True, rename="camel"):
    kind: str = field(name="_type")
    subject: Annotated[tuple[Subject, ...], Meta(min_length=1)]
    predicate_type: str
    predicate: dict[str, Any]


def verify(data: bytes, keys: Sequence[SSlibKey], expected: Expected, now: datetime) -> Verified:
    """Check an envelope: signature first, then form, time, subject and target.

    Args:
        data: JSON of the envelope.
        keys: that are trusted.
        expected: what it must be about.
        now: the present.

    Raises:
        BadInput: it is no envelope.
        Refused: it proves nothing, or nothing about what was asked; ``reason`` says why.
    """
    opened = open_envelope(data, keys)
    statement = _statement(opened.payload)
    predicate = _predicate(statement)
    _check_time(predicate, now)
    _check_subject(statement.subject, expected)
    if expected.target is not None and predicate.target != expected.target:
        about = predicate.target or "a described pool"
        raise Refused("wrong-target", f"it is about {about}, not about {expected.target}")
    return Verified(predicate, statement.subject, statement.predicate_type, opened.key_id)


def _statement(payload: bytes) -> _Statement:
    try:
        found = msgspec.convert(read_json(payload, "payload"), _Statement)
    except (BadInput, msgspec.ValidationError) as error:
        what = error.problem if isinstance(error, BadInput) else str(error)
        raise Refused("malformed-statement", f"the payload is no statement: {what}") from None
    if found.kind != STATEMENT_TYPE:
        what = f"the payload is {found.kind[:100]!r}, not {STATEMENT_TYPE}"
        raise Refused("malformed-statement", what)
    return found


def _predicate(statement: _Statement) -> Predicate:
    kind, body = statement.predicate_type, statement.predicate
    if kind == SUMMARY_TYPE:
        body = body.get(PREDICATE_TYPE)  # type: ignore[assignment]
        if body is None:
            raise Refused("unknown-predicate", "it is a summary of another verifier")
    elif kind != PREDICATE_TYPE:
        hint = f"known are {PREDICATE_TYPE} and {SUMMARY_TYPE}"
        raise Refused("unknown-predicate", f"the predicate is {kind[:100]!r}", hint=hint)
    try:
        return msgspec.convert(body, Predicate)
    except msgspec.ValidationError as error:
        what = f"the predicate is not what {kind} has: {error}"
        raise Refused("malformed-statement", what) from None


def _check_time(predicate: Predicate, now: datetime) -> None:
    if predicate.decided_at > now + SKEW:
        what = f"it was decided on {shown_moment(predicate.decided_at)}, which is yet to come"
        raise Refused("not-yet-valid", what, hint="compare the clocks")
    if predicate.valid_until <= now:
        what = f"it counted until {shown_moment(predicate.valid_until)}"
        raise Refused("expired", what, hint="ask the gate again")


def _check_subject(subjects: Sequence[Subject], expected: Expected) -> None:
    if expected.subjects is None:
        return
    if any(_same(subject.digest, wanted) for subject in subjects for wanted in expected.subjects):
        return
    about = ", ".join(f"{s.name} {_shown(s.digest)}" for s in subjects)
    wanted = " or ".join(map(_shown, expected.subjects)) or "nothing"
    raise Refused("wrong-subject", f"it is about {about}, not about {wanted}")


def _same(found: DigestSet, wanted: DigestSet) -> bool:
    """Whether both have a digest in common, and none that differs."""
    both = found.keys() & wanted.keys()
    return bool(both) and all(found[name] == wanted[name] for name in both)


def _shown(digest: DigestSet) -> str:
    return ",".join(f"{name}:{value}"[:135] for name, value in digest.items())
