"""What a run is compared with: a named image, a named entry, or the entry that it would replace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from canary_runs import DRIVER, GPU, evidence, host

from compatgate.errors import BadInput, CompatgateError, NotFound
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.runs.queue.queue import DatabaseQueue
from compatgate.service.runs.queue.schemas import RunRequest

OLD, OTHER, NEW = (f"registry.example/team/app:{tag}" for tag in ("1", "1-other", "2"))
PINNED = "registry.example/team/app@sha256:" + "a" * 64


def entry(name: str, components: dict[str, str], status: str = "blessed") -> dict[str, Any]:
    spec = {"targets": ["prod"], "components": components, "status": status, "reason": "of a test"}
    return {"metadata": {"name": name}, "spec": spec}


@pytest.fixture
def ask(rooms: Rooms, queue: DatabaseQueue) -> Callable[..., Any]:
    """Ask for one run; what it is compared with."""

    def against(image: str | None = NEW, **fields: Any) -> dict[str, Any] | None:
        asked = {"target": "prod", "stack": {"cuda": "12.6", "torch": "2.5.1"}} | fields
        (run,) = rooms.runs.submit(RunRequest("dl-core", image=image, **asked), by="tester")
        rooms.runs.cancel(run.id, by="tester")
        found: dict[str, Any] | None = msgspec.to_builtins(run.against)
        return found

    return against


@pytest.fixture
def passed(rooms: Rooms, queue: DatabaseQueue) -> Callable[..., str]:
    """A run of an image that passed with measured versions; its id."""

    def go(image: str, **components: str) -> str:
        asked = RunRequest("dl-core", target="prod", image=image, against="none")
        (run,) = rooms.runs.submit(asked, by="tester")
        lease = queue.lease("w1", [host()])
        assert lease is not None
        assert (lease.run.id, lease.run.against) == (run.id, None)
        queue.finish(lease, "passed", "", evidence(lease, "passed", components=components))
        return run.id

    return go


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_auto_finds_the_entry_that_the_image_would_replace(
    rooms: Rooms, by: Authorship, ask: Any, passed: Any
) -> None:
    assert ask(target=None, host="a100-1") is None, "no target, no entry to replace"
    assert ask(image=None, host="a100-1") is None
    assert "no entry is blessed on prod" in ask()["reason"]

    rooms.matrix.create("Entry", entry("torch24", {"cuda": "12.4.*", "torch": "2.4.*"}), by)
    rooms.matrix.create("Entry", entry("jax", {"cuda": "12.4.*", "jax": "0.4.*"}), by)
    rooms.matrix.create("Entry", entry("next", {"torch": "2.5.*"}, "candidate"), by)
    found = ask()
    assert (found["asked"], found["image"], found["entry"]) == ("auto", None, "torch24")
    assert "the entry torch24 has no known image" in found["reason"]

    rooms.gate.decide(
        {"target": "prod", "stack": {"cuda": "12.4", "torch": "2.4.1"}, "image": OTHER},
        asked_by="ci",
        source="rest",
    )
    assert ask()["image"] == OTHER
    assert "decision vd_" in ask()["reason"]

    first = passed(OLD, cuda="12.4.1", torch="2.4.1")
    passed("registry.example/team/jax:1", cuda="12.4.1", jax="0.4.30")
    found = ask()
    assert (found["image"], found["reason"]) == (OLD, f"run {first} passed with it")
    assert "nothing to compare" in ask(image=OLD)["reason"]
    assert ask(against="none") is None
    assert ask(stack=None)["reason"].startswith("2 entries are blessed on prod (jax, torch24)")
    assert "same framework" in ask(stack={"cuda": "12.6", "tensorflow": "2.17.0"})["reason"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_reference_that_was_named_must_be_there(
    rooms: Rooms, by: Authorship, ask: Any, passed: Any, target_body: Callable[..., dict[str, Any]]
) -> None:
    assert ask(against=PINNED) == {"asked": PINNED, "image": PINNED, "entry": None, "reason": ""}
    rooms.matrix.create("Entry", entry("torch24", {"torch": "2.4.*"}), by)
    foreign = entry("foreign", {"torch": "2.4.*"})
    rooms.matrix.create("Target", target_body("other"), by)
    foreign["spec"]["targets"] = ["other"]
    rooms.matrix.create("Entry", foreign, by)
    for fields, kind, message in (
        ({"against": "foreign"}, BadInput, "'foreign' is not for the target prod"),
        ({"against": "torch25"}, NotFound, "entry 'torch25' does not exist"),
        ({"against": "torch24"}, BadInput, "the entry 'torch24' has no known image"),
        ({"against": "app@@x"}, BadInput, "app@@x"),
        ({"against": "auto", "image": None, "host": "a100-1"}, BadInput, "image under test"),
    ):
        with pytest.raises(kind) as raised:
            ask(**fields)
        assert message in raised.value.detail
        assert raised.value.field == "against"
    passed(OLD, torch="2.4.1")
    assert (ask(against="torch24")["image"], ask(against="torch24")["entry"]) == (OLD, "torch24")

    rooms.runs.under_test = type(rooms.runs.under_test)((NEW,), "extend it")
    assert ask()["image"] is None
    with pytest.raises(CompatgateError):
        ask(against=PINNED)


def test_a_verification_asks_its_history_first_and_then_the_same_reference(
    rooms: Rooms, queue: DatabaseQueue
) -> None:
    asked = RunRequest("dl-core", target="prod", image=NEW, against=PINNED)
    (run,) = rooms.runs.submit(asked, by="tester")
    lease = queue.lease("w1", [host(driver=DRIVER, gpu=GPU)])
    assert lease is not None
    assert lease.run.against is not None
    assert lease.run.against.image == PINNED
    queue.finish(lease, "inconclusive", "of a test", None)
    (again,) = rooms.runs.rerun(run.id, by="tester")
    (verified,) = rooms.runs.rerun(run.id, by="tester", purpose="verification")
    assert again.against == run.against
    assert verified.against is not None
    assert (verified.against.asked, verified.against.image) == ("history", PINNED)
