"""Which judged runs the gate keeps in memory."""

from __future__ import annotations

from typing import Any

from compatgate.core.matrix import Evidence
from compatgate.core.versions import parse_version
from compatgate.service.matrix.snapshots.snapshot import keep_counting


def run(run_id: str, finished: int, **fields: Any) -> Evidence:
    components = fields.pop("components", {"cuda": "12.4.1"})
    driver = fields.pop("driver", "550.54.15")
    fields = {"suite": "smoke", "sku": "L4", "outcome": "passed"} | fields
    return Evidence(
        id=run_id,
        finished=finished,
        driver=parse_version("driver", driver),
        components={c: parse_version(c, v) for c, v in components.items()},
        **fields,
    )


def ids(found: tuple[Evidence, ...]) -> list[str]:
    return [each.id for each in found]


def test_the_latest_of_a_kind_stays() -> None:
    assert ids(keep_counting([run("a", 1), run("b", 3, outcome="failed"), run("c", 2)])) == ["b"]
    assert ids(keep_counting([run("b", 1)], [run("a", 1)])) == ["b"]


def test_runs_about_different_things_all_stay() -> None:
    kinds: list[dict[str, Any]] = [
        {},
        {"suite": "dl-core"},
        {"sku": "A100-SXM4-80GB"},
        {"driver": "535.183.01"},
        {"components": {"cuda": "12.4.0"}},
        {"development": True},
    ]
    found = keep_counting([run(str(index), index, **kind) for index, kind in enumerate(kinds)])
    assert len(found) == len(kinds)


def test_an_inconclusive_run_takes_nothing_back() -> None:
    assert ids(keep_counting([run("a", 1), run("b", 2, outcome="inconclusive")])) == ["a"]
