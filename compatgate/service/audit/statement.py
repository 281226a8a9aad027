"""Make in-toto statements of stored verdicts.

An attestation is about an image by its digest, or a stack by the digest of its form.

Sources: in-toto/attestation ``spec/v1/statement.md`` and ``spec/v1/resource_descriptor.md``. The
predicate is described in docs/how-to/signing.md and by
``matrix/schema/verdict-attestation.schema.json``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from compatgate.core.evaluate import format_moment
from compatgate.core.rule import Basis, FindingOutcome, Outcome
from compatgate.core.rules.caveats import some_pools
from compatgate.core.stack import Stack, complete_stack, parse_stack
from compatgate.discovery.registry.image_spec import parse_reference
from compatgate.errors import BadInput, Conflict
from compatgate.kit import clock
from compatgate.kit.clock import parse_moment

_REMARKS = ("open", "conflicts", "unread", "unmeasured")
_UNORDERED = ("arch", "require")
_encode = msgspec.json.Encoder(order="sorted").encode
DigestSet = dict[str, str]
"""Algorithm to lower-case hexadecimal digits, as in-toto writes digests."""


def digest_of(value: Any) -> DigestSet:
    """Return the SHA-256 of a JSON value: keys sorted, no white space, UTF-8 (RFC 8785)."""
    return {"sha256": hashlib.sha256(_encode(value)).hexdigest()}


def digest_set(text: str) -> DigestSet:
    """Return ``sha256:1a2b...`` in the form of in-toto."""
    algorithm, _, digits = text.partition(":")
    return {algorithm: digits}


def stack_digest(stack: Mapping[str, Any]) -> DigestSet:
    """Return the digest of a stack in its canonical form.

    ``stack``: as answers carry it. Remarks (``open``, ``conflicts``, ``unread``, ``unmeasured``) do
    not count, and neither does the order of ``arch`` and ``require``.
    """
    form = {name: value for name, value in stack.items() if name not in _REMARKS}
    for name in _UNORDERED:
        if name in form:
            form[name] = sorted(form[name])
    return digest_of(form)


def stated_digest(stated: Mapping[str, Any]) -> DigestSet:
    """Return the digest of a stated stack in its verdict."""
    stack: Stack = complete_stack(parse_stack(stated))
    return stack_digest(stack.to_json())


def image_digest(image: str | None) -> DigestSet | None:
    """Return the digest in an image's reference, None where there is none."""
    try:
        found = parse_reference(image).digest if image else None
    except BadInput:
        return None
    return digest_set(found) if found else None


def image_name(image: str) -> str:
    """Return a reference without tag and digest."""
    name = parse_reference(image)
    return f"{name.registry}/{name.repository}"


STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://compatgate.dev/attestations/verdict/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
Moment = Annotated[datetime, Meta(tz=True)]
_NEITHER = "was decided before the gate stored the basis of a verdict"


class Subject(Struct, frozen=True, rename="camel"):
    """A resource with its digest: what a statement is about, or rests on."""

    name: str
    digest: DigestSet


class Image(Struct, frozen=True, rename="camel"):
    """The image that a question named.

    ``read``: the gate itself read it, and the stack is what it showed, nothing else.
    """

    reference: str
    read: bool
    digest: DigestSet | None = None


class ShortFinding(Struct, frozen=True, rename="camel"):
    """A finding without source and fixes; the verdict itself has them."""

    rule: str
    name: str
    outcome: FindingOutcome
    component: str
    pools: list[str]
    message: str


class Predicate(Struct, frozen=True, rename="camel", kw_only=True):
    """The decision of the gate: its subject, its inputs and its validity.

    Attributes:
        confirmed_at: time of the last decision; asking again renews it.
        valid_until: end of its validity; ask again after it.
        inputs: digests of every input of the answer, and of the stored verdict.
    """

    id: str
    verdict: Outcome
    allowed: bool
    mode: str
    basis: Basis
    target: str | None
    pools: list[dict[str, Any]]
    stack: dict[str, Any]
    image: Image | None
    findings: list[ShortFinding]
    matrix_revision: int
    entries: dict[str, str]
    facts: DigestSet
    overlays: list[str]
    evidence: list[str]
    inputs: list[Subject]
    decided_at: Moment
    confirmed_at: Moment
    valid_until: Moment


class VerdictContent(Struct, frozen=True):
    """The signed content."""

    subject: Subject
    predicate: Predicate


def verdict_content(
    stored: str, *, confirmed_at: datetime | None, valid_for: timedelta
) -> VerdictContent:
    """Return the content of a verdict that can be attested.

    The image is the subject only where the gate read it and decided on nothing else: whoever may
    ask may state any stack, and put any image's name on it.
    """
    verdict: dict[str, Any] = msgspec.json.decode(stored)
    _check(verdict)
    image: Image | None = None
    if named := verdict["image"]:
        image = Image(named, verdict["basis"] == "image", image_digest(named))
    decided_at = parse_moment(verdict["decided_at"])
    confirmed = min(max(confirmed_at or decided_at, decided_at), clock.now())
    until = confirmed + valid_for
    if verdict["valid_until"]:
        until = min(until, parse_moment(verdict["valid_until"]))
    predicate = Predicate(
        id=verdict["id"],
        verdict=verdict["verdict"],
        allowed=verdict["allowed"],
        mode=verdict["mode"],
        basis=verdict["basis"],
        target=verdict["target"],
        pools=verdict["pools"],
        stack=verdict["stack"],
        image=image,
        findings=msgspec.convert(verdict["findings"], list[ShortFinding]),
        matrix_revision=verdict["matrix_revision"],
        entries=verdict["entries"],
        facts=digest_set(verdict["facts"]),
        overlays=verdict["overlays"],
        evidence=verdict["evidence"],
        inputs=[
            Subject("verdict", {"sha256": hashlib.sha256(stored.encode()).hexdigest()}),
            Subject("stack", stack_digest(verdict["stack"])),
            Subject("pools", digest_of(verdict["pools"])),
            Subject("facts", digest_set(verdict["facts"])),
        ],
        decided_at=decided_at,
        confirmed_at=confirmed,
        valid_until=until,
    )
    subject = Subject("stack", stack_digest(verdict["stack"]))
    if image and image.read and image.digest:
        subject = Subject(image_name(image.reference), image.digest)
    return VerdictContent(subject, predicate)


def verdict_statement(about: VerdictContent) -> dict[str, Any]:
    """Return an in-toto statement with compatgate's predicate."""
    return {
        "_type": STATEMENT_TYPE,
        "subject": [to_plain(about.subject)],
        "predicateType": PREDICATE_TYPE,
        "predicate": to_plain(about.predicate),
    }


def to_plain(value: Struct) -> dict[str, Any]:
    """Convert a struct to plain data, with times as in answers."""
    made: dict[str, Any] = msgspec.to_builtins(value, builtin_types=(datetime,))
    return {key: format_moment(v) if isinstance(v, datetime) else v for key, v in made.items()}


def _check(verdict: Mapping[str, Any]) -> None:
    basis = verdict.get("basis")
    if basis not in ("image", "stated"):
        why = "is a what-if, not a decision about a real stack" if basis else _NEITHER
        hint = "ask again without set" if basis else "ask again"
        raise Conflict(f"verdict {verdict['id']} {why}", field="id", hint=hint)
    if any(finding["rule"] == some_pools.id for finding in verdict["findings"]):
        what = f"verdict {verdict['id']} is about some pools of the target only"
        raise Conflict(what, field="id", hint="ask again without `pools`")
    waived = any(finding["outcome"] == "waived" for finding in verdict["findings"])
    if basis == "stated" and verdict["image"] and waived:
        what = f"verdict {verdict['id']} rests on a waiver, and its image was not read"
        hint = "let the gate read the image (serve --registry), or ask without it"
        raise Conflict(what, field="id", hint=hint)
