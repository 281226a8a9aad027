"""Docker's credential files and helpers, and the answers to challenges."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from compatgate.discovery.registry.authentication import (
    Credentials,
    authorize,
    find_credentials,
    parse_challenges,
)
from compatgate.discovery.registry.image_spec import parse_reference
from compatgate.discovery.registry.limits import Deadline
from compatgate.errors import BadInput, Unavailable

APP = parse_reference("registry.example:5000/team/app:1")
DEADLINE = Deadline(20)


def encoded(text: str) -> dict[str, str]:
    return {"auth": base64.b64encode(text.encode()).decode()}


def find(folder: Path, document: object, reference=APP) -> Credentials | None:
    (folder / "config.json").write_text(json.dumps(document))
    return find_credentials(reference, DEADLINE, folder=str(folder))


@pytest.mark.parametrize(
    "key",
    [
        "registry.example:5000",
        "https://registry.example:5000",
        "https://registry.example:5000/v2/",
        "registry.example:5000/team",
        "registry.example:5000/team/app",
    ],
)
def test_a_registry_is_found_under_every_form_of_its_key(tmp_path: Path, key: str) -> None:
    assert find(tmp_path, {"auths": {key: encoded("me:pass:word")}}) == Credentials(
        "me", "pass:word"
    )


def test_the_most_specific_key_decides(tmp_path: Path) -> None:
    auths = {
        "registry.example:5000": encoded("all:1"),
        "registry.example:5000/team": encoded("t:2"),
    }
    assert find(tmp_path, {"auths": auths}) == Credentials("t", "2")


def test_docker_hub_has_a_key_of_its_own(tmp_path: Path) -> None:
    auths = {"https://index.docker.io/v1/": {"username": "me", "password": "x"}}
    assert find(tmp_path, {"auths": auths}, parse_reference("ubuntu")) == Credentials("me", "x")


def test_another_registry_s_credentials_are_not_used(tmp_path: Path) -> None:
    auths = {"registry.example": encoded("a:b"), "example:5000": encoded("a:b")}
    assert find(tmp_path, {"auths": auths}) is None


def test_credentials_do_not_show_their_password() -> None:
    assert "secret" not in repr(Credentials("me", "secret"))


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Install a credential helper that is this shell script."""

    def install(script: str) -> None:
        program = tmp_path / "docker-credential-tests"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    return install


@pytest.mark.parametrize(
    "config",
    [{"credsStore": "tests"}, {"credHelpers": {"registry.example:5000": "tests"}}],
    ids=["store", "helper"],
)
def test_a_helper_is_asked_for_the_registry(tmp_path: Path, helper, config) -> None:
    helper('read server; [ "$1 $server" = "get registry.example:5000" ] || exit 9\n'
           'echo \'{"ServerURL": "x", "Username": "me", "Secret": "s"}\'')  # fmt: skip
    assert find(tmp_path, config) == Credentials("me", "s")


def test_a_helper_may_answer_with_an_identity_token(tmp_path: Path, helper) -> None:
    helper('echo \'{"Username": "<token>", "Secret": "refresh"}\'')
    assert find(tmp_path, {"credsStore": "tests"}) == Credentials(identity_token="refresh")


def test_a_helper_without_an_answer_leaves_it_to_the_file(tmp_path: Path, helper) -> None:
    helper("echo credentials not found in native keychain; exit 1")
    config = {"credsStore": "tests", "auths": {"registry.example:5000": encoded("me:s")}}
    assert find(tmp_path, config) == Credentials("me", "s")


@pytest.mark.parametrize("script", ["exit 1", "echo no json", "echo '[]'"])
def test_a_helper_that_fails_is_named(tmp_path: Path, helper, script: str) -> None:
    helper(script)
    with pytest.raises(Unavailable, match="docker-credential-tests"):
        find(tmp_path, {"credsStore": "tests"})


def test_a_helper_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"docker-credential-nobody-has-it cannot be run"):
        find(tmp_path, {"credsStore": "nobody-has-it"})


def test_a_helper_is_a_name_and_no_path(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not the name of a credential helper"):
        find(tmp_path, {"credsStore": "x/../../bin/sh"})


@pytest.mark.parametrize("text", ["{", "[]", '{"auths": {"registry.example:5000": {"auth": "?"}}}'])
def test_a_file_that_is_wrong_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(BadInput, match=r"config\.json"):
        find_credentials(APP, DEADLINE, folder=str(tmp_path))


def test_the_usual_places_are_searched_in_their_order(tmp_path: Path) -> None:
    for folder, name in ((".docker", "config.json"), (".config/containers", "auth.json")):
        (tmp_path / folder).mkdir(parents=True)
        auths = {"registry.example:5000": encoded(f"{folder[1]}:x")}
        (tmp_path / folder / name).write_text(json.dumps({"auths": auths}))
    found = find_credentials(APP, DEADLINE, environment={"HOME": str(tmp_path)})
    assert found == Credentials("c", "x")
    environment = {"HOME": "/", "DOCKER_CONFIG": str(tmp_path / ".docker")}
    assert find_credentials(APP, DEADLINE, environment=environment) == Credentials("d", "x")


def test_several_challenges_stand_in_one_header() -> None:
    header = 'Basic realm="a, b", Bearer realm="https://t/x",service="s",scope="p,q"'
    basic, bearer = parse_challenges(header)
    assert (basic.scheme, basic.parameters) == ("basic", {"realm": "a, b"})
    assert bearer.parameters == {"realm": "https://t/x", "service": "s", "scope": "p,q"}


def answers(status: int, body: bytes):
    asked = []

    def fetch(url, headers, form):
        asked.append((url, headers, form))
        return status, body

    return asked, fetch


def test_a_token_is_fetched_with_name_and_password() -> None:
    asked, fetch = answers(200, b'{"access_token": "abc"}')
    header = 'Bearer realm="https://auth.example/token",service="s"'
    assert authorize(header, "team/app", Credentials("me", "x"), fetch) == "Bearer abc"
    url, headers, form = asked[0]
    assert url == "https://auth.example/token?service=s&scope=repository%3Ateam%2Fapp%3Apull"
    assert headers["Authorization"] == Credentials("me", "x").basic
    assert form is None


def test_an_identity_token_is_exchanged() -> None:
    asked, fetch = answers(200, b'{"token": "abc"}')
    header = 'Bearer realm="https://auth.example/token",service="s"'
    assert authorize(header, "app", Credentials(identity_token="r"), fetch) == "Bearer abc"
    assert b"grant_type=refresh_token" in asked[0][2]


@pytest.mark.parametrize(
    ("header", "status", "body", "problem"),
    [
        ('Bearer realm="http://auth.example/t"', 200, b"", "does not use TLS"),
        ('Bearer realm="file:///etc/passwd"', 200, b"", "names no token service"),
        ('Bearer realm="https://a/t"', 401, b"", "refuses these credentials"),
        ('Bearer realm="https://a/t"', 500, b"", "answers 500"),
        ('Bearer realm="https://a/t"', 200, b"{}", "returned no token"),
        ('Bearer realm="https://a/t"', 200, b'{"token": "a\\r\\nb"}', "returned no token"),
        ("Negotiate abc=1", 200, b"", "unknown kind"),
        ("", 200, b"", "unknown kind"),
        ('Basic realm="x"', 200, b"", "requires a name and a password"),
    ],
)
def test_what_cannot_be_answered_is_said(header, status, body, problem) -> None:
    with pytest.raises(Unavailable, match=problem):
        authorize(header, "app", None, answers(status, body)[1])
