"""A far gate: it decides from the bundle of a central gate, and delivers each decision once.

Both gates are real processes. The central one has an SQLite database, the far one has none.
"""

from __future__ import annotations

import itertools
import re
import shutil
import socket
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from attest_keys import new_key, private_pem, public_pem
from serving import Server, start, wait_for_url, with_examples

from compatgate.web.routes import ROUTES

STACK = {"cuda": "12.1", "cudnn": "9.1.0", "torch": "2.4.1", "nccl": "2.20.5"}
SPEC = {"targets": ["*"], "components": {"cuda": "12.4.*"}, "status": "candidate"}
NAME = "cluster-7"
CALLER = "a secret of the far cluster"


def until(is_so: Callable[[], Any], seconds: float = 30) -> Any:
    """Wait until something is so, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := is_so()):
        assert time.monotonic() < deadline, "that took too long"
        time.sleep(0.05)
    return found


def free_port() -> int:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Site:
    """A central gate on a fixed port, and a far gate that knows it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "far-state"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.running: list[Server] = []
        for name, kind in (("gate", "p256"), ("other", "ed25519")):
            key = new_key(kind)
            (folder / f"{name}.pem").touch(mode=0o600)
            (folder / f"{name}.pem").write_bytes(private_pem(key))
            (folder / f"{name}.pub").write_bytes(public_pem(key))
        (folder / "caller").write_text(CALLER)
        self.token = folder / "token"
        self.central = self.start_central()
        self.admin = self.central.bearer
        asked = {"name": NAME, "scopes": ["read", "deliver"]}
        made = self.central.ask("POST", "/api/v1/tokens", asked, self.admin)
        assert made.status == 201, made.body
        self.token.write_text(made.json()["secret"])

    def start_central(self, *options: str, key: str = "gate") -> Server:
        fixed = ["--signing-key", str(self.folder / f"{key}.pem"), "--port", str(self.port)]
        return self._start(with_examples(self.folder, [*fixed, *options]))

    def start_far(self, *options: str, **env: str) -> Server:
        return self._start(self.far_options(*options), **env)

    def far_options(self, *options: str) -> list[str]:
        fixed = ["--bundle", self.url, "--bundle-key", str(self.folder / "gate.pub")]
        fixed += ["--bundle-token", str(self.token), "--bundle-every", "1s"]
        fixed += ["--caller-token", f"ci={self.folder / 'caller'}", "--state", str(self.state)]
        return [*fixed, *options]

    def _start(self, options: list[str], **env: str) -> Server:
        server = start(self.folder, options, False, env)
        self.running.append(server)
        wait_for_url(server)
        return server

    def change(self) -> int:
        """Make a revision of the matrix, and return its number."""
        entry = {"metadata": {"name": f"made-{uuid4().hex}"}, "spec": SPEC, "reason": "to see"}
        answer = self.central.ask("POST", "/api/v1/entries", entry, self.admin)
        assert answer.status == 201, answer.body
        return int(answer.json()["revision"])

    def logged(self) -> Counter[str]:
        """Return the images of all decisions at the central gate."""
        with closing(sqlite3.connect(self.folder / "gate.db")) as database:
            rows = database.execute(
                "SELECT coalesce(decisions.image, verdicts.image) FROM decisions"
                " JOIN verdicts ON verdicts.id = decisions.verdict_id"
            )
            return Counter(image for (image,) in rows)

    def verify(self) -> dict[str, Any]:
        found: dict[str, Any] = self.central.ask(
            "GET", "/api/v1/audit/verify?full=true", headers=self.admin
        ).json()
        return found

    def close(self) -> None:
        for server in self.running:
            if server.process.poll() is None:
                server.kill()


def state_of(far: Server) -> dict[str, Any]:
    answer = far.ask("GET", "/readyz")
    return {"http": answer.status, **answer.json()}


def ask(far: Server, image: str) -> dict[str, Any]:
    answer = far.gate(STACK, image=image)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()
    return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("site"))
    yield made
    made.close()


HOOK = {
    "image": "hook:1",
    "target": "prod-a100",
    "stack": STACK,
}


def review() -> dict[str, Any]:
    """A pod that asks for a GPU, as the API server sends it."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "trainer", "labels": {"compatgate.dev/target": "prod-a100"}},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "pod:1",
                    "resources": {"limits": {"nvidia.com/gpu": "1"}},
                }
            ]
        },
    }
    request = {
        "uid": uuid4().hex,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "trainer",
        "namespace": "ml",
        "operation": "CREATE",
        "object": pod,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def test_a_far_gate_decides_as_the_central_gate_and_delivers_to_it(site: Site) -> None:
    far = site.start_far()
    assert f"far gate {NAME} of {site.url}: matrix revision 1" in "\n".join(far.log)
    state = state_of(far)
    assert (state["http"], state["far_gate"], state["central"]) == (200, NAME, site.url)
    assert state["facts"] == state["facts_of_central"]
    number = site.change()
    until(lambda: state_of(far)["revision"] == number)
    assert ask(far, "same:1")["id"] == ask(site.central, "same:1")["id"]
    until(lambda: site.logged()["same:1"] == 2)
    verdict = ask(far, "elsewhere:1")["id"]
    until(lambda: site.logged()["elsewhere:1"])
    unsigned = site.central.ask("GET", f"/api/v1/verdicts/{verdict}/attestation")
    assert unsigned.status == 409
    assert f"the far gate {NAME} gave this verdict" in unsigned.json()["detail"]
    sender = {"Authorization": f"Bearer {CALLER}"}
    assert far.ask("GET", "/api/v1/caller", headers=sender).json()["name"] == "ci"
    unknown = far.ask("GET", "/api/v1/caller", headers=site.admin)
    assert unknown.status == 401, "the far gate does not know tokens of the central gate"
    _check_every_operation(far, site.url)
    assert far.stop() == 0
    assert "nodes could not be read" not in "\n".join(far.log), "it has none"
    assert not list((site.state / "spool").iterdir()), "all is delivered"
    report = site.verify()
    assert report["ok"], report["problems"]


def _check_every_operation(far: Server, central: str) -> None:
    """Check that a far gate answers each operation or says why not, and changes nothing."""
    refused = set()
    for route in ROUTES:
        path = re.sub(r"{[^}]+}", "1", route.path)
        body = None if route.method == "GET" else {}
        answer = far.ask(route.method, f"/api/v1{path}", body)
        assert answer.status < 500, (route.name, answer.body)
        if answer.status == 403:
            refused.add(route.name)
            problem = answer.json()
            assert problem["type"].endswith("/read-only-gate"), (route.name, problem)
            assert central in problem["hint"]
        assert answer.status != 403 or route.name not in ("ask", "preview", "what_if", "openapi")
        assert answer.status == 403 or not route.changes, route.name
    assert {"list_decisions", "show_target", "create_token", "import_matrix"} <= refused
    page = far.ask("GET", "/ui/", headers={"Accept": "text/html"})
    assert page.status == 403
    assert central in page.body.decode()


class Load:
    """Threads that ask a gate all the time, and remember which images were answered."""

    def __init__(self, far: Server, name: str) -> None:
        self.answered: list[str] = []
        self._far, self._name = far, name
        self._threads = [threading.Thread(target=self._ask, args=(n,)) for n in range(4)]
        for thread in self._threads:
            thread.start()

    def _ask(self, thread: int) -> None:
        connection = self._far.connect()
        with suppress(OSError, HTTPException):  # the gate is killed
            for number in itertools.count():
                image = f"{self._name}:{thread}-{number}"
                question = {"target": "prod-a100", "stack": STACK, "image": image}
                answer = self._far.ask("POST", "/api/v1/gate", question, connection=connection)
                assert answer.status == 200, answer.body
                self.answered.append(image)

    def kill_gate(self, answers: int) -> list[str]:
        """Kill the gate after so many further answers, and return the images of all of them."""
        wanted = len(self.answered) + answers
        until(lambda: len(self.answered) >= wanted)
        self._far.kill()
        for thread in self._threads:
            thread.join(30)
        return self.answered


def test_nothing_is_lost_or_doubled_by_kills_while_the_central_gate_is_away(site: Site) -> None:
    answered = Load(site.start_far(), "connected").kill_gate(100)
    far = site.start_far()
    load = Load(far, "away")
    until(lambda: len(load.answered) > 20)
    site.central.kill()
    until(lambda: "degraded" in state_of(far))
    degraded = ask(far, "degraded:1")["degraded"]
    assert "the gate" in degraded["reason"]
    assert degraded["snapshot_age_s"] < 60
    answered += load.kill_gate(100)
    far = site.start_far()
    assert "starting with the last good bundle" in "\n".join(far.log)
    assert "degraded" in ask(far, "restarted:1")
    assert far.ask("POST", "/hooks/generic", HOOK).json()["verdict"] == "warn"
    admitted = far.ask("POST", "/hooks/kubernetes/validate", review()).json()["response"]
    assert any("without the central gate" in line for line in admitted["warnings"]), admitted
    text = far.ask("GET", "/metrics").body.decode()
    assert "compatgate_degraded 1.0" in text
    assert re.search(r"compatgate_spool_batches [1-9]", text)
    site.central = site.start_central()
    answered += ["degraded:1", "restarted:1", "hook:1"]
    until(lambda: len(list((site.state / "spool").iterdir())) == 1, 120)
    until(lambda: "degraded" not in state_of(far))
    assert far.stop() == 0
    logged = site.logged()
    missing = [image for image in answered if not logged[image]]
    assert not missing, f"{len(missing)} of {len(answered)} answered decisions are lost"
    assert max(logged[image] for image in answered) == 1
    report = site.verify()
    assert report["ok"], report["problems"]
    links = site.central.ask("GET", "/api/v1/audit?limit=500", headers=site.admin).json()
    anchored = [link for link in links["items"] if link["action"] == "decisions.anchor"]
    writers = {writer for link in anchored for writer in link["detail"]["writers"]}
    assert any(writer.startswith(f"{NAME}:") for writer in writers), "the log names the far gate"


def test_a_bundle_of_another_key_or_an_older_one_is_refused(site: Site) -> None:
    backup = site.folder / "backup.db"
    with (
        closing(sqlite3.connect(site.folder / "gate.db")) as source,
        closing(sqlite3.connect(backup)) as copy,
    ):
        source.backup(copy)
    number = site.change()
    far = site.start_far()
    ask(far, "chained:1")
    until(lambda: site.logged()["chained:1"] == 1)
    good = (site.state / "matrix.bundle").read_bytes()
    site.central.stop()
    site.central = site.start_central(key="other")
    reason = until(lambda: state_of(far).get("degraded", {}).get("reason"))
    reason = until(lambda: "trusted" in (r := state_of(far)["degraded"]["reason"]) and r)
    assert "is not trusted" in reason
    assert (site.state / "matrix.bundle").read_bytes() == good
    site.central.stop()
    for path in (*site.folder.glob("gate.db-*"), site.folder / "gate.db"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    backup.rename(site.folder / "gate.db")
    site.central = site.start_central()
    reason = until(lambda: "older" in (r := state_of(far)["degraded"]["reason"]) and r)
    assert f"(revision {number}" in reason
    assert ask(far, "chained:2")["matrix_revision"] == number, "the last good bundle decides"
    spools = site.state / "spool"
    until(lambda: list(spools.glob("*.spool.aside")))
    assert len(list(spools.glob("*.spool.aside"))) == 1, "the restored gate lacks its revision"
    assert "compatgate_spool_set_aside 1.0" in far.ask("GET", "/metrics").body.decode()
    ask(far, "chained:3")
    aside = until(lambda: len(r := list(spools.glob("*.spool.aside"))) == 2 and r)
    assert far.stop() == 0
    for path in (*aside, site.state / "matrix.bundle"):  # as the operator is told
        path.unlink()
    far = site.start_far()
    assert ask(far, "chained:4")["matrix_revision"] < number, "the bundle of the restored gate"
    until(lambda: site.logged()["chained:4"] == 1)
    assert not site.logged().keys() & {"chained:2", "chained:3"}
    assert far.stop() == 0
    assert site.verify()["ok"]


def test_with_a_bundle_that_is_too_old_nothing_is_decided(site: Site) -> None:
    far = site.start_far("--max-stale", "5s", "--on-failure", "deny")
    until(lambda: far.gate(STACK, image="fresh:1").status == 200)
    site.central.kill()
    until(lambda: state_of(far)["http"] == 503)
    answer = far.gate(STACK, image="stale:1")
    assert answer.status == 503
    assert "the limit is 5 s" in answer.json()["detail"]
    admitted = far.ask("POST", "/hooks/kubernetes/validate", review()).json()["response"]
    assert admitted["allowed"] is False
    assert "compatgate_ready 0.0" in far.ask("GET", "/metrics").body.decode()
    far.kill()
