"""Packages without a record: what a service measures, refuses, and does not wait for."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator

import pytest
from catalogue import own_cache
from gpu_binaries import make_entry, make_fatbin
from wheel_server import WheelServer, wheel_server
from wheels import make_shared_object, make_wheel

A100 = {"driver": "535.183.01", "gpu": "A100-SXM4-80GB"}
H100 = {"driver": "535.183.01", "gpu": "H100-SXM5-80GB"}
NAME = "gpu_pkg-1.0-cp312-cp312-manylinux_2_28_x86_64.whl"
STACK = {"cuda": "12.2", "gpu-pkg": "1.0"}
PATIENCE = 20


@pytest.fixture
def index() -> Iterator[WheelServer]:
    with wheel_server() as served:
        code = make_fatbin(make_entry("sass", 80))
        library = make_shared_object(needs=["libcudart.so.12"], code=code)
        served.add(NAME, make_wheel({"gpu_pkg/lib.so": library}, name="gpu-pkg"))
        yield served


@pytest.fixture
def serving(serve, tmp_path) -> Callable:
    """Start a service that may measure from indexes, with a cache of the test's own."""

    def start(*indexes: str, options: tuple[str, ...] = (), **env: str):
        allowed = [word for url in indexes for word in ("--index", url)]
        return serve(*allowed, *options, **{"XDG_CACHE_HOME": own_cache(tmp_path / "cache"), **env})

    return start


def ask(server, stack=STACK, pool=A100):
    answer = server.ask("POST", "/api/v1/gate", {"pool": pool, "stack": stack})
    assert answer.status == 200, answer.body
    return answer.json()


def said(verdict, rule: str) -> list[str]:
    return [found["message"] for found in verdict["findings"] if found["rule"] == rule]


def until(server, holds: Callable, **question):
    """Ask again until the answer is the one that is waited for."""
    end = time.monotonic() + PATIENCE
    while not holds(verdict := ask(server, **question)):
        assert time.monotonic() < end, verdict
        time.sleep(0.1)
    return verdict


def is_decided(verdict) -> bool:
    return verdict["verdict"] != "unknown"


def failed(verdict) -> bool:
    return "ask again" not in said(verdict, "CG410")[0]


def test_admission_is_told_to_ask_again_and_decides_then(serving, index):
    server = serving(index.index)
    annotations = {
        "compatgate.dev/target": "prod-a100",
        "compatgate.dev/stack": "cuda=12.2,gpu-pkg=1.0",
    }
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "operation": "CREATE",
        "namespace": "ml-train",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "object": {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}},
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}

    def open_packages() -> list[str]:
        sent = server.ask("POST", "/hooks/kubernetes/validate", review)
        verdict = re.search(r"vd_\w+", sent.json()["response"]["status"]["message"])
        assert verdict is not None
        return said(server.ask("GET", f"/api/v1/verdicts/{verdict[0]}").json(), "CG410")

    (message,) = open_packages()
    assert "its wheel is being measured: ask again" in message
    until(server, is_decided)
    assert open_packages() == []


def test_without_an_index_a_package_stays_open_and_nothing_is_asked(serving, index):
    server = serving()
    assert said(ask(server), "CG410") == ["no record describes the content of gpu-pkg 1.0"]
    assert index.paths == []


def test_the_first_answer_is_unknown_and_says_so_and_a_later_one_is_decided(serving, index):
    server = serving(index.index)
    first = ask(server)
    assert first["verdict"] == "unknown"
    assert said(first, "CG410") == [
        "no record describes the content of gpu-pkg 1.0: its wheel is being measured: ask again"
    ]
    later = until(server, is_decided)
    assert later["allowed"]
    digest = hashlib.sha256(index.files[NAME]).hexdigest()
    assert any(NAME in text and digest in text for text in said(later, "CG901"))
    assert later["id"] != first["id"]
    assert ask(server)["id"] == later["id"]
    denied = ask(server, pool=H100)
    assert any("has no code for H100" in text for text in said(denied, "CG411"))


def test_no_answer_waits_for_a_wheel(serving, index):
    index.delay = 3.0
    server = serving(index.index)
    began = time.monotonic()
    for _ in range(3):
        assert ask(server)["verdict"] == "unknown"
    assert time.monotonic() - began < index.delay
    index.delay = 0.0
    until(server, is_decided)
    assert index.paths.count("/simple/gpu-pkg/") == 1


def test_another_start_knows_what_was_measured_before_and_asks_no_index(serving, index):
    until(server := serving(index.index), is_decided)
    server.kill()
    index.paths.clear()
    assert ask(serving(index.index))["allowed"]
    assert index.paths == []


def test_every_worker_answers_with_what_one_has_measured(serving, index):
    server = serving(index.index, options=("--workers", "2"))
    until(server, is_decided)
    assert all(is_decided(ask(server)) for _ in range(10))


def test_a_preview_and_a_change_are_judged_by_what_was_measured(serving, index):
    server = serving(index.index)
    until(server, is_decided)
    question = {"pool": A100, "stack": {"cuda": "12.2"}, "set": {"gpu-pkg": "1.0"}}
    preview = server.ask("POST", "/api/v1/gate/preview", question).json()
    assert is_decided(preview)
    other = server.ask("POST", "/api/v1/gate", question | {"set": {"gpu-pkg": "2.0"}}).json()
    assert "gpu-pkg 2.0: its wheel is being measured" in said(other, "CG410")[0]


def test_an_index_that_the_asker_names_is_not_asked(serving, index):
    with wheel_server() as other:
        server = serving(index.index)
        wheel = {"file": NAME, "index": other.index}
        stack = {**STACK, "wheels": {"gpu-pkg": wheel}}
        (message,) = said(until(server, failed, stack=stack), "CG410")
        assert f"its index {other.index} is not allowed here" in message
        assert other.paths == []
        assert index.paths == []


def test_a_digest_that_no_wheel_has_leaves_the_package_open(serving, index):
    stack = {**STACK, "wheels": {"gpu-pkg": {"sha256": "0" * 64}}}
    (message,) = said(until(serving(index.index), failed, stack=stack), "CG410")
    assert "no wheel with the name or digest that is stated" in message


def test_a_failure_is_remembered_and_not_repeated_for_every_question(serving, index):
    server = serving(index.index)
    stack = {"cuda": "12.2", "no-such-pkg": "1.0"}
    (message,) = said(until(server, failed, stack=stack), "CG410")
    assert message.startswith("no record describes the content of no-such-pkg 1.0: the index")
    asked = len(index.paths)
    assert said(ask(server, stack=stack), "CG410") == [message]
    assert len(index.paths) == asked


def test_a_wheel_that_is_not_what_the_index_states_leaves_the_package_open(serving, index):
    index.digests[NAME] = "1" * 64
    (message,) = said(until(serving(index.index), failed), "CG410")
    assert "has the SHA-256" in message


@pytest.mark.parametrize("allowed", [False, True])
def test_an_index_leads_to_no_address_that_is_not_public_unless_the_operator_allows_it(
    serving, index, allowed
):
    index.files_at = index.address("").replace("127.0.0.1", "localhost").rstrip("/")
    options = ("--index-network", "127.0.0.0/8,::1/128") if allowed else ()
    server = serving(index.index, options=options)
    if allowed:
        assert until(server, is_decided)["allowed"]
        return
    (message,) = said(until(server, failed), "CG410")
    assert "redirects to localhost, which is not a public address" in message
    assert not any(path.startswith("/files/") for path in index.paths)


def test_a_page_cannot_lead_to_files_of_the_server(serving, index, tmp_path):
    (tmp_path / NAME).write_bytes(index.files[NAME])
    index.files_at = tmp_path.as_uri()
    (message,) = said(until(serving(index.index), failed), "CG410")
    assert "the index has no" in message


def test_indexes_and_their_passwords_come_from_the_environment(serving, index):
    index.password = "Basic dXNlcjpzZWNyZXQ="
    address = index.index.replace("://", "://user:secret@")
    server = serving(COMPATGATE_INDEXES=f"{address}, https://index.example/simple")
    verdict = until(server, is_decided)
    assert verdict["allowed"]
    assert "secret" not in str(verdict)


def test_what_is_no_url_of_an_index_ends_the_start_in_one_line(serving):
    server = serving("ftp://user:secret@index.example/simple", options=("--port", "0"), ready=False)
    assert server.process.wait(PATIENCE) == 2
    assert server.process.stderr is not None
    (line,) = server.process.stderr.read().splitlines()
    assert line.startswith("error: --index: 'index.example/simple' is not an index URL")
    assert "secret" not in line
