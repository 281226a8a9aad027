"""One line of the map: a target with its entries, an entry on its targets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compatgate.documents.specs import Document
from compatgate.documents.specs import decode as read
from compatgate.service.gate.advice.pairs import FitCache, list_entry_pairs, list_target_pairs
from compatgate.service.matrix.snapshots.snapshot import Snapshot, build


def _document(kind: str, name: str, spec: str) -> tuple[str, str, Document, int]:
    text = f'{{"apiVersion": "compatgate.dev/v1", "kind": "{kind}", "metadata": {{"name": "{name}"}}, "spec": {spec}}}'  # noqa: E501
    return kind, name, read(kind, text), 1


def _target(name: str, gpu: str = "L4", driver: str = "580.95.05", more: str = ""):
    pool = f'{{"name": "p", "gpu": "{gpu}", "driver": "{driver}"{more}}}'
    return _document("Target", name, f'{{"pools": [{pool}]}}')


def _entry(name: str, status: str, targets: str, more: str = ""):
    components = '{"cuda": "12.8.*", "torch": "2.9.*"}'
    spec = f'{{"targets": [{targets}], "components": {components}, "status": "{status}"{more}}}'
    return _document("Entry", name, spec)


@pytest.fixture
def made(facts) -> Callable[..., Snapshot]:
    return lambda *versions: build(versions, facts, 1)


def test_a_targets_entries_are_the_blessed_ones_first_in_natural_order(made, facts, now):
    snapshot = made(
        _target("prod"),
        _entry("e10", "blessed", '"prod"'),
        _entry("e9", "blessed", '"*"'),
        _entry("a", "candidate", '"prod"'),
        _entry("elsewhere", "blessed", '"other"'),
    )
    pairs, total = list_target_pairs(snapshot, "prod", FitCache(facts), now, 10)
    assert [(pair.entry.name, pair.status) for pair in pairs] == [
        ("e9", "blessed"),
        ("e10", "blessed"),
        ("a", "candidate"),
    ]
    few, total = list_target_pairs(snapshot, "prod", FitCache(facts), now, 1)
    assert (len(few), total) == (1, 3)


def test_a_target_that_cannot_be_used_has_entries_of_which_nothing_is_known(made, facts, now):
    snapshot = made(_target("prod", gpu="B999"), _entry("e", "blessed", '"prod"'))
    pairs, total = list_target_pairs(snapshot, "prod", FitCache(facts), now, 10)
    assert [(pair.status, total) for pair in pairs] == [("unknown", 1)]
    assert "B999" in pairs[0].why


def test_an_entry_stands_on_each_target_that_it_is_for(made, facts, now):
    only = ', "gpus": ["L4"]'
    snapshot = made(
        _target("t10"),
        _target("t9", driver="525.60.13"),
        _target("a100", gpu="A100-SXM4-80GB"),
        _entry("e", "blessed", '"*"', only),
    )
    pairs, total = list_entry_pairs(snapshot, snapshot.entries["e"], FitCache(facts), now, 10)
    assert [pair.target for pair in pairs] == ["t9", "t10"]
    assert total == 3
    assert pairs[1].status == "blessed"


def test_pools_that_differ_below_the_driver_have_their_own_outcome(made, facts, now):
    node = ', "node": {{"kernel-modules": "{}"}}'
    snapshot = made(
        _target("open", gpu="V100-SXM2-32GB", more=node.format("open")),
        _target("own", gpu="V100-SXM2-32GB", more=node.format("proprietary")),
        _entry("e", "blessed", '"*"'),
    )
    fits, entry = FitCache(facts), snapshot.entries["e"]
    pools = {name: target.pools[0] for name, target in snapshot.targets.items()}
    said = {name: fits.evaluate(entry, pool, now) for name, pool in pools.items()}
    assert said["open"] == FitCache(facts).evaluate(entry, pools["open"], now)
    assert said["own"] == FitCache(facts).evaluate(entry, pools["own"], now)
    assert "open kernel modules" in said["open"].why
    assert said["open"] != said["own"]


def test_entries_with_equal_components_have_the_outcome_of_each_alone(made, facts, now):
    targets = [_target("l4"), _target("old", driver="470.256.02"), _target("v", "V100-SXM2-32GB")]
    entries = [_entry(f"e{n}", "blessed", '"*"') for n in range(3)]
    snapshot = made(*targets, *entries)
    fits = FitCache(facts)
    for entry in snapshot.entries.values():
        for target in snapshot.targets.values():
            alone = FitCache(facts).evaluate(entry, target.pools[0], now)
            assert fits.evaluate(entry, target.pools[0], now) == alone
