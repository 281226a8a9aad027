"""Define the audit log, signed verdicts and public keys as REST carries them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from compatgate.kit.http.schemas import Filter, ListQuery, Since, Until

Base64 = Annotated[str, Meta(pattern="^[A-Za-z0-9+/]*={0,2}$")]


class AuditBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A link of the audit chain."""

    seq: int
    at: Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
    actor: str
    action: str
    subject: str
    detail: dict[str, Any]
    hash: str


class ChainBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The result of a verification of the logs."""

    ok: bool
    links: int
    decisions: int
    revisions: int
    evidence: Annotated[int, Meta(description="number of judged runs")]
    head: Annotated[
        str,
        Meta(
            description="latest hash; store it elsewhere: the chain alone cannot reveal truncation"
        ),
    ]
    problems: list[str]
    batches: Annotated[int, Meta(description="number of batches of decisions")] = 0
    tokens: int = 0
    since: Annotated[
        int,
        Meta(
            description="link of the seal where the verification began; 0: everything was verified"
        ),
    ] = 0
    checked_links: Annotated[int, Meta(description="number of verified links")] = 0
    checked_decisions: Annotated[int, Meta(description="number of verified decisions")] = 0
    unanchored: Annotated[int, Meta(description="number of decisions that no link covers yet")] = 0


class AuditFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of the audit log."""

    action: Annotated[Filter, Meta(description="action, or a prefix such as `matrix.`")] | None = (
        None
    )
    actor: Filter | None = None
    since: Since | None = None
    until: Until | None = None


class SignatureBody(Struct, frozen=True, forbid_unknown_fields=True):
    """One signature over the payload and its type."""

    keyid: str
    sig: Base64


class EnvelopeBody(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A DSSE envelope."""

    payload: Annotated[Base64, Meta(description="the in-toto statement, UTF-8 JSON in base64")]
    payload_type: Literal["application/vnd.in-toto+json"]
    signatures: Annotated[list[SignatureBody], Meta(min_length=1)]


class KeyBody(Struct, frozen=True):
    """A public key (RFC 7517); `y` on P-256 only."""

    kty: Literal["OKP", "EC"]
    crv: Literal["Ed25519", "P-256"]
    x: str
    kid: Annotated[str, Meta(description="`keyid` of the signatures that this key verifies")]
    use: Literal["sig"]
    y: str = ""


class KeySetBody(Struct, frozen=True):
    """A JSON Web Key Set: the current signing key first, then former and future keys."""

    keys: list[KeyBody]
