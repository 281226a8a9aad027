"""Attached verdicts as others look for them: cosign's lookup, and sigstore-js."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from attest_keys import KINDS
from cosign_lookup import NotVerified, ssh_fingerprint, verify_attestation
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)
from node_packages import installed

from compatgate.cli.main import main
from compatgate.discovery.registry.artifacts import ArtifactLayer, attach_artifact, open_location
from compatgate.discovery.registry.limits import ImageOptions
from compatgate.service.audit.attestations.statement import PREDICATE_TYPE

from .conftest import write_key

SIGSTORE_JS = Path(__file__).parents[2] / "support" / "sigstore_js"
INDEX = "application/vnd.oci.image.index.v1+json"
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
TARGET = ("--target", "prod-a100")


def attest(run: Any, key: tuple[str, str], image: str, path: Path, *more: str) -> Any:
    """Sign a verdict on an image; the bundle."""
    words = ("attest", "--signing-key", key[0], "-o", f"{path}.dsse", "--sigstore-bundle")
    status, _, err = run(*words, str(path), *TARGET, "--image", image, *more)
    assert status == 0, err
    return json.loads(path.read_text())


def repository(image: Any) -> str:
    """The name of an image in its registry, without the tag."""
    name: str = image.reference.partition("/")[2].rpartition(":")[0]
    return name


@pytest.mark.parametrize("kind", KINDS)
def test_cosign_finds_and_verifies_what_is_attached(
    stocked: Any, good: Any, registry: Any, tmp_path: Path, kind: str
) -> None:
    key, other = write_key(tmp_path, "gate", kind), write_key(tmp_path, "other", kind)
    path, pem = tmp_path / "bundle.json", Path(key[1]).read_bytes()
    with pytest.raises(NotVerified, match="no valid bundles"):
        verify_attestation(registry.host, f"{repository(good)}:1", pem, PREDICATE_TYPE)
    attest(stocked, key, good.reference, path, "--attach")
    for image in (f"{repository(good)}:1", f"{repository(good)}@{good.digest}"):
        (found,) = verify_attestation(registry.host, image, pem, PREDICATE_TYPE)
        assert found["subject"][0]["digest"]["sha256"] == good.digest[7:]
    assert found["predicate"]["allowed"]
    foreign = Path(other[1]).read_bytes()
    with pytest.raises(NotVerified, match="could not verify envelope"):
        verify_attestation(registry.host, f"{repository(good)}:1", foreign, PREDICATE_TYPE)
    with pytest.raises(NotVerified, match="none of the attestations matched"):
        verify_attestation(registry.host, f"{repository(good)}:1", pem, "https://example.org/x/v1")


def test_what_is_attached_to_another_image_or_changed_is_refused_by_both(
    stocked: Any, key: Any, good: Any, bad: Any, registry: Any, tmp_path: Path
) -> None:
    """Whoever may push may move an attestation, or write one of their own."""
    made = attest(stocked, key, good.reference, tmp_path / "bundle.json")
    pem = Path(key[1]).read_bytes()
    (signature,) = made["dsseEnvelope"]["signatures"]
    altered = base64.b64decode(made["dsseEnvelope"]["payload"]).replace(b'"warn"', b'"pass"')
    payload = base64.b64encode(altered).decode()
    for image, bundle, theirs, ours in (
        (bad, made, "does not match any digest", "wrong-subject"),
        (good, changed(made, payload=payload), "could not verify", "bad-signature"),
        (good, changed(made, signatures=[{"sig": flip(signature["sig"])}]), "could not verify", ""),
        (good, changed(made, signatures=[signature] * 2), "exactly one signature", ""),
    ):
        layer = ArtifactLayer(json.dumps(bundle).encode(), BUNDLE)
        with open_location(image.reference, ImageOptions(docker_config=str(tmp_path))) as place:
            attach_artifact(place, image.digest, BUNDLE, [layer], {})
        with pytest.raises(NotVerified, match=theirs):
            verify_attestation(registry.host, f"{repository(image)}:1", pem, PREDICATE_TYPE)
        found = ("--from-registry", "--key", key[1], *TARGET, "--image", image.reference)
        status, out, err = stocked("verify", *found)
        assert (status, out) == (1, "")
        assert err.startswith(f"refused ({ours or 'no-attestation'}): "), err


def test_the_bundle_is_listed_as_cosign_lists_its_own(
    stocked: Any, key: Any, good: Any, registry: Any, tmp_path: Path
) -> None:
    """Layout of WriteAttestationNewBundleFormat and WriteReferrer in cosign's pkg/oci/remote."""
    attest(stocked, key, good.reference, tmp_path / "bundle.json", "--attach")
    path = f"/v2/{repository(good)}/manifests/"
    index = registry.read(f"{path}{good.digest.replace(':', '-')}", {"Accept": INDEX})
    (listed,) = (one for one in json.loads(index)["manifests"] if one["artifactType"] == BUNDLE)
    assert listed["annotations"]["dev.sigstore.bundle.content"] == "dsse-envelope"
    assert listed["annotations"]["dev.sigstore.bundle.predicateType"] == PREDICATE_TYPE
    accept = {"Accept": listed["mediaType"]}
    manifest = json.loads(registry.read(f"{path}{listed['digest']}", accept))
    assert manifest["artifactType"] == BUNDLE
    assert manifest["subject"]["digest"] == good.digest
    assert manifest["config"]["mediaType"] == "application/vnd.oci.empty.v1+json"
    assert [layer["mediaType"] for layer in manifest["layers"]] == [BUNDLE]
    assert listed["annotations"] == manifest["annotations"]


def test_cosign_finds_it_in_a_registry_that_keeps_the_list(
    oci_registry: Any, tmp_path: Path, key: Any
) -> None:
    """What is attached by the same code, here without a gate."""
    oci_registry.page = 100
    reference, digest = oci_registry.image()
    pem = Path(key[1]).read_bytes()
    with open_location(reference, ImageOptions(docker_config=str(tmp_path))) as place:
        attach_artifact(place, digest, "application/x", [ArtifactLayer(b"x", "text/plain")], {})
        for keyid, fails in (("0" * 64, True), (ssh_fingerprint(load_pem_public_key(pem)), False)):
            data = _bundle_with_name(Path(key[0]), digest, keyid)
            attach_artifact(place, digest, BUNDLE, [ArtifactLayer(data, BUNDLE)], {})
            if fails:
                with pytest.raises(NotVerified, match="do not match threshold"):
                    verify_attestation(oci_registry.host, "team/app:1", pem, "x")
    assert len(verify_attestation(oci_registry.host, "team/app:1", pem, "x")) == 1


def _bundle_with_name(private: Path, digest: str, keyid: str) -> bytes:
    """A bundle of a foreign tool, whose signature names its key."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner

    subject = {"name": "app", "digest": {"sha256": digest[7:]}}
    statement = {"_type": "https://in-toto.io/Statement/v1", "subject": [subject]}
    statement |= {"predicateType": "x", "predicate": {}}
    envelope = Envelope(json.dumps(statement).encode(), "application/vnd.in-toto+json", {})
    envelope.sign(CryptoSigner(load_pem_private_key(private.read_bytes(), None)))
    document = envelope.to_dict()
    document["signatures"][0]["keyid"] = keyid
    material = {"publicKey": {"hint": "any"}}
    made = {"mediaType": BUNDLE, "verificationMaterial": material, "dsseEnvelope": document}
    return json.dumps(made).encode()


def hint_and_der(path: str) -> tuple[str, str]:
    """A public key as sigstore-js is given it: name and SPKI, both in base64."""
    public = load_pem_public_key(Path(path).read_bytes())
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    name = base64.b64encode(hashlib.sha256(der).digest()).decode()
    return name, base64.b64encode(der).decode()


def changed(bundle: Any, **members: Any) -> Any:
    """A copy of a bundle with other members of its envelope."""
    return {**bundle, "dsseEnvelope": {**bundle["dsseEnvelope"], **members}}


def flip(text: str) -> str:
    """Base64 of the same bytes, one bit changed."""
    raw = bytearray(base64.b64decode(text))
    raw[-1] ^= 1
    return base64.b64encode(raw).decode()


def test_sigstore_js_accepts_it_and_refuses_a_changed_one(
    stocked: Any, good: Any, tmp_path: Path
) -> None:
    """In one process of Node.js; the same files through our own `verify`."""
    cases, expected, ours = [], [], []
    for kind in KINDS:
        key, other = write_key(tmp_path, f"a-{kind}", kind), write_key(tmp_path, f"b-{kind}", kind)
        made = attest(stocked, key, good.reference, tmp_path / f"{kind}.json")
        hint, der = hint_and_der(key[1])
        assert made["verificationMaterial"] == {"publicKey": {"hint": hint}, "tlogEntries": []}
        name, foreign = hint_and_der(other[1])
        envelope = made["dsseEnvelope"]
        (signature,) = envelope["signatures"]
        altered = base64.b64decode(envelope["payload"]).replace(b'"warn"', b'"pass"')
        payload = base64.b64encode(altered).decode()
        turned = [{"sig": flip(signature["sig"])}]
        right, about, elsewhere = {hint: der}, good.digest, f"sha256:{'0' * 64}"
        bad = "SIGNATURE_ERROR"
        rows: list[tuple[Any, dict[str, str], str, str, str]] = [
            (made, {**right, name: foreign}, about, "accepted", "accepted"),
            (changed(made, payload=payload), right, about, bad, "bad-signature"),
            (changed(made, signatures=turned), right, about, bad, "bad-signature"),
            (changed(made, payloadType="text/plain"), right, about, bad, "wrong-payload-type"),
            (made, {name: foreign}, about, "PUBLIC_KEY_ERROR", "unknown-key"),
            (made, {hint: foreign}, about, bad, ""),  # a key goes by its own name with us
            (made, right, elsewhere, "SUBJECT_ERROR", "wrong-subject"),
        ]
        for number, (bundle, keys, digest, theirs, own) in enumerate(rows):
            cases.append({"bundle": bundle, "keys": keys, "digest": digest[7:]})
            expected.append(theirs)
            if own:
                path = tmp_path / f"{kind}-{number}.json"
                path.write_text(json.dumps(bundle))
                trusted = key[1] if hint in keys else other[1]
                status, out, err = stocked(
                    "verify", str(path), "--key", trusted, "--digest", digest, *TARGET
                )
                assert status == (own != "accepted"), (out, err)
                ours.append((own, err.startswith(f"refused ({own})") or not err))
    said = sigstore_js(cases)
    assert [answer.partition(":")[0] for answer in said] == expected
    assert [name for name, right in ours if not right] == []


def sigstore_js(cases: list[dict[str, Any]]) -> list[str]:
    """What sigstore-js says of bundles."""
    folder = installed(SIGSTORE_JS, "sigstore-js")
    done = subprocess.run(
        ["node", str(SIGSTORE_JS / "verify.mjs"), str(folder)],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    answers: list[str] = json.loads(done.stdout)
    return answers


def test_our_own_verify_needs_only_one_of_the_two_forms(
    stocked: Any, key: Any, good: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from compatgate.service.audit.attestations import attached

    attest(stocked, key, good.reference, tmp_path / "bundle.json", "--attach")
    found = ["verify", "--from-registry", "--key", key[1], *TARGET, "--image", good.reference]
    for form in attached.FORMS:
        monkeypatch.setattr(attached, "FORMS", (form,))
        assert main(found) == 0
    monkeypatch.setattr(attached, "FORMS", (("application/x", "application/x"),))
    assert main(found) == 1


def test_a_hint_is_no_proof(stocked: Any, key: Any, good: Any, tmp_path: Path) -> None:
    """Signed by another key under the trusted one's name."""
    other = write_key(tmp_path, "other")
    made = attest(stocked, other, good.reference, tmp_path / "bundle.json")
    made["verificationMaterial"]["publicKey"]["hint"] = hint_and_der(key[1])[0]
    path = tmp_path / "named.json"
    path.write_text(json.dumps(made))
    status, _, err = stocked("verify", str(path), "--key", key[1])
    assert status == 1
    assert err.startswith("refused (bad-signature)")
