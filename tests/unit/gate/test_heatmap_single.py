"""One line of the map: a target with its entries, an entry on its targets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compatgate.documents.specs import Document
from compatgate.documents.specs import decode as read
from compatgate.service.gate.snapshot import Snapshot, build
from compatgate.service.matrix.pairs import FitCache, list_entry_pairs, list_target_pairs


def _document(kind: str, name: str, spec: str) -> tuple[str, str, Document, int]:
    text = f'{{"apiVersion": "compatgate.dev/v1", "kind": "{kind}", "metadata": {{"name": "{name}"}}, "spec": {spec}}}'  # noqa: E501
    return kind, name, read(kind, text), 1


def _target(name: str, gpu: str = "L4", driver: str = "580.95.05"):
    pool = f'{{"name": "p", "gpu": "{gpu}", "driver": "{driver}"}}'
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
