"""Which run goes where, on rows given as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compatgate.service.runs.queue.leases import Offer, could_take
from compatgate.service.runs.queue.models import RunRow
from compatgate.service.runs.queue.queue import choose_run

_NOTHING: dict[str, Any] = dict.fromkeys(RunRow.__struct_fields__)


def run(run_id: str, gpus: int = 1, **fields: Any) -> RunRow:
    return RunRow(**(_NOTHING | {"id": run_id, "gpus": gpus, "nodes": 1, "gpu": "L4"} | fields))


def pick(
    runs: Sequence[RunRow],
    hosts: dict[str, int],
    taken: dict[str, set[int]],
    *,
    exclusive: bool = False,
) -> Any:
    offers = [Offer(n, "L4", None, slots, exclusive=exclusive) for n, slots in hosts.items()]

    def next_for(open_: Sequence[Offer], but: Sequence[str]) -> RunRow | None:
        able = (r for r in runs if r.id not in but and any(could_take(r, offer) for offer in open_))
        return next(able, None)

    found = choose_run(offers, {name: taken.get(name, set()) for name in hosts}, next_for)
    return (found[0].id, *found[1:]) if found else None


def test_the_first_run_gets_the_lowest_free_slots_of_the_emptiest_host() -> None:
    assert pick([run("a"), run("b")], {"h1": 4, "h2": 4}, {"h1": {0, 1}, "h2": {0}}) == (
        "a", "h2", (1,),
    )  # fmt: skip


def test_a_run_that_waits_keeps_the_host_that_comes_nearest() -> None:
    busy = {"h1": {0, 1, 2}, "h2": {0, 1}}
    waits = [run("large", 4), run("small")]
    assert pick(waits, {"h1": 4, "h2": 4}, busy) == ("small", "h1", (3,))
    assert pick(waits, {"h1": 4}, busy) is None


def test_a_run_that_no_host_could_take_keeps_none() -> None:
    assert pick([run("other", gpu="H100"), run("mine")], {"h1": 1}, {}) == ("mine", "h1", (0,))


def test_slots_beyond_those_that_a_host_has_now_do_not_count() -> None:
    assert pick([run("a")], {"h1": 2}, {"h1": {0, 3}}) == ("a", "h1", (1,))


def test_a_run_of_several_nodes_goes_to_a_host_that_spans_them() -> None:
    wide = run("wide", 2, nodes=2)
    machine, cluster = Offer("machine", "L4", None, 8), Offer("cluster", "L4", None, 2, spans=True)
    assert not could_take(wide, machine)
    assert could_take(wide, cluster)
    assert could_take(run("narrow"), cluster)


def test_a_run_that_measures_has_its_host_to_itself() -> None:
    measures, checks = run("measures", measures=True), run("checks")
    alone = ("measures", "h1", (0, 1, 2, 3))
    assert pick([measures], {"h1": 4}, {}, exclusive=True) == alone
    assert pick([measures, checks], {"h1": 4}, {"h1": {0}}, exclusive=True) is None, "it waits"
    assert pick([checks], {"h1": 4}, {"h1": {0}}, exclusive=True) == ("checks", "h1", (1,))
    assert pick([measures], {"h1": 4}, {"h1": {0}}) == ("measures", "h1", (1,)), "where shared"
