"""What ``packages: enforce`` would stop, from decisions and entries that are stored."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from compatgate.core.compare.packages import PackagesTarget
from compatgate.errors import NotFound
from compatgate.kit import clock
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.changes.comparison.service import report_on_packages

Body = Callable[..., dict[str, Any]]
BASE = {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124"}
OPEN = {**BASE, "xformers": "0.0.99"}
AUDIT = {"packages": "audit"}


@pytest.fixture
def audited(rooms: Rooms, by: Authorship, target_body: Body) -> Rooms:
    """A gate with one target that audits packages, and one that enforces them."""
    rooms.matrix.create("Target", target_body("old", policy=AUDIT), by)
    rooms.matrix.create("Target", target_body("new"), by)
    return rooms


def _ask(rooms: Rooms, stack: dict[str, Any], target: str = "old", **more: Any) -> Any:
    body = {"target": target, "stack": stack, **more}
    return rooms.gate.decide(body, asked_by="ci", source="rest")


def _report(rooms: Rooms, **asked: Any) -> PackagesTarget:
    (found,) = report_on_packages(rooms.gate, **asked).targets
    return found


def test_an_open_package_is_counted_with_decisions_verdicts_and_times(audited: Rooms) -> None:
    given = [_ask(audited, OPEN), _ask(audited, OPEN), _ask(audited, BASE)]
    assert {verdict.allowed for verdict in given} == {True}
    found = _report(audited)
    (package,) = found.packages
    assert (found.target, found.decisions, found.stacks, found.stopped) == ("old", 3, 2, 2)
    assert (package.package, package.version, package.rules) == ("xformers", "0.0.99", ["CG410"])
    assert (package.decisions, package.stopped) == (2, 2)
    assert package.verdicts == [given[0].id]
    assert package.first
    assert package.last
    assert package.first < package.last


def test_every_way_to_settle_a_package_is_named(audited: Rooms) -> None:
    _ask(audited, OPEN)
    todo = "\n".join(_report(audited).packages[0].todo)
    assert "use xformers 0.0.35, the newest release with a record" in todo
    assert "compatgate facts measure xformers==0.0.99 --overlay xformers.yaml" in todo
    assert "xformers=0.0.99[sm_89]" in todo
    assert 'rules: [CG410], match: {components: {xformers: "==0.0.99"}}' in todo


def test_targets_that_enforce_and_what_ifs_are_not_looked_at(audited: Rooms) -> None:
    _ask(audited, OPEN, "new")
    _ask(audited, OPEN, set={"driver": "580.95.05"})
    found = _report(audited)
    assert (found.decisions, found.packages) == (0, [])
    assert report_on_packages(audited.gate, target="new").targets == []


def test_what_another_rule_denies_is_not_what_enforcing_stops(audited: Rooms) -> None:
    assert not _ask(audited, {**OPEN, "cudnn": "8.9.7+cu11"}).allowed
    found = _report(audited)
    assert (found.stopped, found.packages[0].decisions, found.packages[0].stopped) == (0, 1, 0)


def test_a_target_that_denies_nothing_is_not_stopped(
    rooms: Rooms, by: Authorship, target_body: Body
) -> None:
    rooms.matrix.create("Target", target_body("old", policy={**AUDIT, "mode": "warn"}), by)
    _ask(rooms, OPEN)
    found = _report(rooms)
    assert (found.mode, found.stopped, found.packages[0].decisions) == ("warn", 0, 1)


def test_what_was_settled_since_is_reported_no_more(audited: Rooms, by: Authorship) -> None:
    _ask(audited, OPEN)
    waiver = {
        "metadata": {"name": "until-measured"},
        "spec": {
            "rules": ["CG410"],
            "targets": ["old"],
            "owner": "ml",
            "reason": "to be measured",
            "expires": (clock.today() + timedelta(days=3)).isoformat(),
            "match": {"components": {"xformers": "==0.0.99"}},
        },
    }
    audited.matrix.create("Waiver", waiver, by)
    found = _report(audited)
    assert (found.decisions, found.stopped, found.packages) == (1, 0, [])


def test_an_entry_that_names_an_open_package_would_be_stopped(
    audited: Rooms, by: Authorship, entry_body: Body
) -> None:
    components = {"torch": "==2.4.1+cu124", "xformers": "==0.0.99"}
    audited.matrix.create("Entry", entry_body("ours", components=components), by)
    audited.matrix.create("Entry", entry_body("plain"), by)
    found = _report(audited)
    assert (found.entries, found.stopped_entries) == (2, ["ours"])
    (package,) = found.packages
    assert (package.entries, package.decisions, package.first) == (["ours"], 0, None)


def test_only_decisions_since_a_moment_and_so_many_are_looked_at(audited: Rooms) -> None:
    for _ in range(3):
        _ask(audited, OPEN)
    some = report_on_packages(audited.gate, decisions=2)
    assert (some.targets[0].decisions, some.complete) == (2, False)
    later = report_on_packages(audited.gate, since=clock.now())
    assert (later.targets[0].decisions, later.complete) == (0, True)


def test_an_unknown_target_is_named_with_the_near_one(audited: Rooms) -> None:
    with pytest.raises(NotFound, match="target 'odd' does not exist"):
        report_on_packages(audited.gate, target="odd")
