"""Bundles as others verify them: sigstore-js."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

from attest_keys import KINDS
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)
from node_packages import installed

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
