"""Job tokens in the shape of GitHub's and GitLab's: accepted by rules, or refused by a claim."""

from __future__ import annotations

import base64
import hmac
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from joserfc.jwk import ECKey, RSAKey
from jwt_issuer import GITHUB, GITLAB, JobIssuer

from compatgate.errors import Forbidden, Unauthorized, Unavailable
from compatgate.kit.database.database import Database
from compatgate.service.access import issuers
from compatgate.service.access.identity import Identity
from compatgate.service.access.settings import IdentitySettings

Read = Callable[[dict[str, Any]], IdentitySettings]
RULES = [
    {
        "name": "deploys",
        "claims": {"repository": "acme/*", "ref": "refs/heads/*", "environment": "prod"},
        "scopes": ["gate"],
        "targets": ["prod-*"],
    },
    {
        "name": "builds",
        "claims": {"project_path": "acme/*", "ref_protected": True},
        "scopes": ["gate"],
    },
]


@pytest.fixture
def identity(database: Database, job_issuer: JobIssuer, settings_of: Read) -> Identity:
    trusted = {"issuer": job_issuer.url, "audience": "https://gate.example", "rules": RULES}
    return Identity(database, settings_of({"jobs": [trusted]}))


def test_a_job_of_github_has_what_its_rule_says(identity: Identity, job_issuer: JobIssuer) -> None:
    token = job_issuer.token(GITHUB)
    assert identity.knows(token)
    job = identity.verify(token)
    assert (job.kind, job.scopes, job.targets) == ("job", {"gate"}, ("prod-*",))
    assert job.name == "deploys (repo:acme/trainer:environment:prod)"


def test_a_job_of_gitlab_has_what_its_rule_says(identity: Identity, job_issuer: JobIssuer) -> None:
    job = identity.verify(job_issuer.token({**GITLAB, "aud": ["https://gate.example", "x"]}))
    assert job.name == "builds (project_path:acme/trainer:ref_type:branch:ref:main)"
    assert (job.scopes, job.targets) == ({"gate"}, None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"environment": "lab"}, "environment is 'lab'"),
        ({"ref": "refs/pull/7/merge", "environment": "lab"}, "ref is 'refs/pull/7/merge'"),
        ({"environment": None}, "environment is missing"),
        ({"repository": "evil/trainer"}, "repository is 'evil/trainer'"),
        ({"repository": "acme/a/b"}, "repository is 'acme/a/b'"),
        ({"repository": ["evil/trainer"]}, "repository is"),
        ({"repository": {"a": 1}}, "repository is"),
    ],
)
def test_a_claim_that_does_not_match_is_named(
    identity: Identity, job_issuer: JobIssuer, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(Forbidden, match="no rule of this gate matches the job") as refused:
        identity.verify(job_issuer.token({**GITHUB, **change}))
    assert said in refused.value.problem
    assert not [told for told in ("acme/*", "deploys", "protected") if told in refused.value.detail]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"aud": "https://another.example"}, "aud does not match: https://another.example"),
        ({"aud": None}, "aud is missing"),
        ({"exp": int(time.time()) - 120}, "exp has passed"),
        ({"exp": None}, "exp is missing"),
        ({"exp": "soon"}, "exp does not match"),
        ({"iat": int(time.time()) + 3600}, "iat does not match"),
        ({"iat": None}, "iat is missing"),
        ({"nbf": int(time.time()) + 3600}, "nbf"),
        ({"iss": "https://id.example"}, "does not trust the issuer 'https://id.example'"),
        ({"iss": None}, "does not trust the issuer ''"),
        ({"iss": 7}, "does not trust the issuer ''"),
        ({"sub": None}, "sub is missing"),
        ({"sub": ""}, "sub names nobody"),
        ({"sub": "a\x00b"}, "sub names nobody"),
    ],
)
def test_a_token_that_is_not_valid_is_refused(
    identity: Identity, job_issuer: JobIssuer, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(Unauthorized) as refused:
        identity.verify(job_issuer.token({**GITHUB, **change}))
    assert said in refused.value.problem


def _unsigned(token: str, **header: Any) -> str:
    made = base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode()
    return f"{made}.{token.split('.')[1]}."


def _shared(token: str, key: bytes) -> str:
    """Sign with a public key as the secret of HMAC, as libraries once accepted it."""
    unsigned = _unsigned(token, alg="HS256", kid="rsa-1", typ="JWT").rstrip(".")
    digest = hmac.digest(key, unsigned.encode(), "sha256")
    return f"{unsigned}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def test_nobody_signs_for_the_issuer(identity: Identity, job_issuer: JobIssuer) -> None:
    good = job_issuer.token(GITHUB)
    begin, body, signature = good.split(".")
    curve = ECKey.generate_key("P-256", {"kid": "rsa-1"})
    stranger = RSAKey.generate_key(2048, {"kid": "rsa-1"})
    public = job_issuer.rsa.public_key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    forged = {
        "no algorithm": _unsigned(good, alg="none", kid="rsa-1"),
        "public key as secret": _shared(good, public),
        "another key": job_issuer.token(GITHUB, stranger),
        "another kind of key": job_issuer.token(GITHUB, curve),
        "changed": f"{begin}.{body[:-2]}{'AA' if body[-2:] != 'AA' else 'BB'}.{signature}",
        "without signature": f"{begin}.{body}.",
        "access token": job_issuer.token(GITHUB, typ="at+jwt"),
        "malformed": "eyJ.eyJ.eyJ",
    }
    for how, token in forged.items():
        with pytest.raises(Unauthorized):
            pytest.fail(f"{how} was accepted: {identity.verify(token)}")
    assert identity.verify(good).kind == "job"


def test_short_and_shared_keys_of_an_issuer_are_ignored(
    identity: Identity, job_issuer: JobIssuer
) -> None:
    with pytest.warns(match="2048"):
        short = RSAKey.generate_key(1024, {"kid": "short"})
    job_issuer.keys.append(short)
    with pytest.raises(Unauthorized, match="kid 'short' is no key"):
        identity.verify(job_issuer.token(GITHUB, short))


def test_an_unknown_key_has_the_keys_read_at_most_once_a_minute(
    identity: Identity, job_issuer: JobIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity.verify(job_issuer.token(GITHUB))
    new = RSAKey.generate_key(2048, {"kid": "new"})
    for _ in range(20):
        with pytest.raises(Unauthorized, match="kid 'new' is no key"):
            identity.verify(job_issuer.token(GITHUB, new))
    assert job_issuer.reads["/jwks"] <= 2
    job_issuer.keys = [new]
    monkeypatch.setattr(issuers, "UNKNOWN_KEY_PAUSE_S", 0.0)
    assert identity.verify(job_issuer.token(GITHUB, new)).kind == "job"
    with pytest.raises(Unauthorized, match="kid 'rsa-1' is no key"):
        identity.verify(job_issuer.token({**GITHUB, "jti": "2"}))


def test_keys_stay_valid_while_the_issuer_is_away(
    identity: Identity, job_issuer: JobIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity.verify(job_issuer.token(GITHUB))
    job_issuer.away = True
    monkeypatch.setattr(issuers, "FRESH_S", 0.0)
    monkeypatch.setattr(issuers, "FAILURE_PAUSE_S", 0.0)
    assert identity.verify(job_issuer.token({**GITHUB, "jti": "2"})).kind == "job"
    monkeypatch.setattr(issuers, "STALE_S", 0.0)
    with pytest.raises(Unavailable, match="answers with status 503"):
        identity.verify(job_issuer.token({**GITHUB, "jti": "3"}))


def test_without_keys_one_request_waits_and_others_are_told_at_once(
    identity: Identity, job_issuer: JobIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity.verify(job_issuer.token(GITHUB))
    monkeypatch.setattr(issuers, "UNKNOWN_KEY_PAUSE_S", 0.0)
    stalled, go = threading.Event(), threading.Event()
    answer = job_issuer.answer

    def stall(handler: Any) -> None:
        stalled.set()
        go.wait(10)
        answer(handler)

    job_issuer.answer = stall  # type: ignore[method-assign]
    token = job_issuer.token(GITHUB, RSAKey.generate_key(2048, {"kid": "new"}))

    def ask() -> None:
        with pytest.raises(Unauthorized):
            identity.verify(token)

    first = threading.Thread(target=ask)
    first.start()
    assert stalled.wait(10)
    ask()  # does not wait
    assert first.is_alive()
    go.set()
    first.join(10)


def test_a_verified_job_is_remembered_until_its_token_ends(
    identity: Identity, job_issuer: JobIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = job_issuer.token(GITHUB)
    assert identity.at_hand(token) is None
    job = identity.verify(token)
    assert identity.at_hand(token) is job
    monkeypatch.setattr(issuers.time, "monotonic", lambda: time.perf_counter() + 1e6)
    assert identity.at_hand(token) is None


def test_remembered_jobs_are_bounded(
    identity: Identity, job_issuer: JobIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuers, "_CACHE_SIZE", 2)
    tokens = [job_issuer.token({**GITHUB, "jti": str(n)}) for n in range(3)]
    for token in tokens:
        identity.verify(token)
    assert [identity.at_hand(token) is not None for token in tokens] == [False, True, True]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"issuer": "https://id.example"}, "returns another issuer name: 'https://id.example'"),
        ({"jwks_uri": "http://169.254.169.254/keys"}, "publishes a jwks_uri that must be https"),
        ({"jwks_uri": None}, "publishes a jwks_uri that is not a URL"),
        ({"jwks_uri": "file:///etc/passwd"}, "publishes a jwks_uri that is not a URL"),
    ],
)
def test_an_issuer_that_leads_elsewhere_is_refused(
    job_issuer: JobIssuer, document: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer = issuers.Issuer(job_issuer.url)
    told = {"issuer": job_issuer.url, "jwks_uri": f"{job_issuer.url}/jwks", **document}
    monkeypatch.setattr(issuer, "get_json", lambda url: told)
    with pytest.raises(Unavailable) as refused:
        issuer.key("rsa-1")
    assert said in refused.value.problem
