"""Clients that ask a running gate all the time, and note what it answered and how soon."""

from __future__ import annotations

import http.client
import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from serving import Server

from compatgate.service.app import open_rooms
from compatgate.service.gate.decisions.service import read_decision_lines

ADMISSION_DEADLINE = 5.0
_HOOK = f"/hooks/kubernetes/validate?timeout={ADMISSION_DEADLINE:.0f}s"
_QUESTION_NAME = re.compile(r"load/\d+-\d+:\d+")
_PAUSE = 0.02
_PROBE_PAUSE = 0.2
_PATIENCE = 90.0
_loads = count(1)
OUTAGE_SECONDS = float(os.environ.get("COMPATGATE_FAULT_SECONDS", "3"))
"""How long an outage lasts."""
_HEALTH_SECONDS = 5.0 if "PYTEST_XDIST_WORKER" in os.environ else 1.0
"""How soon health answers; beside other tests, processors are scarce."""
_DELIVERY_SECONDS = 40.0
"""How long what was spooled may take to arrive once the database is back."""

STACKS: dict[str, dict[str, Any]] = {
    "allowed": {"cuda": "12.4.1", "cudnn": "9.1.0", "torch": "2.4.1+cu124", "python": "3.11"},
    "denied": {"cuda": "12.4", "arch": ["sm_90"]},
}
"""Stacks that the examples' first target allows and denies."""


@dataclass(frozen=True)
class Answered:
    """An answer with a verdict.

    Attributes:
        name: of the question: its image, which is a label that nobody reads.
        stack: key of `STACKS`.
    """

    name: str
    stack: str
    verdict: str
    allowed: bool
    degraded: bool
    seconds: float


@dataclass
class Seen:
    """What the clients saw."""

    answers: list[Answered] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)
    health_seconds: list[float] = field(default_factory=list)
    admission_seconds: list[float] = field(default_factory=list)
    admissions: Counter[bool] = field(default_factory=Counter)


class Load:
    """Threads that ask, probe health, and send admission reviews.

    Args:
        servers: asked in turn; one that is gone is asked again once it is back.
        threads: that ask the gate.
    """

    def __init__(self, servers: list[Server], threads: int = 2) -> None:
        self.seen = Seen()
        self._number = next(_loads)
        self._servers = servers
        self._over = threading.Event()
        jobs: list[Callable[[], None]] = [self._probe_health, self._admit]
        jobs += [lambda number=number: self._ask(number) for number in range(threads)]
        self._threads = [threading.Thread(target=job, daemon=True) for job in jobs]
        for thread in self._threads:
            thread.start()

    def wait_for_answers(self, count: int = 30, *, degraded: bool | None = None) -> None:
        """Wait until some more questions were answered."""

        def number() -> int:
            answers = list(self.seen.answers)
            return sum(degraded is None or one.degraded == degraded for one in answers)

        enough = number() + count
        deadline = time.monotonic() + _PATIENCE
        while number() < enough:
            assert time.monotonic() < deadline, f"nothing is answered: {self.seen.refusals}"
            time.sleep(0.02)

    def end(self) -> Seen:
        """Ask no more, and return what was seen."""
        self._over.set()
        for thread in self._threads:
            thread.join(_PATIENCE)
        return self.seen

    def _ask(self, thread: int) -> None:
        server = self._servers[thread % len(self._servers)]
        for number, stack in self._questions():
            name = f"load/{self._number}-{thread}:{number}"
            body = {"target": "prod-a100", "stack": STACKS[stack], "image": name}
            began = time.monotonic()
            answer = self._post(server, "/api/v1/gate", body)
            if answer is None:
                continue
            seconds = time.monotonic() - began
            self.seen.answers.append(
                Answered(
                    name,
                    stack,
                    answer["verdict"],
                    answer["allowed"],
                    "degraded" in answer,
                    seconds,
                )
            )

    def _questions(self) -> Iterator[tuple[int, str]]:
        number = 0
        while not self._over.wait(_PAUSE):
            number += 1
            yield number, tuple(STACKS)[number % len(STACKS)]

    def _admit(self) -> None:
        while not self._over.wait(_PROBE_PAUSE):
            began = time.monotonic()
            answer = self._post(self._servers[0], _HOOK, _review())
            if answer is not None:
                self.seen.admission_seconds.append(time.monotonic() - began)
                self.seen.admissions[answer["response"]["allowed"]] += 1

    def _probe_health(self) -> None:
        while not self._over.wait(_PROBE_PAUSE):
            began = time.monotonic()
            with suppress(OSError, http.client.HTTPException):
                self._servers[0].ask("GET", "/healthz")
                self.seen.health_seconds.append(time.monotonic() - began)

    def _post(self, server: Server, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """The body of a 200; what else comes is counted."""
        try:
            answer = server.ask("POST", path, body)
        except (OSError, http.client.HTTPException) as error:
            self.seen.refusals[type(error).__name__] += 1
            time.sleep(0.05)
            return None
        if answer.status != 200:
            self.seen.refusals[str(answer.status)] += 1
            time.sleep(0.05)
            return None
        found: dict[str, Any] = json.loads(answer.body)
        return found


@contextmanager
def load_on(servers: list[Server], threads: int = 2) -> Iterator[Load]:
    """A load that ends with the block."""
    load = Load(servers, threads)
    try:
        load.wait_for_answers()
        yield load
    finally:
        load.end()


def _review() -> dict[str, Any]:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "train",
            "namespace": "ml-train",
            "annotations": {
                "compatgate.dev/target": "prod-a100",
                "compatgate.dev/stack": "cuda=12.4,arch=sm_90",
            },
        },
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "load/admission:1",
                    "resources": {"limits": {"nvidia.com/gpu": "1"}},
                }
            ]
        },
    }
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "train",
            "namespace": "ml-train",
            "operation": "CREATE",
            "userInfo": {"username": "ci"},
            "object": pod,
        },
    }


def missing_decisions(url: str, seen: Seen) -> set[str]:
    """Return the answered questions that the log does not have; the chain must be intact."""
    rooms = open_rooms(url, overlays=[])
    try:
        with rooms.gate.database.reading() as session:
            logged = [line[7] for line in read_decision_lines(session)]
        report = rooms.chain.verify()
    finally:
        rooms.close()
    assert report.ok, report.problems
    names = [
        name for name in logged if name and name.startswith("load/") and "admission" not in name
    ]
    assert len(names) == len(set(names)), "a decision was logged twice"
    return {answer.name for answer in seen.answers} - set(names)


def wrong_answers(seen: Seen) -> list[str]:
    """Return the answers that differ from the true verdict."""
    true = {"allowed": ("warn", True), "denied": ("fail", False)}
    assert set(true) == set(STACKS)
    return [
        f"{answer.name}: {answer.verdict}"
        for answer in seen.answers
        if (answer.verdict, answer.allowed) != true[answer.stack]
    ] + [f"{count} admitted" for allowed, count in seen.admissions.items() if allowed]


def settle(url: str, seen: Seen) -> None:
    """Compare what was seen with the log, once everything spooled had time to arrive."""
    deadline = time.monotonic() + _DELIVERY_SECONDS
    while missing := missing_decisions(url, seen):
        assert time.monotonic() < deadline, f"{len(missing)} of {len(seen.answers)} are lost"
        time.sleep(0.5)
    assert wrong_answers(seen) == []
    assert max(seen.health_seconds, default=0.0) < _HEALTH_SECONDS
    assert max(seen.admission_seconds, default=0.0) < ADMISSION_DEADLINE
    note(seen)


def note(seen: Seen) -> None:
    """Print what was seen, and add it to the file that the environment names."""
    line = figures(seen)
    print(line)
    if path := os.environ.get("COMPATGATE_FAULT_FIGURES"):
        test = os.environ["PYTEST_CURRENT_TEST"].rpartition("::")[2].partition(" ")[0]
        with Path(path).open("a") as stream:
            stream.write(f"{test}: {line}\n")


def figures(seen: Seen) -> str:
    """One line of what was seen, for the table in the documentation."""
    health, admission = (
        max(times, default=0.0) for times in (seen.health_seconds, seen.admission_seconds)
    )
    return (
        f"answered {len(seen.answers)}, degraded {sum(one.degraded for one in seen.answers)}, "
        f"refused {sum(seen.refusals.values())}, slowest answer "
        f"{max(one.seconds for one in seen.answers):.2f} s, health {health:.2f} s, "
        f"admission {admission:.2f} s"
    )


def outage(load: Load, begin: Callable[[], object], end: Callable[[], object]) -> None:
    """Break something for a while; answers go on meanwhile, and afterwards."""
    begin()
    began = time.monotonic()
    load.wait_for_answers()  # whoever waited for the database when it went away is answered, too
    time.sleep(max(0.0, OUTAGE_SECONDS - (time.monotonic() - began)))
    load.wait_for_answers()
    end()
    load.wait_for_answers(degraded=False)
