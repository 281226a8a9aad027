"""Drift for the first page: gone through once a minute, not once a visitor."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from grouped_nodes import group_views

from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.service.nodes import fleet
from compatgate.service.nodes.fleet import SECONDS, DriftGroup, RecentDrift

OTHER = {"driver": "550.54.15", "gpus": [{"gpu": "A100-SXM4-80GB"}]}


def test_it_is_found_out_again_after_a_minute_a_report_or_another_matrix(
    seen: Any, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, times = [100.0], []
    monkeypatch.setattr(fleet.time, "monotonic", lambda: now[0])
    snapshots: Any = SimpleNamespace(current=lambda: snapshot)

    def find() -> list[DriftGroup]:
        times.append(now[0])
        return group_views([seen("n", probe=OTHER)], snapshot)

    asked = RecentDrift(find, snapshots)
    assert [one.nodes for one in asked.drifted()] == [1]
    now[0] += SECONDS - 1
    asked.drifted()
    assert len(times) == 1
    now[0] += 2
    asked.drifted()
    assert len(times) == 2
    asked.forget()
    asked.drifted()
    assert len(times) == 3
    other = Snapshot(**{n: getattr(snapshot, n) for n in snapshot.__struct_fields__})
    snapshots.current = lambda: other
    asked.drifted()
    assert len(times) == 4


def test_what_takes_long_is_not_gone_through_for_each_report(
    seen: Any, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, times = [100.0], []
    monkeypatch.setattr(fleet.time, "monotonic", lambda: now[0])

    def find() -> list[DriftGroup]:
        times.append(now[0])
        now[0] += 0.5
        return group_views([seen("n", probe=OTHER)], snapshot)

    snapshots: Any = SimpleNamespace(current=lambda: snapshot)
    asked = RecentDrift(find, snapshots)
    asked.drifted()
    for _ in range(9):  # one report a second
        asked.forget()
        now[0] += 1
        asked.drifted()
    assert len(times) == 1
    now[0] += 2
    asked.drifted()
    assert len(times) == 2
