"""What an envelope is worth: each way of being worth nothing has its own reason."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from attest_keys import KINDS, payload_of, sealed, signer_of
from securesystemslib.dsse import Envelope

from compatgate.errors import BadInput
from compatgate.service.audit.envelope import (
    ExpectedStatement,
    VerificationFailed,
    VerifiedStatement,
    sign,
    verify,
)
from compatgate.service.audit.statement import (
    digest_set,
    stated_digest,
)

from .conftest import DIGEST, IMAGE, NOW

READ = {"image": IMAGE, "basis": "image"}


@pytest.fixture
def made(statement: Any, signer: Any) -> Callable[..., Any]:
    """A signed statement, as its JSON value."""
    return lambda **changes: sign(statement(**changes), signer)


@pytest.fixture
def judged(signer: Any) -> Callable[..., VerifiedStatement]:
    """Verify with the key that is trusted."""

    def judge(
        envelope: Any, *, after: timedelta = timedelta(), **expected: Any
    ) -> VerifiedStatement:
        data = envelope if isinstance(envelope, bytes) else json.dumps(envelope).encode()
        return verify(data, [signer.public_key], ExpectedStatement(**expected), NOW + after)

    return judge


def reason(call: Callable[[], object]) -> str:
    with pytest.raises(VerificationFailed) as caught:
        call()
    assert caught.value.exit_code == 1
    assert caught.value.problem
    return caught.value.reason


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_signed_is_verified(statement: Any, kind: str) -> None:
    signer = signer_of(kind)
    data = json.dumps(sign(statement(**READ), signer)).encode()
    wanted = ExpectedStatement((digest_set(f"sha256:{DIGEST}"),), "prod-a100")
    found = verify(data, [signer_of().public_key, signer.public_key], wanted, NOW)
    assert found.key_id == signer.public_key.keyid
    assert found.predicate.allowed
    assert found.predicate.target == "prod-a100"


def test_securesystemslib_reads_the_envelope(made: Any, signer: Any) -> None:
    envelope = Envelope.from_dict(made())
    assert envelope.verify([signer.public_key], 1)
    assert envelope.payload_type == "application/vnd.in-toto+json"


def test_a_changed_payload_is_refused(made: Any, judged: Any) -> None:
    envelope = made(allowed=False)
    statement = payload_of(envelope)
    statement["predicate"]["allowed"] = True
    envelope["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    assert reason(lambda: judged(envelope)) == "bad-signature"


def test_a_changed_signature_is_refused(made: Any, judged: Any) -> None:
    envelope = made()
    raw = bytearray(base64.b64decode(envelope["signatures"][0]["sig"]))
    for damaged in (bytes([raw[0] ^ 1, *raw[1:]]), bytes(raw[:-1]), b"", bytes(64)):
        envelope["signatures"][0]["sig"] = base64.b64encode(damaged).decode()
        assert reason(lambda: judged(envelope)) == "bad-signature"


def test_another_key_is_refused_also_under_a_trusted_name(
    statement: Any, other: Any, signer: Any, judged: Any
) -> None:
    envelope = sign(statement(), other)
    assert reason(lambda: judged(envelope)) == "unknown-key"
    envelope["signatures"][0]["keyid"] = signer.public_key.keyid
    assert reason(lambda: judged(envelope)) == "bad-signature"


def test_without_a_signature_it_is_refused(made: Any, judged: Any) -> None:
    assert reason(lambda: judged({**made(), "signatures": []})) == "unknown-key"


def test_one_trusted_signature_of_several_is_enough(
    made: Any, statement: Any, other: Any, judged: Any
) -> None:
    envelope = made()
    envelope["signatures"].insert(0, sign(statement(), other)["signatures"][0])
    assert judged(envelope).predicate.allowed


def test_the_type_of_the_payload_is_signed_and_decides(
    made: Any, statement: Any, signer: Any, judged: Any
) -> None:
    assert reason(lambda: judged({**made(), "payloadType": "text/plain"})) == "wrong-payload-type"
    payload = json.dumps(statement()).encode()
    other_type = sealed(payload, signer, "application/vnd.compatgate.bundle+json")
    assert reason(lambda: judged(other_type)) == "wrong-payload-type"
    relabelled = {**other_type, "payloadType": "application/vnd.in-toto+json"}
    assert reason(lambda: judged(relabelled)) == "bad-signature"


def test_after_its_time_it_is_refused(made: Any, judged: Any) -> None:
    assert judged(made(), after=timedelta(days=7, seconds=-1))
    assert reason(lambda: judged(made(), after=timedelta(days=7))) == "expired"


def test_from_the_future_it_is_refused_but_for_a_little_skew(made: Any, judged: Any) -> None:
    assert judged(made(), after=-timedelta(minutes=4))
    assert reason(lambda: judged(made(), after=-timedelta(minutes=6))) == "not-yet-valid"


def test_about_another_image_or_stack_it_is_refused(made: Any, judged: Any) -> None:
    read, stated = made(**READ), made(image=IMAGE)
    image, elsewhere = digest_set(f"sha256:{DIGEST}"), digest_set(f"sha256:{'cd' * 32}")
    assert judged(read, subjects=(elsewhere, image))
    assert reason(lambda: judged(read, subjects=(elsewhere,))) == "wrong-subject"
    assert reason(lambda: judged(read, subjects=())) == "wrong-subject"
    assert reason(lambda: judged(stated, subjects=(image,))) == "wrong-subject"
    stack = stated_digest({"cuda": "12.4", "cudnn": "9.1.0", "arch": ["sm_80", "sm_90"]})
    assert judged(stated, subjects=(stack,))
    longer = {**image, "sha512": "00"}
    assert judged(read, subjects=(longer,))
    assert reason(lambda: judged(read, subjects=({"sha512": "00"},))) == "wrong-subject"


def test_about_another_target_it_is_refused(made: Any, judged: Any) -> None:
    assert reason(lambda: judged(made(), target="prod-l4")) == "wrong-target"
    assert reason(lambda: judged(made(target=None), target="prod-a100")) == "wrong-target"


def without(statement: Any, *path: str) -> Any:
    *parents, last = path
    inner = statement
    for name in parents:
        inner = inner[name]
    del inner[last]
    return statement


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda s: {**s, "predicateType": s["predicateType"][:-1] + "2"}, "unknown-predicate"),
        (lambda s: {**s, "predicateType": "https://slsa.dev/provenance/v1"}, "unknown-predicate"),
        (
            lambda s: {**s, "predicateType": "https://slsa.dev/verification_summary/v1"},
            "unknown-predicate",
        ),
        (lambda s: {**s, "_type": "https://in-toto.io/Statement/v0.1"}, "malformed-statement"),
        (lambda s: {**s, "subject": []}, "malformed-statement"),
        (lambda s: {**s, "subject": [{"name": "stack"}]}, "malformed-statement"),
        (lambda s: without(s, "subject"), "malformed-statement"),
        (lambda s: without(s, "predicate", "validUntil"), "malformed-statement"),
        (lambda s: without(s, "predicate", "allowed"), "malformed-statement"),
        (
            lambda s: {**s, "predicate": {**s["predicate"], "validUntil": "2099-01-01T00:00:00"}},
            "malformed-statement",
        ),
        (
            lambda s: {**s, "predicate": {**s["predicate"], "allowed": "true"}},
            "malformed-statement",
        ),
        (lambda s: [s], "malformed-statement"),
    ],
)
def test_a_signed_payload_that_is_no_such_statement_is_refused(
    statement: Any, signer: Any, judged: Any, spoil: Any, why: str
) -> None:
    payload = json.dumps(spoil(statement())).encode()
    assert reason(lambda: judged(sealed(payload, signer))) == why


@pytest.mark.parametrize(
    "payload",
    [b"", b"{", b"\xff", b'{"a": NaN}', b"[" * 100_000, b"null", b'"text"'],
    ids=["empty", "cut", "not UTF-8", "NaN", "deep", "null", "text"],
)
def test_a_signed_payload_that_is_no_json_is_refused(
    signer: Any, judged: Any, payload: bytes
) -> None:
    assert reason(lambda: judged(sealed(payload, signer))) == "malformed-statement"


def test_a_key_that_stands_twice_is_refused(statement: Any, signer: Any, judged: Any) -> None:
    text = json.dumps(statement())
    twice = text.replace('"allowed": true', '"allowed": false, "allowed": true')
    assert twice != text
    assert reason(lambda: judged(sealed(twice.encode(), signer))) == "malformed-statement"


def test_an_envelope_with_a_key_twice_is_none(made: Any, judged: Any) -> None:
    text = json.dumps(made())
    with pytest.raises(BadInput, match="twice"):
        judged(('{"payloadType": "text/plain", ' + text[1:]).encode())


def test_members_that_are_not_known_are_ignored(statement: Any, signer: Any, judged: Any) -> None:
    body = statement()
    body["predicate"]["later"] = {"more": 1}
    body["later"] = True
    assert judged({**sealed(json.dumps(body).encode(), signer), "later": 1}).predicate.allowed


@pytest.mark.parametrize(
    "spoil",
    [
        lambda e: [],
        lambda e: {**e, "payload": 7},
        lambda e: {**e, "payload": "%%%"},
        lambda e: {**e, "signatures": {}},
        lambda e: {**e, "signatures": ["x"]},
        lambda e: {**e, "signatures": [{"keyid": 7, "sig": ""}]},
        lambda e: {**e, "signatures": [{"sig": "AA=="}]},
        lambda e: {**e, "signatures": e["signatures"] * 2},
        lambda e: {**e, "signatures": [{"keyid": str(n), "sig": "AA=="} for n in range(99)]},
        lambda e: without(e, "payloadType"),
    ],
)
def test_what_is_no_envelope_is_bad_input(made: Any, judged: Any, spoil: Any) -> None:
    with pytest.raises(BadInput):
        judged(spoil(made()))


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"{", b"{}", b"[" * 50_000, b"x" * 5_000_000])
def test_bytes_that_are_none_are_bad_input(judged: Any, data: bytes) -> None:
    with pytest.raises(BadInput):
        judged(data)
