"""Imported results: stored with their source, shown, and counted only where a policy says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from canary_runs import DRIVER, GPU

from compatgate.errors import BadInput, Conflict
from compatgate.kit.clock import parse_moment
from compatgate.kit.principal import AccessRefused, Authorship, Principal
from compatgate.service.app import Rooms
from compatgate.service.runs.evidence.imports import require_source
from compatgate.service.runs.queue.schemas import ImportRequest

STACK = {"cuda": "12.4", "nccl": "2.21.5"}
QUESTION = {"target": "prod", "stack": {**STACK, "arch": ["sm_80"]}}
STATED: dict[str, Any] = {
    "source": "lab",
    "sku": "a100 sxm4 80 GB",
    "driver": DRIVER,
    "stack": STACK,
    "file": "results.jsonl",
}
Policy = Callable[..., None]


def results(code: int = 0, node: str = "n1") -> str:
    check = {"type": "check", "name": "finished", "ok": code == 0, "message": f"status {code}"}
    lines = ({"type": "env", "host": node}, check)
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.fixture
def policy(rooms: Rooms, by: Authorship, target_body: Callable[..., dict[str, Any]]) -> Policy:
    """Set the target's canary policy."""

    def change(**canary: Any) -> None:
        pool = {"name": "a100", "gpu": GPU, "driver": DRIVER}
        body = target_body("prod", pools=[pool], policy={"canary": {"require": True} | canary})
        rooms.matrix.change("Target", "prod", body, by)

    change()
    return change


@pytest.fixture
def take(rooms: Rooms, time: Any) -> Callable[..., Any]:
    """Import results as JSON lines, measured now."""

    def go(text: str, **fields: Any) -> Any:
        now = time.present.replace(microsecond=0)
        asked = {**STATED, "measured_at": now, "target": "prod", **fields}
        return rooms.runs.import_report(ImportRequest(text, **asked), by="anna")

    return go


def rules(rooms: Rooms) -> set[str]:
    found = rooms.gate.decide(QUESTION, asked_by="t", source="test").findings
    return {f.rule for f in found if f.rule.startswith("CG81")}


def test_a_result_counts_only_for_a_suite_that_names_its_source(
    rooms: Rooms, policy: Policy, take: Callable[..., Any], time: Any
) -> None:
    (run,) = take(results())
    assert (run.state, run.source, run.purpose) == ("passed", "jsonl@lab", "import")
    assert rules(rooms) == {"CG811"}
    policy(imported={"smoke": ["jsonl@other"]})
    assert rules(rooms) == {"CG811"}
    policy(imported={"smoke": ["jsonl@lab"]})
    verdict = rooms.gate.decide(QUESTION, asked_by="t", source="test")
    assert (rules(rooms), verdict.evidence) == (set(), (run.id,))
    time.forward(minutes=1)
    take(results(code=32))
    assert rules(rooms) == {"CG813"}
    policy()
    assert rules(rooms) == {"CG811"}
    assert rooms.chain.verify().ok


def test_a_result_about_another_stack_or_long_ago_is_no_evidence(
    rooms: Rooms, policy: Policy, take: Callable[..., Any], time: Any
) -> None:
    policy(imported={"smoke": ["jsonl@lab"]})
    take(results(), stack={"nccl": "2.21.5"})
    assert rules(rooms) == {"CG811"}
    time.forward(days=40)
    take(results(), measured_at=(time.present - timedelta(days=35)).replace(microsecond=0))
    assert rules(rooms) == {"CG812"}


def test_each_step_names_its_source_and_what_was_stated(
    rooms: Rooms, take: Callable[..., Any]
) -> None:
    one, two = take(results() + results(4, "n2"))
    assert [(r.on_host, r.state) for r in (one, two)] == [("n1", "passed"), ("n2", "failed")]
    (step,) = rooms.runs.show(one.id).to_json()["steps"]
    about = step["imported"]
    assert (about["format"], about["source"], about["by"]) == ("jsonl", "lab", "anna")
    assert (about["trust"], about["file"]) == ("stated", "results.jsonl")
    assert set(about["stated"]) == {"sku", "driver", "stack.cuda", "stack.nccl", "measured_at"}
    assert rooms.runs.list(purpose="import").items[0].id == two.id
    with pytest.raises(Conflict, match=one.id):
        take(results() + results(4, "n2"))
    with pytest.raises(Conflict, match="was imported"):
        rooms.runs.rerun(one.id, by="anna")


@pytest.mark.parametrize("renamed", [{"source": "vendor"}, {"file": "other.jsonl"}])
def test_a_report_under_another_name_is_found(
    rooms: Rooms, take: Callable[..., Any], renamed: dict[str, Any]
) -> None:
    (one,) = take(results())
    with pytest.raises(Conflict, match=f"already imported as {one.id} from lab"):
        take(results(), **renamed)
    assert [run.id for run in rooms.runs.list(purpose="import").items] == [one.id]


@pytest.mark.parametrize("kind", ["token", "person", "job"])
def test_only_the_token_of_a_source_imports_for_it(kind: Any) -> None:
    everything = frozenset({"operate", "admin"})
    for caller in (Principal("admin", everything, kind=kind), Principal("", everything, kind=kind)):
        with pytest.raises(AccessRefused, match="is not the source lab"):
            require_source(caller, "lab")
    own = Principal("lab", everything, kind=kind)
    if kind == "token":
        require_source(own, "lab")
    else:  # an issuer may give anybody this name
        with pytest.raises(AccessRefused):
            require_source(own, "lab")


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"driver": None}, "driver", "names no driver"),
    ({"driver": "new"}, "driver", "not a"),
    ({"sku": None, "target": None}, "sku", "names no GPU product"),
    ({"sku": "sm_80"}, "sku", "not a product"),
    ({"sku": "H100-SXM5-80GB"}, "sku", "no pool of the target"),
    ({"host": "n9"}, "host", "the report says n1"),
    ({"measured_at": None}, "measured_at", "does not say when"),
    ({"measured_at": parse_moment("2999-01-01")}, "measured_at", "in the future"),
    ({"stack": {"nccl": "new"}}, "stack.nccl", ""),
    ({"pool": "a100", "target": None}, "pool", "needs a target"),
    ({"format": "dcgm"}, "file", "no JSON of dcgmi"),
]


def test_what_a_report_does_not_say_must_be_stated_and_agree(
    rooms: Rooms, take: Callable[..., Any]
) -> None:
    for fields, field, problem in WRONG:
        with pytest.raises(BadInput) as caught:
            take(results(), **fields)
        assert caught.value.field == field, fields
        assert problem in caught.value.problem, fields
    assert not rooms.runs.list(purpose="import").items
