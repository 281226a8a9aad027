"""Requests are signed with a shared key, for a short time, and for one address and body."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatgate.errors import BadInput, Unauthorized
from compatgate.kit.http.signatures import (
    WINDOW_S,
    Secret,
    read_secrets,
    sign,
    verify,
)

OLD, NEW = Secret("old", b"k" * 32), Secret("new", b"n" * 32)
NOW = 1_795_262_400
PATH = "/hooks/generic?status=200"
BODY = b'{"target": "prod-a100"}'


def test_a_signature_is_what_openssl_makes_of_the_same_bytes() -> None:
    # printf 'v1:1795262400:POST /hooks/generic?status=200\n{"target": "prod-a100"}' |
    #   openssl dgst -sha256 -hmac kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk
    expected = "12e3b648449d623feebf12b141d89a29d542b9931cb2421e358473410819b26d"
    assert sign(OLD.key, NOW, "POST", PATH, BODY) == f"t={NOW},v1={expected}"


@pytest.mark.parametrize("secret", [OLD, NEW], ids=lambda secret: secret.name)
def test_every_key_counts_while_they_are_changed(secret: Secret) -> None:
    header = sign(secret.key, NOW, "POST", PATH, BODY)
    assert verify((OLD, NEW), header, NOW, "POST", PATH, BODY) == secret.name


@pytest.mark.parametrize("late", [-WINDOW_S, 0, WINDOW_S])
def test_clocks_may_differ_a_little(late: int) -> None:
    header = sign(OLD.key, NOW, "POST", PATH, BODY)
    assert verify((OLD,), header, NOW + late, "POST", PATH, BODY) == "old"


@pytest.mark.parametrize("late", [-WINDOW_S - 1, WINDOW_S + 1])
def test_a_signature_is_of_no_use_later(late: int) -> None:
    header = sign(OLD.key, NOW, "POST", PATH, BODY)
    with pytest.raises(Unauthorized, match="too old or in the future"):
        verify((OLD,), header, NOW + late, "POST", PATH, BODY)


@pytest.mark.parametrize(
    ("method", "path", "body", "key"),
    [
        ("GET", PATH, BODY, OLD.key),
        ("POST", "/hooks/generic", BODY, OLD.key),
        ("POST", PATH, BODY + b" ", OLD.key),
        ("POST", PATH, BODY, b"x" * 32),
        ("POST", PATH, BODY, NEW.key),
    ],
)
def test_a_signature_is_for_one_request_and_key(
    method: str, path: str, body: bytes, key: bytes
) -> None:
    header = sign(key, NOW, method, path, body)
    with pytest.raises(Unauthorized, match="no known key"):
        verify((OLD,), header, NOW, "POST", PATH, BODY)


@pytest.mark.parametrize(
    "header",
    ["", "v1=ab", "t=1", f"t={NOW},v1=", f"t={NOW},v1={'z' * 64}", f"t=-1,v1={'a' * 64}",
     f"t={NOW},v1={'a' * 65}", f"t={'9' * 40},v1={'a' * 64}", "t=١,v1=" + "a" * 64],
)  # fmt: skip
def test_a_malformed_signature_is_refused(header: str) -> None:
    with pytest.raises(Unauthorized):
        verify((OLD,), header, NOW, "POST", PATH, BODY)


def test_keys_come_from_files_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ci.key").write_bytes(b"k" * 32 + b"\n")
    monkeypatch.setenv("HOOK_KEY", "n" * 32)
    found = read_secrets([f"ci={tmp_path}/ci.key", "cd=env:HOOK_KEY"], "--hook-secret")
    assert found == (Secret("ci", b"k" * 32), Secret("cd", b"n" * 32))
    assert "kkk" not in repr(found)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("ci", "not a named secret"),
        ("=x", "not a named secret"),
        ("a b=x", "not a named secret"),
        ("ci=/nowhere/x.key", "cannot read /nowhere/x.key"),
        ("ci=env:NOT_SET_ANYWHERE", "the variable NOT_SET_ANYWHERE contains no key"),
    ],
)
def test_a_key_that_cannot_be_is_named(value: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read_secrets([value], "--hook-secret")


@pytest.mark.parametrize("source", ["4f5d" * 16, "env:" + "4f5d" * 16, "c2VjcmV0/c2Vj+mV0NA=="])
def test_a_key_that_is_put_where_its_file_belongs_is_not_shown(source: str) -> None:
    with pytest.raises(BadInput) as raised:
        read_secrets([f"ci={source}"], "--hook-secret")
    assert source.removeprefix("env:") not in raised.value.detail
    assert "(not shown)" in raised.value.detail


def test_a_short_key_and_a_name_twice_are_refused(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"secret\n")
    (tmp_path / "long").write_bytes(b"k" * 16)
    with pytest.raises(BadInput, match="sufficient length"):
        read_secrets([f"ci={tmp_path}/short"], "--hook-secret")
    with pytest.raises(BadInput, match="named twice"):
        read_secrets([f"ci={tmp_path}/long", f"ci={tmp_path}/long"], "--hook-secret")
