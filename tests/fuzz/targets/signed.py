"""Envelopes, what is in them, and keys."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from attest_keys import new_key, public_pem, sealed, signer_of

from compatgate.service.audit.envelope import ExpectedStatement, make_bundle, verify
from compatgate.service.audit.keys import key_set, read_keys
from targets.target import Target


def targets() -> dict[str, Target]:
    """Envelopes, what is in them, and keys; a damaged one must never be verified."""
    signer = signer_of()
    now = datetime(2026, 11, 21, tzinfo=UTC)
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "stack", "digest": {"sha256": "ab" * 32}}],
        "predicateType": "https://compatgate.dev/attestations/verdict/v1",
        "predicate": {"verdict": "pass", "allowed": True, "validUntil": "2999-01-01T00:00:00Z"},
    }
    payload = json.dumps(statement).encode()
    envelope = json.dumps(sealed(payload, signer)).encode()
    bundle = make_bundle(envelope, signer.public_key)

    def judge(data: bytes) -> object:
        return verify(data, [signer.public_key], ExpectedStatement(), now)

    def judge_payload(data: bytes) -> object:
        return judge(json.dumps(sealed(data, signer)).encode())

    keys = [new_key(), new_key("p256")]
    pem = b"".join(map(public_pem, keys))
    published = json.dumps(key_set(read_keys(pem, "keys"))).encode()
    return {
        "envelope": Target(judge, [envelope, bundle]),
        "statement": Target(judge_payload, [payload]),
        "keys": Target(lambda data: read_keys(data, "keys"), [pem, published]),
    }
