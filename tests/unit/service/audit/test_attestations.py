"""Signed verdicts over HTTP: signed content, refusals and keys."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from attest_keys import payload_of, signer_of
from flask.testing import FlaskClient

from compatgate.kit.clock import now
from compatgate.service.audit.attestations import SigningOptions
from compatgate.service.audit.envelope import ExpectedStatement, verify
from compatgate.service.audit.keys import read_keys

STACK = {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124"}
GATE, KEYS, JWKS = "/api/v1/gate", "/api/v1/keys", "/.well-known/jwks.json"
PEM = "/.well-known/signing-keys.pem"


def signing(*signers: Any, **more: Any) -> SigningOptions:
    return SigningOptions(lambda: signers[0], tuple(s.public_key for s in signers), **more)


@pytest.fixture
def signer() -> Any:
    return signer_of()


@pytest.fixture
def signs(make_client: Callable[..., FlaskClient], signer: Any) -> FlaskClient:
    return make_client(signing=signing(signer), public_url="https://gate.example/")


def ask(client: FlaskClient, **more: Any) -> dict[str, Any]:
    answer: dict[str, Any] = client.post(
        GATE, json={"target": "prod-a100", "stack": STACK, **more}
    ).get_json()
    return answer


def attestation(client: FlaskClient, verdict: dict[str, Any], query: str = "") -> Any:
    return client.get(f"/api/v1/verdicts/{verdict['id']}/attestation{query}")


def test_a_verdict_is_signed_and_verified_with_the_published_keys(signs: FlaskClient) -> None:
    verdict = ask(signs)
    answer = attestation(signs, verdict)
    assert answer.mimetype == "application/vnd.dsse.envelope.v1+json"
    keys = read_keys(signs.get(KEYS).data, "keys")
    found = verify(answer.data, keys, ExpectedStatement(target="prod-a100"), now())
    assert found.predicate.id == verdict["id"]
    assert found.predicate.allowed == verdict["allowed"]
    assert found.predicate.stack == verdict["stack"]


def test_a_denial_is_signed_as_well(signs: FlaskClient) -> None:
    verdict = ask(signs, stack={"cuda": "12.4", "arch": ["sm_90"]})
    predicate = payload_of(attestation(signs, verdict).get_json(force=True))["predicate"]
    assert predicate["allowed"] is False
    assert {f["rule"] for f in predicate["findings"]} >= {"CG201"}


def test_without_a_key_nothing_is_signed_and_the_hint_says_how(client: FlaskClient) -> None:
    answer = attestation(client, ask(client))
    assert answer.status_code == 409
    assert "--signing-key" in answer.get_json(force=True)["hint"]
    assert client.get(KEYS).get_json(force=True) == {"keys": []}


def test_what_is_not_stored_is_never_signed(signs: FlaskClient) -> None:
    preview = signs.post(
        "/api/v1/gate/preview", json={"target": "prod-a100", "stack": STACK}
    ).get_json()
    assert attestation(signs, preview).status_code == 404
    assert attestation(signs, {"id": "vd_x"}).status_code == 404


def test_a_what_if_is_not_signed(signs: FlaskClient) -> None:
    for changes in ({"driver": "580.95.05"}, {"cudnn": "9.1.1"}, {"nccl": None}):
        answer = attestation(signs, ask(signs, set=changes))
        assert answer.status_code == 409
        assert "what-if" in answer.get_json(force=True)["detail"]


def test_a_label_does_not_make_an_image_the_subject(signs: FlaskClient) -> None:
    image = f"registry.example/team/app@sha256:{'ab' * 32}"
    statement = payload_of(attestation(signs, ask(signs, image=image)).get_json(force=True))
    assert statement["subject"][0]["name"] == "stack"
    assert statement["predicate"]["image"] == {
        "reference": image,
        "read": False,
        "digest": {"sha256": "ab" * 32},
    }


def test_asking_again_renews_it(make_client: Callable[..., FlaskClient], signer: Any) -> None:
    client = make_client(signing=signing(signer, valid_for=timedelta(hours=1)))
    verdict = ask(client)
    first = payload_of(attestation(client, verdict).get_json(force=True))["predicate"]
    assert ask(client)["id"] == verdict["id"]
    again = payload_of(attestation(client, verdict).get_json(force=True))["predicate"]
    assert again["decidedAt"] == first["decidedAt"]
    assert again["confirmedAt"] > first["confirmedAt"]
    assert again["validUntil"] > first["validUntil"]


@pytest.mark.parametrize("kind", ["ed25519", "p256"])
def test_the_same_statement_has_the_same_tag(
    make_client: Callable[..., FlaskClient], kind: str
) -> None:
    client = make_client(signing=signing(signer_of(kind)))
    verdict = ask(client)
    tag = attestation(client, verdict).headers["ETag"]
    path = f"/api/v1/verdicts/{verdict['id']}/attestation"
    assert client.get(path, headers={"If-None-Match": tag}).status_code == 304


def test_keys_rotate_without_a_gap(make_client: Callable[..., FlaskClient]) -> None:
    old, new = signer_of(), signer_of("p256")
    before = make_client(signing=signing(old, new))
    verdict = ask(before)
    signed_before = attestation(before, verdict).data
    after = make_client(signing=signing(new, old))
    signed_after = attestation(after, verdict).data
    for client in (before, after):
        keys = read_keys(client.get(KEYS).data, "keys")
        for data in (signed_before, signed_after):
            assert verify(data, keys, ExpectedStatement(), now()).predicate.id == verdict["id"]
    kids = [k["kid"] for k in after.get(KEYS).get_json(force=True)["keys"]]
    assert kids == [new.public_key.keyid, old.public_key.keyid]
    assert json.loads(signed_after)["signatures"][0]["keyid"] == kids[0]


def test_the_keys_are_where_clients_look_for_them_and_open_to_all(
    make_client: Callable[..., FlaskClient], signer: Any
) -> None:
    client = make_client(signing=signing(signer), anonymous=frozenset())
    found = client.get(JWKS)
    assert found.mimetype == "application/jwk-set+json"
    assert found.data == client.get(KEYS).data
    assert client.get(JWKS, headers={"If-None-Match": found.headers["ETag"]}).status_code == 304


def test_the_keys_are_there_in_pem_the_signing_key_first(
    make_client: Callable[..., FlaskClient], signer: Any
) -> None:
    other = signer_of("p256").public_key
    keys = (signer.public_key, other)
    client = make_client(signing=SigningOptions(lambda: signer, keys), anonymous=frozenset())
    found = client.get(PEM)
    assert found.mimetype == "application/x-pem-file"
    assert found.data.startswith(b"-----BEGIN PUBLIC KEY-----\n")
    assert [k.keyid for k in read_keys(found.data, "keys")] == [k.keyid for k in keys]
    assert client.get(PEM, headers={"If-None-Match": found.headers["ETag"]}).status_code == 304
    assert make_client(anonymous=frozenset()).get(PEM).status_code == 404


def test_a_key_that_does_not_answer_is_no_defect(
    make_client: Callable[..., FlaskClient], signer: Any
) -> None:
    def make() -> Any:
        raise RuntimeError("no such token")

    client = make_client(signing=SigningOptions(make, (signer.public_key,)))
    answer = attestation(client, ask(client))
    assert answer.status_code == 503
    assert "no such token" in answer.get_json(force=True)["detail"]


def test_a_signer_whose_key_is_another_than_published_is_found_out(
    make_client: Callable[..., FlaskClient], signer: Any
) -> None:
    class Wrong:
        public_key = signer.public_key

        def sign(self, payload: bytes) -> Any:
            signature = signer_of().sign(payload)
            signature.keyid = self.public_key.keyid
            return signature

    client = make_client(signing=SigningOptions(Wrong, (signer.public_key,)))  # type: ignore[arg-type]
    assert attestation(client, ask(client)).status_code == 503


@pytest.mark.parametrize("query", ["?form=vsa", "?other=1"])
def test_a_wrong_query_is_refused(signs: FlaskClient, query: str) -> None:
    assert attestation(signs, ask(signs), query).status_code == 400
