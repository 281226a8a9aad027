"""The file of ``serve --oidc``: every mistake is named with its line, field and remedy."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from compatgate.errors import BadInput, ManyProblems
from compatgate.service.access import settings as module
from compatgate.service.access.settings import client_secret
from compatgate.service.access.settings_file import read_settings

PEOPLE = """\
people:
  issuer: https://id.example/realms/platform
  client_id: compatgate
  groups:
    platform: [read, gate, operate, bless]
"""
JOBS = """\
jobs:
- issuer: https://token.actions.githubusercontent.com
  audience: https://gate.example
  rules:
  - name: deploys
    claims: {repository: acme/trainer, ref: refs/heads/main}
    scopes: [gate]
    targets: [prod-a100]
"""


def read(tmp_path: Path, text: str, name: str = "oidc.yaml") -> module.IdentitySettings:
    file = tmp_path / name
    file.write_text(textwrap.dedent(text))
    return read_settings(str(file))


def test_a_file_names_people_and_jobs(tmp_path: Path) -> None:
    settings = read(tmp_path, PEOPLE + JOBS)
    assert settings.people
    assert settings.people.label == "id.example"
    assert settings.people.grant("platform").scopes == ["read", "gate", "operate", "bless"]
    assert (settings.people.sessions.idle_s, settings.people.sessions.longest_s) == (3600, 43200)
    assert settings.jobs[0].rules[0].targets == ["prod-a100"]


def test_a_file_may_be_toml(tmp_path: Path) -> None:
    text = """
        [people]
        issuer = "https://id.example"
        client_id = "compatgate"
        [people.groups.trainers]
        scopes = ["gate"]
        targets = ["prod-*"]
    """
    people = read(tmp_path, text, "oidc.toml").people
    assert people
    assert people.grant("trainers").targets == ["prod-*"]


MISTAKES = {
    "shape": ("people: 7", "oidc.yaml:1: people: has the wrong form"),
    "nothing": ("{}", "names no issuer (write people, jobs, or both)"),
    "unknown key": (
        PEOPLE.replace("client_id", "clientid"),
        "people.clientid: unknown key (did you mean client_id?)",
    ),
    "missing": (
        PEOPLE.replace("  client_id: compatgate\n", ""),
        "client_id: has the wrong form",
    ),
    "scope": (
        PEOPLE.replace("bless", "write"),
        "(one of read, admission, gate, plan, deliver, work, propose, approve, upgrade, operate,"
        " bless, admin)",
    ),
    "http": (
        PEOPLE.replace("https", "http"),
        "oidc.yaml:2: people.issuer: 'http://id.example/realms/platform' must be https",
    ),
    "no URL": (PEOPLE.replace("https://id.example/realms/platform", "id"), "'id' is not a URL"),
    "password": (PEOPLE.replace("//id", "//a:b@id"), "has a user, a query or a fragment"),
    "nobody": (PEOPLE.split("  groups")[0], "people.groups: nobody would have a scope"),
    "openid": (PEOPLE + "  scopes: [email]\n", "people.scopes: lacks openid (add openid)"),
    "secret": (
        PEOPLE + "  client_secret_env: NO_SUCH_SECRET\n",
        "people.client_secret_env: 'NO_SUCH_SECRET' holds no secret",
    ),
    "secret file": (
        PEOPLE + "  client_secret_file: /no/such/file\n",
        "people.client_secret_file: '/no/such/file' cannot be read: No such file",
    ),
    "two secrets": (
        PEOPLE + "  client_secret_file: /a\n  client_secret_env: B\n",
        "a second source of the secret (name the file or the variable)",
    ),
    "duration": (PEOPLE + "  sessions: {idle: soon}\n", "people.sessions.idle: 'soon'"),
    "long": (PEOPLE + "  sessions: {longest: 90d}\n", "'90d' is out of range (1m to 31d)"),
    "target": (
        PEOPLE + "    lab: {scopes: [gate], targets: ['a b']}\n",
        "people.groups.lab.targets: 'a b' is not a pattern of targets",
    ),
    "limited admin": (
        PEOPLE + "    lab: {scopes: [admin], targets: [a]}\n",
        "people.groups.lab.scopes: the scope admin cannot be limited to targets",
    ),
    "job admin": (
        JOBS.replace("[gate]", "[admin]"),
        "jobs[0].rules[0].scopes: jobs cannot have admin; they may have read, admission, gate",
    ),
    "twice": (JOBS + JOBS.replace("jobs:\n", ""), "jobs[1].issuer: 'https://token.actions"),
    "everybody": (
        JOBS.replace("repository: acme/trainer, ", ""),
        "oidc.yaml:6: jobs[0].rules[0].claims: do not say whose jobs: this issuer serves everybody",
    ),
    "any owner": (
        JOBS.replace("acme/trainer", "'*/trainer'"),
        "claims: match jobs of other owners (write the owner in full, like acme/*)",
    ),
    "one of any owner": (
        JOBS.replace("acme/trainer", "[acme/trainer, '*/trainer']"),
        "match jobs of other owners",
    ),
    "open subject": (
        JOBS.replace("repository: acme/trainer", "sub: 'repo:acme*:**'"),
        "match jobs of other owners",
    ),
    "no claims": (
        JOBS.replace("{repository: acme/trainer, ref: refs/heads/main}", "{}"),
        "length >= 1",
    ),
    "two documents": (PEOPLE + "---\n" + JOBS, "the file has a second document (write one)"),
    "not YAML": ("people: [", "not valid YAML"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_named(case: str, tmp_path: Path) -> None:
    text, said = MISTAKES[case]
    with pytest.raises(ManyProblems) as refused:
        read(tmp_path, text)
    assert said in refused.value.detail


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    text = PEOPLE.replace("https", "http") + JOBS.replace("[gate]", "[admin]")
    with pytest.raises(ManyProblems) as refused:
        read(tmp_path, text)
    assert len(refused.value.problems) == 2


@pytest.mark.parametrize(
    "claims",
    [
        "{repository: 'acme/*'}",
        "{repository_owner: acme, repository: '*/trainer'}",
        "{repository_id: 74}",
        "{sub: 'repo:acme/trainer:ref:refs/heads/*'}",
    ],
)
def test_a_rule_that_names_its_owner_is_accepted(claims: str, tmp_path: Path) -> None:
    text = JOBS.replace("{repository: acme/trainer, ref: refs/heads/main}", claims)
    assert read(tmp_path, text).jobs


def test_an_issuer_of_this_machine_may_be_plain_http(tmp_path: Path) -> None:
    for host in ("127.0.0.1:8081", "localhost:8081", "[::1]:8081"):
        text = PEOPLE.replace("https://id.example/realms/platform", f"http://{host}")
        assert read(tmp_path, text).people


def test_the_secret_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    people = read(tmp_path, PEOPLE + f"  client_secret_file: {tmp_path}/secret\n").people
    assert people
    assert client_secret(people) == "s3cret"
    assert "s3cret" not in repr(people)


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"pip install '\.\[oidc\]'"):
        read(tmp_path, PEOPLE)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(PEOPLE)
    with pytest.raises(BadInput, match="is a folder"):
        read_settings(str(tmp_path))
