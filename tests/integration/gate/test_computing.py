"""Expensive questions run in a process of their own, within a budget, and end with their client."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from compatgate.core.solve import answer_question
from compatgate.errors import NotFound, Unavailable
from compatgate.kit import clock
from compatgate.kit.http.replies import TooBusy
from compatgate.kit.http.wsgi import CLIENT_GONE
from compatgate.service.app import Rooms
from compatgate.service.changes.comparison.service import answer_what_if, plan_upgrade
from compatgate.web import computing
from compatgate.web.computing import Budget, ComputingProcess, OverBudget

WHAT_IF = {"target": "prod-a100", "set": {"driver": "580.95.05"}}


def spin() -> None:
    while True:
        pass


def use_processor(seconds: float) -> int:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
    return os.getpid()


def sleep_and_note(path: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(str(os.getpid()))
    time.sleep(60)


def fill() -> int:
    return len(bytearray(4 * 1024**3))


@pytest.fixture(scope="module")
def process() -> ComputingProcess:
    return ComputingProcess([])


def test_the_answers_are_those_of_the_gate_itself(
    stocked: Rooms, process: ComputingProcess
) -> None:
    snapshot, now = stocked.gate.snapshot(), clock.now()
    assert process(answer_what_if, WHAT_IF, snapshot, now) == answer_what_if(WHAT_IF, snapshot, now)
    question = {"target": "prod-a100", "want": {"torch": ">=2.6"}}
    known = {"facts": snapshot.facts, "matrix": snapshot.matrix, "now": now}
    found = process(answer_question, question, snapshot.target, **known)
    assert found == answer_question(question, snapshot.target, **known)
    body = {"set": {"driver": "580.95.05"}}
    here = plan_upgrade(stocked.gate, stocked.matrix, stocked.nodes, "prod-a100", body)
    stocked.gate.compute = process
    assert plan_upgrade(stocked.gate, stocked.matrix, stocked.nodes, "prod-a100", body) == here


def test_an_error_keeps_its_kind_and_its_words(stocked: Rooms, process: ComputingProcess) -> None:
    with pytest.raises(NotFound, match="target 'nope' does not exist") as caught:
        process(answer_what_if, {**WHAT_IF, "target": "nope"}, stocked.gate.snapshot(), clock.now())
    assert caught.value.field == "target"


def test_a_process_answers_the_next_question_until_one_is_too_much() -> None:
    process = ComputingProcess([], Budget(seconds=1))
    first = process(os.getpid)
    assert process(os.getpid) == first
    with pytest.raises(OverBudget):
        process(spin)
    second = process(os.getpid)
    assert second != first
    os.kill(second, signal.SIGKILL)  # as the kernel does where memory is short
    process._idle[0].join()  # type: ignore[index]
    assert process(os.getpid) not in (first, second)


def test_each_question_has_the_whole_budget() -> None:
    process = ComputingProcess([], Budget(seconds=2))
    assert len({process(use_processor, 0.8) for _ in range(4)}) == 1


@pytest.mark.parametrize("waste", [spin, fill])
def test_a_question_ends_at_its_budget(waste: Callable[[], Any]) -> None:
    with pytest.raises(OverBudget, match=r"the question needs more .* than one may use") as caught:
        ComputingProcess([], Budget(seconds=1, memory=2 * 1024**3))(waste)
    assert (caught.value.status, caught.value.slug) == (422, "over-budget")


def test_a_question_ends_when_its_client_has_left(process: ComputingProcess, tmp_path: Any) -> None:
    gone, path = threading.Event(), tmp_path / "pid"
    threading.Thread(target=lambda: (_wait_for(path), gone.set())).start()
    token = CLIENT_GONE.set(gone)
    try:
        with pytest.raises(Unavailable, match="the client has left"):
            process(sleep_and_note, str(path))
    finally:
        CLIENT_GONE.reset(token)
    with pytest.raises(ProcessLookupError):
        os.kill(int(path.read_text()), 0)


def test_few_questions_wait_and_others_are_told_so(
    process: ComputingProcess, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computing, "_MAX_WAITING", 1)
    gone = threading.Event()

    def ask(name: str) -> None:
        CLIENT_GONE.set(gone)
        with pytest.raises(Unavailable):
            process(sleep_and_note, str(tmp_path / name))

    threads = [threading.Thread(target=ask, args=(name,)) for name in ("first", "second")]
    threads[0].start()
    _wait_for(tmp_path / "first")
    threads[1].start()
    while not process._waiting:
        time.sleep(0.01)
    with pytest.raises(TooBusy, match="1 expensive questions wait already"):
        process(spin)
    gone.set()
    for thread in threads:
        thread.join(20)
    assert not (tmp_path / "second").exists()


def _wait_for(path: Any) -> None:
    until = time.monotonic() + 30
    while not path.exists() or not path.read_text():
        assert time.monotonic() < until
        time.sleep(0.01)


OTHERS = """
import sys
from compatgate.catalog import load_facts
from compatgate.errors import CompatgateError
from compatgate.web.computing import ComputingProcess

def digest(facts):
    return facts.digest

if __name__ == "__main__":
    facts = load_facts([])
    try:
        ComputingProcess(["/no/such/overlay.yaml"])(digest, facts)
    except CompatgateError as error:
        print(type(error).__name__)
    print(ComputingProcess([])(digest, facts) == facts.digest)
"""


def test_a_fork_server_of_other_facts_reads_those_of_the_call(tmp_path: Any) -> None:
    script = tmp_path / "others.py"
    script.write_text(OTHERS)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.split() == ["BadInput", "True"], done.stderr
