"""Anything may happen to an upgrade, in any order, over the real database and REST."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from upgrade_fleet import NAMES, NEW, OLD, Fleet

from compatgate.service.app import Rooms
from compatgate.service.changes.upgrades.repository import find_upgrade

SOAK = timedelta(hours=1)


class Story(RuleBasedStateMachine):
    """What people, tools and nodes do, and a model of what the policy asks for."""

    folder: Path
    open_gate: Callable[[Path], AbstractContextManager[Rooms]]
    client_of: Callable[[Rooms], FlaskClient]
    runs = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).runs += 1
        self.patch = pytest.MonkeyPatch()
        folder = self.folder / str(self.runs)
        folder.mkdir()
        self.opened = type(self).open_gate(folder)
        rooms = self.opened.__enter__()
        self.fleet = Fleet(rooms, type(self).client_of(rooms), self.patch)
        self.ana = self.fleet.who("ana", "read", "approve")

    @initialize(people=st.sampled_from([1, 2]), canary=st.booleans(), ready=st.booleans())
    def propose(self, people: int, canary: bool, ready: bool) -> None:
        policy = {"canary": {"require": canary, "suites": ["smoke"]}}
        self.fleet.set_policy(approvals=people, **policy)
        assert self.fleet.propose().status_code == 201
        self.waves = {
            one["number"]: tuple(n for n in NAMES if n in self.nodes_of(one["number"]))
            for one in self.fleet.show()["wave_list"]
        }
        self.people, self.canary = people, canary
        self.approved = self.passed = self.stopped = self.failed = self.ended = False
        self.holders: dict[int, str] = {}
        self.finished: dict[int, datetime] = {}
        if ready:  # else examples rarely come as far as a wave
            self.a_canary_ends("passed")
            self.ana_approves_or_takes_it_back()
            self.a_tool_asks(1, "argo", rolls=True)

    def nodes_of(self, wave: int) -> list[str]:
        with self.fleet.rooms.gate.database.reading() as session:
            keys = find_upgrade(session, "roll").waves[wave - 1].nodes
        return [key.partition("/")[2] for key in keys]

    def has(self, wave: int) -> bool:
        return all(self.fleet.drivers[name] == NEW for name in self.waves[wave])

    @rule()
    def ana_approves_or_takes_it_back(self) -> None:
        what = "retract" if self.approved else "approve"
        if self.fleet.act(what, self.ana).status_code == 200:
            self.approved = not self.approved

    @rule(outcome=st.sampled_from(["passed", "passed", "failed"]))
    def a_canary_ends(self, outcome: str) -> None:
        if self.passed or self.failed:
            return
        self.fleet.run_canary(outcome)
        self.passed, self.failed = outcome == "passed", outcome == "failed"

    @rule()
    def somebody_stops_or_resumes_it(self) -> None:
        what = "resume" if self.stopped else "stop"
        if self.fleet.act(what, reason="pager").status_code == 200:
            self.stopped = not self.stopped
        if self.stopped and not self.failed:
            assert "start" not in {self.fleet.ask(one)["answer"] for one in self.waves}

    @rule(minutes=st.sampled_from([61, 5, 90]))
    def time_passes(self, minutes: int) -> None:
        self.fleet.pass_time(minutes=minutes)
        self.fleet.report()

    @rule(
        wave=st.sampled_from([None, None, None, 1, 2]),
        asker=st.sampled_from(["argo", "argo", "flagger"]),
        rolls=st.sampled_from([True, True, False]),
        times=st.integers(1, 2),
    )
    def a_tool_asks(self, wave: int | None, asker: str, rolls: bool, times: int = 1) -> None:
        for _ in range(times):
            self.ask_once(wave, asker, rolls=rolls)

    def ask_once(self, wave: int | None, asker: str, *, rolls: bool) -> None:
        found = self.fleet.ask(wave, by=asker)
        if found["answer"] == "start":
            self.check_start(found["wave"], asker)
            self.holders[found["wave"]] = asker
            if rolls:
                self.fleet.pass_time(minutes=5)
                self.fleet.report(*self.waves[found["wave"]], driver=NEW)
                self.finished[found["wave"]] = self.fleet.now
        elif found["answer"] == "roll back":
            assert self.ended or self.failed

    def check_start(self, wave: int, asker: str) -> None:
        """Check what the policy asks for, without the gate's own words for it."""
        assert not self.stopped
        assert not self.ended
        assert self.people == 1 or self.approved
        assert not self.canary or self.passed
        for earlier in range(1, wave):
            assert self.has(earlier)
            assert self.fleet.now >= self.finished[earlier] + SOAK

    @precondition(lambda self: self.finished and not self.ended)
    @rule(kind=st.sampled_from(["canary", "lost", "early", "canary"]))
    def something_fails(self, kind: str) -> None:
        before = self.fleet.ask(dry_run="true")["answer"]
        if before in ("roll back", "done"):
            return
        self.fleet.pass_time(minutes=1)
        last = len(self.waves)
        self.fleet.ask(1)  # wave 1 is over: this starts nothing, and records its end
        if kind == "lost":
            self.fleet.report(self.waves[min(self.finished)][0], driver=OLD)
        elif kind == "early" and last not in self.holders:
            self.fleet.report(self.waves[last][0], driver=NEW)
        elif kind == "canary" and self.canary and not self.failed:
            self.fleet.run_canary("failed")
        else:
            return
        self.ended = True
        assert {self.fleet.ask(one)["answer"] for one in self.waves} == {"roll back"}

    @invariant()
    def nothing_starts_after_a_failure(self) -> None:
        if getattr(self, "ended", False):
            assert {self.fleet.ask(one)["answer"] for one in self.waves} == {"roll back"}

    def teardown(self) -> None:
        self.opened.__exit__(None, None, None)
        self.patch.undo()


def test_no_wave_starts_without_what_its_policy_asks_for_and_a_failure_stops_all(
    tmp_path: Path,
    open_gate: Callable[[Path], AbstractContextManager[Rooms]],
    client_of: Callable[[Rooms], FlaskClient],
) -> None:
    Story.folder = tmp_path
    Story.open_gate, Story.client_of = open_gate, client_of
    # Without shrinking: an example takes half a second.
    run_state_machine_as_test(
        Story,
        settings=settings(
            max_examples=14, stateful_step_count=12, deadline=None, phases=[Phase.generate]
        ),
    )
