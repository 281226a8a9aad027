"""From a question to a signed verdict, and back, by the commands alone."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import write_key

TARGET = ("--target", "prod-a100")
STACK = "cuda=12.4,cudnn=9.1.0,torch=2.4.1+cu124"


def attest(run: Any, key: tuple[str, str], path: Path, *more: str) -> tuple[int, str, str]:
    result: tuple[int, str, str] = run("attest", "--signing-key", key[0], "-o", str(path), *more)
    return result


def refused(result: tuple[int, str, str], reason: str) -> str:
    status, out, err = result
    assert status == 1, err
    assert out == ""
    assert err.startswith(f"refused ({reason}): "), err
    return err


@pytest.fixture
def signed(stocked: Any, key: Any, tmp_path: Path) -> Path:
    """A signed verdict on a stated stack."""
    path = tmp_path / "verdict.json"
    assert attest(stocked, key, path, *TARGET, "--stack", STACK)[0] == 0
    return path


def test_a_stated_stack_is_signed_and_verified(stocked: Any, key: Any, signed: Path) -> None:
    status, out, err = stocked(
        "verify", str(signed), "--key", key[1], *TARGET, "--stack", f"{STACK}"
    )
    assert (status, err) == (0, "")
    assert "warn, allowed (enforce)" in out
    assert "on         prod-a100" in out


def test_each_refusal_has_its_reason(stocked: Any, key: Any, signed: Path, tmp_path: Path) -> None:
    def verify(*more: str, path: Path = signed, trusted: str = key[1]) -> tuple[int, str, str]:
        result: tuple[int, str, str] = stocked("verify", str(path), "--key", trusted, *more)
        return result

    _, other = write_key(tmp_path, "other")
    refused(verify(trusted=other), "unknown-key")
    refused(verify("--now", "2999-01-01"), "expired")
    refused(verify("--now", "2020-01-01"), "not-yet-valid")
    refused(verify("--target", "inference-l4"), "wrong-target")
    refused(verify("--stack", "cuda=12.1"), "wrong-subject")
    refused(verify("--digest", f"sha256:{'0' * 64}"), "wrong-subject")
    envelope = json.loads(signed.read_text())
    statement = base64.b64decode(envelope["payload"]).replace(b'"warn"', b'"pass"')
    envelope["payload"] = base64.b64encode(statement).decode()
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(envelope))
    refused(verify(path=changed), "bad-signature")
    status, out, _ = verify("--format", "json", path=changed)
    assert (status, json.loads(out)["reason"]) == (1, "bad-signature")


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["x.json"], "--key"),
        (["x.json", "--key", "{pub}", "--image", "app:1"], "--image"),
        (["x.json", "--key", "{pub}", "--digest", "sha256:12"], "--digest"),
        (["x.json", "--key", "{key}"], "--key"),
        (["--key", "{pub}"], "envelope"),
        (["nowhere.json", "--key", "{pub}"], "envelope"),
        (["x.json", "--key", "{pub}", "--digest", "a", "--stack", "b"], "use only one of"),
        (["x.json", "--jwks", "http://gate.example/keys"], "https"),
    ],
)
def test_wrong_usage_is_status_2(run: Any, key: Any, arguments: list[str], field: str) -> None:
    named = [word.format(key=key[0], pub=key[1]) for word in arguments]
    status, out, err = run("verify", *named)
    assert (status, out) == (2, "")
    assert field in err


def test_a_key_that_others_may_read_is_refused(stocked: Any, key: Any, tmp_path: Path) -> None:
    Path(key[0]).chmod(0o644)
    status, _, err = attest(stocked, key, tmp_path / "v.json", *TARGET, "--stack", STACK)
    assert status == 2
    assert "chmod 600" in err


def test_without_a_subject_a_note_says_so(stocked: Any, key: Any, signed: Path) -> None:
    status, _, err = stocked("verify", str(signed), "--key", key[1])
    assert status == 0
    assert err.startswith("note: no image, digest or stack was named")


def test_an_image_is_read_signed_and_verified_by_its_digest(
    stocked: Any, key: Any, good: Any, bad: Any, tmp_path: Path
) -> None:
    path = tmp_path / "verdict.json"
    for image, status in ((good, 0), (bad, 1)):
        assert attest(stocked, key, path, *TARGET, "--image", image.reference)[0] == status
        found = ("verify", str(path), "--key", key[1], *TARGET)
        denied, out, err = stocked(*found, "--image", image.by_digest(), "--format", "json")
        assert denied == status, err
        assert json.loads(out)["subjects"][0]["digest"]["sha256"] == image.digest[7:]
    refused(stocked(*found, "--image", good.by_digest()), "wrong-subject")


def test_what_is_stated_beside_an_image_makes_the_stack_the_subject(
    stocked: Any, key: Any, good: Any, tmp_path: Path
) -> None:
    path = tmp_path / "verdict.json"
    asked = (*TARGET, "--image", good.reference, "--stack", "nccl=2.21.5")
    attest(stocked, key, path, *asked)
    result = stocked("verify", str(path), "--key", key[1], "--image", good.by_digest())
    refused(result, "wrong-subject")


def test_an_index_is_verified_by_its_image_for_a_platform(
    stocked: Any, key: Any, good: Any, tmp_path: Path, registry: Any
) -> None:
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [
            {
                "mediaType": good.media_type,
                "digest": good.digest,
                "size": good.size,
                "platform": {"os": "linux", "architecture": "amd64"},
            }
        ],
    }
    name = good.reference.partition("/")[2].rpartition(":")[0]
    pushed = registry.push_manifest(name, index, tag="multi")
    path = tmp_path / "verdict.json"
    for reference in (pushed.reference, pushed.by_digest()):
        assert attest(stocked, key, path, *TARGET, "--image", reference)[0] == 0
        found = ("verify", str(path), "--key", key[1], *TARGET, "--image", good.by_digest())
        assert stocked(*found)[0] == 0
        of_index = ("verify", str(path), "--key", key[1], "--image", pushed.by_digest())
        refused(stocked(*of_index), "wrong-subject")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name a verdict"),
        (["--verdict", "vd_1", "--target", "t"], "name a verdict"),
        (["--target", "prod-a100"], "an image or stack"),
        (["--stack", "cuda=12.4"], "name a target"),
        (["--verdict", "vd_1"], "not a verdict id"),
        (["--verdict", f"vd_{'0' * 32}"], "does not exist"),
        (["--attestation-validity", "x", "--verdict", f"vd_{'0' * 32}"], "duration"),
    ],
)
def test_attest_says_what_is_missing(
    stocked: Any, key: Any, tmp_path: Path, arguments: list[str], said: str
) -> None:
    status, out, err = attest(stocked, key, tmp_path / "v.json", *arguments)
    assert (status, out) == (2, "")
    assert said in err
    assert not (tmp_path / "v.json").exists()
