"""The state machine of upgrades: what each wave waits for, and what ends it for all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from compatgate.core.upgrade_state import (
    LEASE,
    Comparison,
    Knowledge,
    Need,
    NodeState,
    Upgrade,
    Wave,
)
from compatgate.core.upgrades import LONGEST_POLL_S, apply, decide, notice, take_wave

T0 = datetime(2027, 3, 1, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)
OLD, NEW = "535.183.01", "580.95.05"
NODES = ("n1", "n2", "n3", "n4")


def make_upgrade(**given: object) -> Upgrade:
    waves = (
        Wave(1, ("p",), ("n1",)),
        Wave(2, ("p",), ("n2",)),
        Wave(3, ("q",), ("n3", "n4")),
    )
    made = Upgrade("roll", "prod", NEW, 3600, "rolling", waves, health=False)
    return replace(made, **given)


def see(*upgraded: str, now: datetime = T0, since: datetime = T0, **given: object) -> Knowledge:
    nodes = {n: NodeState(NEW if n in upgraded else OLD, n in upgraded, since) for n in NODES}
    return replace(Knowledge(now, nodes=nodes), **given)


def after_first(now: datetime) -> tuple[Upgrade, Knowledge]:
    """The first wave finished at T0."""
    first, *rest = make_upgrade().waves
    done = replace(first, started=T0 - HOUR, finished=T0, holder="argo", held_until=T0)
    return make_upgrade(waves=(done, *rest)), see("n1", now=now)


FAILED = Need("run run_1 of suite smoke failed", ("q",), failed="run_1")


def test_the_first_wave_starts_when_nothing_is_owed() -> None:
    found = decide(make_upgrade(state="proposed"), see(), 1)
    assert (found.answer, found.phase) == ("start", "proposed")


def test_a_later_wave_waits_for_the_one_before_and_names_its_nodes() -> None:
    found = decide(make_upgrade(), see(), 2)
    assert found.answer == "wait"
    assert "wave 1 has not started: 1 of 1 nodes do not report driver 580.95.05 (n1)" in (
        found.reasons
    )


def test_the_soak_of_the_wave_before_must_have_elapsed() -> None:
    upgrade, known = after_first(T0 + timedelta(minutes=59))
    found = decide(upgrade, known, 2)
    assert (found.answer, found.phase, found.retry_after) == ("wait", "soak", 61)
    assert found.reasons == ("wave 1 soaks until 2027-03-01 10:00Z",)
    assert decide(upgrade, replace(known, now=T0 + HOUR), 2).answer == "start"


def test_who_waits_for_hours_still_asks_every_few_minutes_as_polls_notice_triggers() -> None:
    upgrade, known = after_first(T0)
    assert decide(upgrade, known, 2).retry_after == LONGEST_POLL_S


def test_a_node_that_fell_silent_after_its_wave_holds_the_next_one_and_is_never_done() -> None:
    upgrade, known = after_first(T0 + HOUR)
    silent = replace(known, nodes={n: s for n, s in known.nodes.items() if n != "n1"})
    stale = replace(known, nodes={**known.nodes, "n1": NodeState(NEW, True, T0, stale=True)})
    for seen in (silent, stale):
        for wave in (1, 2):
            found = decide(upgrade, seen, wave)
            assert (found.answer, *found.reasons) == (
                "wait",
                "n1 of wave 1: no report for a day or more",
            )


def test_a_stale_report_of_the_driver_does_not_finish_a_wave() -> None:
    upgrade = take_wave(make_upgrade(), 1, "argo", T0)
    stale = see("n1", nodes={"n1": NodeState(NEW, True, T0, stale=True)})
    assert notice(upgrade, stale) == ()
    assert [e.action for e in notice(upgrade, see("n1"))] == ["finish"]


def test_a_wave_has_finished_when_the_last_of_its_nodes_took_the_driver() -> None:
    upgrade = take_wave(make_upgrade(), 1, "argo", T0)
    late = see("n1", now=T0 + 3 * HOUR, since=T0 + 2 * HOUR)
    early = see("n1", now=T0 + 3 * HOUR, since=T0 - HOUR)
    assert [event.at for event in notice(upgrade, late)] == [T0 + 2 * HOUR]
    assert [event.at for event in notice(upgrade, early)] == [T0]


def test_required_evidence_holds_the_waves_of_its_pools_and_advice_holds_none() -> None:
    owed = Need("suite smoke is owed", ("p",))
    found = decide(make_upgrade(), see(needs=(owed,)), 1)
    assert (found.answer, found.phase, found.reasons) == (
        "wait",
        "canary",
        ("suite smoke is owed",),
    )
    assert decide(make_upgrade(), see(needs=(replace(owed, pools=("q",)),)), 1).answer == "start"
    assert decide(make_upgrade(), see(needs=(replace(owed, required=False),)), 1).answer == "start"


def test_nodes_of_a_started_wave_that_report_while_it_is_held_are_not_drift() -> None:
    begun = take_wave(make_upgrade(), 1, "argo", T0)
    known = see("n1", now=T0 + HOUR, since=T0 + HOUR / 2, approvals=("one more approval",))
    assert [event.action for event in notice(begun, known)] == ["finish"]
    assert decide(begun, known, 2).answer == "wait"


def test_withdrawn_approvals_and_missing_evidence_hold_a_wave_that_has_started() -> None:
    begun = take_wave(make_upgrade(), 1, "argo", T0)
    for missing in ({"approvals": ("one more approval",)}, {"needs": (Need("owed", ("p",)),)}):
        assert decide(begun, see(**missing), 1, "argo").answer == "wait"
    assert decide(begun, see(), 1, "argo").answer == "start"


def test_a_wave_belongs_to_whoever_started_it_until_the_lease_ends() -> None:
    begun = take_wave(make_upgrade(), 1, "argo", T0)
    assert decide(begun, see(), 1, "argo").answer == "start"
    for other in ("flagger", ""):
        found = decide(begun, see(), 1, other)
        assert (found.answer, found.reasons) == (
            "wait",
            ("argo rolls wave 1, until 2027-03-01 09:15Z at least",),
        )
    later = see(now=T0 + LEASE)
    assert decide(begun, later, 1, "flagger").answer == "start"
    taken = take_wave(begun, 1, "flagger", T0 + LEASE)
    assert taken.waves[0].started == T0
    assert decide(taken, later, 1, "argo").answer == "wait"


def test_what_could_not_be_read_holds_every_wave() -> None:
    assert decide(make_upgrade(), see(problems=("the facts",)), 1).answer == "wait"


@pytest.mark.parametrize(
    "cause", [{"needs": (FAILED,)}, {"rates": (Comparison("Xid", 4, 5760.0, 2, 8.0, "h"),)}]
)
def test_a_trigger_answers_roll_back_for_every_wave_and_stays(cause: dict[str, object]) -> None:
    upgrade, known = after_first(T0 + HOUR)
    known = replace(known, **cause)
    assert {decide(upgrade, known, n).answer for n in (1, 2, 3)} == {"roll back"}
    upgrade = apply(upgrade, notice(upgrade, known))
    assert upgrade.state == "rolled back"
    assert decide(upgrade, see("n1", now=T0 + 9 * HOUR), 2).answer == "roll back"


@pytest.mark.parametrize(
    "failed", [replace(FAILED, required=False), replace(FAILED, pools=("elsewhere",))]
)
def test_a_failed_run_that_is_advice_or_of_another_pool_rolls_nothing_back(failed: Need) -> None:
    upgrade, known = after_first(T0 + HOUR)
    known = replace(known, needs=(failed,))
    assert decide(upgrade, known, 2).answer == "start"
    assert notice(upgrade, known) == ()


def test_a_failure_before_the_start_holds_every_wave_until_it_is_mended() -> None:
    upgrade = make_upgrade(state="proposed")
    found = decide(upgrade, see(needs=(FAILED,)), 1)
    assert (found.answer, found.reasons) == ("wait", (FAILED.text,))
    assert notice(upgrade, see(needs=(FAILED,))) == ()
    assert decide(upgrade, see(), 1).answer == "start"


def test_a_rate_that_chance_explains_is_no_trigger_and_one_without_a_before_asks_for_a_person() -> (
    None
):
    upgrade, known = after_first(T0 + HOUR)
    usual = Comparison("Xid errors", 40, 5760.0, 1, 100.0, "node-hours")
    assert decide(upgrade, replace(known, rates=(usual,)), 2).answer == "start"
    new = replace(usual, before=0, before_of=0.0)
    found = decide(upgrade, replace(known, rates=(new,)), 2)
    assert found.answer == "wait"
    assert "no earlier rate" in found.reasons[0]
    few = replace(new, least=2)
    assert decide(upgrade, replace(known, rates=(few,)), 2).answer == "start"
    quiet = replace(new, after=0)
    assert decide(upgrade, replace(known, rates=(quiet,)), 2).answer == "start"


@pytest.mark.parametrize(
    ("before", "before_of", "after", "after_of", "chance"),
    [
        (0, 99.0, 1, 1.0, 0.01),  # one event falls into the last hundredth
        (1, 1.0, 1, 1.0, 0.75),
        (0, 1.0, 2, 1.0, 0.25),
        (5, 1.0, 0, 1.0, 1.0),
        (0, 0.0, 3, 1.0, 1.0),
    ],
)
def test_the_chance_of_so_many_events_is_the_binomial_tail(
    before: int, before_of: float, after: int, after_of: float, chance: float
) -> None:
    found = Comparison("Xid", before, before_of, after, after_of, "h").chance
    assert found == pytest.approx(chance)


def test_a_node_that_loses_the_driver_after_its_wave_is_a_trigger() -> None:
    upgrade, known = after_first(T0 + HOUR)
    back = replace(known, nodes={**known.nodes, "n1": NodeState(OLD, False, T0)})
    found = decide(upgrade, back, 2)
    assert (found.answer, *found.reasons) == (
        "roll back",
        "drift: n1 of wave 1: driver 535.183.01 again",
    )
    left = replace(upgrade.waves[0], left_out=frozenset({"n1"}))
    upgrade = replace(upgrade, waves=(left, *upgrade.waves[1:]))
    assert decide(upgrade, back, 2).answer == "start"


def test_a_wave_that_takes_the_driver_before_it_may_is_a_trigger_once_the_upgrade_has_begun() -> (
    None
):
    begun = take_wave(make_upgrade(), 1, "argo", T0)
    found = decide(begun, see("n2", now=T0 + HOUR, since=T0 + HOUR), 1)
    assert (found.answer, *found.reasons) == (
        "roll back",
        "drift: n2 got the new driver before wave 2 started",
    )
    before = decide(make_upgrade(state="proposed"), see("n2"), 1)
    assert before.answer == "wait"
    assert before.reasons[0].startswith("n2 got the new driver before wave 2 started: reinstall")
    late = see("n2", now=T0 + HOUR, since=T0 - HOUR)  # the report came late, the driver had not
    assert notice(begun, late) == ()


def test_nodes_that_had_the_driver_before_are_not_early() -> None:
    waves = make_upgrade().waves
    upgrade = make_upgrade(waves=(*waves[:2], replace(waves[2], had=frozenset({"n3"}))))
    assert decide(upgrade, see("n3"), 1).answer == "start"
    assert decide(upgrade, see("n4"), 1).answer == "wait"


def test_a_wave_whose_nodes_are_all_left_out_is_done_and_the_next_one_follows() -> None:
    first, second, third = make_upgrade().waves
    empty = replace(second, left_out=frozenset({"n2"}))
    done = replace(first, started=T0 - HOUR, finished=T0)
    upgrade = make_upgrade(waves=(done, empty, third))
    known = see("n1", now=T0 + HOUR / 2)
    found = decide(upgrade, known, 2)
    assert (found.answer, found.reasons) == ("done", ("every node of wave 2 is excluded",))
    assert decide(upgrade, known, 3).reasons == ("wave 1 soaks until 2027-03-01 10:00Z",)
    assert decide(upgrade, replace(known, now=T0 + HOUR), 3).answer == "start"
    none = make_upgrade(
        waves=tuple(replace(w, left_out=frozenset(w.nodes)) for w in upgrade.waves[1:])
    )
    assert (decide(none, see()).answer, notice(none, see())) == ("wait", ())


def test_nodes_that_are_left_out_are_not_waited_for() -> None:
    third = replace(make_upgrade().waves[2], left_out=frozenset({"n4"}))
    upgrade = make_upgrade(waves=(*make_upgrade().waves[:2], third))
    begun = take_wave(upgrade, 3, "argo", T0)
    assert [(e.action, e.wave) for e in notice(begun, see("n3"))] == [("finish", 3)]


def test_a_stopped_upgrade_waits_with_the_reason_and_still_notices_triggers() -> None:
    upgrade, known = after_first(T0 + HOUR)
    upgrade = replace(upgrade, state="stopped", why="alice stopped the upgrade: pager")
    assert decide(upgrade, known, 2).reasons == ("alice stopped the upgrade: pager",)
    assert decide(upgrade, replace(known, needs=(FAILED,)), 1).answer == "roll back"


def test_the_upgrade_is_done_after_the_soak_of_its_last_wave() -> None:
    waves = tuple(replace(w, started=T0 - HOUR, finished=T0) for w in make_upgrade().waves)
    upgrade, known = make_upgrade(waves=waves), see(*NODES, now=T0 + HOUR / 2)
    assert (decide(upgrade, known).phase, notice(upgrade, known)) == ("soak", ())
    assert decide(upgrade, known).answer == "wait"
    silent = replace(known, now=T0 + HOUR, nodes={})
    assert notice(upgrade, silent) == ()
    upgrade = apply(upgrade, notice(upgrade, replace(known, now=T0 + HOUR)))
    assert (upgrade.state, decide(upgrade, known, 3).answer) == ("done", "done")


def test_an_upgrade_that_is_done_is_watched_for_a_while() -> None:
    waves = tuple(replace(w, started=T0 - HOUR, finished=T0) for w in make_upgrade().waves)
    done = make_upgrade(waves=waves, state="done", watched_until=T0 + 2 * HOUR)
    bad = see(*NODES, now=T0 + HOUR, needs=(FAILED,))
    assert decide(done, bad, 3).answer == "roll back"
    assert apply(done, notice(done, bad)).state == "rolled back"
    assert decide(done, replace(bad, now=T0 + 2 * HOUR), 3).answer == "done"


def test_the_health_of_changed_nodes_is_awaited_unless_the_upgrade_goes_without() -> None:
    upgrade, known = after_first(T0 + HOUR)
    upgrade = replace(upgrade, health=True)
    for wave in (1, 2):
        found = decide(upgrade, known, wave)
        assert (found.answer, found.reasons) == (
            "wait",
            ("n1 of wave 1: no health report since the upgrade",),
        )
    healthy = {**known.nodes, "n1": replace(known.nodes["n1"], healthy=True)}
    assert decide(upgrade, replace(known, nodes=healthy), 2).answer == "start"
    assert Upgrade("u", "t", NEW, 0, "proposed", ()).health


class Rolling(RuleBasedStateMachine):
    """Anything may happen, in any order; tools ask, start waves and poll in between."""

    @initialize(soak=st.integers(0, 7200), ready=st.booleans(), fragile=st.booleans())
    def propose(self, soak: int, ready: bool, fragile: bool) -> None:
        self.upgrade = make_upgrade(state="proposed", soak_s=soak)
        self.now = T0
        self.fragile = fragile
        self.approvals: tuple[str, ...] = () if ready else ("another person must approve",)
        self.owed = dict.fromkeys("pq", not ready)
        self.failed: str | None = None
        self.alarm = False
        self.injected = False
        self.drivers = dict.fromkeys(NODES, (OLD, T0))

    @property
    def known(self) -> Knowledge:
        needs = [
            Need(f"suite smoke on {pool}", (pool,)) for pool, owed in self.owed.items() if owed
        ]
        if self.failed:
            needs.append(Need("run_1 failed", (self.failed,), failed="run_1"))
        rate = Comparison("Xid", 1, 900.0, 5 if self.alarm else 0, 1.0, "node-hours")
        return Knowledge(
            self.now,
            self.approvals,
            tuple(needs),
            {n: NodeState(d, d == NEW, at) for n, (d, at) in self.drivers.items()},
            (rate,),
        )

    @rule(
        approved=st.sampled_from([True, True, True, False]),
        owed=st.sampled_from(["", "", "", "p", "q"]),
        minutes=st.integers(1, 90),
    )
    def the_world_changes(self, approved: bool, owed: str, minutes: int) -> None:
        self.approvals = () if approved else ("another person must approve",)
        self.owed = {pool: pool in owed for pool in "pq"}
        self.now += timedelta(minutes=minutes)

    @rule(stops=st.booleans())
    def somebody_resumes_or_stops_it(self, stops: bool) -> None:
        if self.upgrade.state == "stopped":
            state = "rolling" if self.upgrade.began else "proposed"
            self.upgrade = replace(self.upgrade, state=state)
        elif self.upgrade.state == "rolling" and stops:
            self.upgrade = replace(self.upgrade, state="stopped", why="alice")

    @rule(
        number=st.sampled_from([None, None, None, 2, 3]),
        asker=st.sampled_from(["argo", "argo", "flagger"]),
        rolls=st.sampled_from([True, True, False]),
        minutes=st.integers(0, 130),
    )
    def a_tool_starts_a_wave(
        self, number: int | None, asker: str, rolls: bool, minutes: int
    ) -> None:
        self.now += timedelta(minutes=minutes)
        self.poll()
        found = decide(self.upgrade, self.known, number, asker)
        if found.answer == "start" and found.wave is not None:
            wave = self.upgrade.waves[found.wave - 1]
            assert wave.holder in (None, asker) or self.now >= wave.started + LEASE
            self.check_start(found.wave, new=wave.started is None)
            self.upgrade = take_wave(self.upgrade, found.wave, asker, self.now)
            self.now += timedelta(seconds=1)
            if rolls:
                self.drivers |= dict.fromkeys(wave.nodes, (NEW, self.now))
                self.poll()

    def check_start(self, number: int, *, new: bool) -> None:
        """Check what the policy asks for, without the machine's own words for it."""
        wave = self.upgrade.waves[number - 1]
        assert self.upgrade.state in ("proposed", "rolling")
        assert not self.approvals
        assert not self.injected
        assert not any(self.owed[pool] for pool in wave.pools)
        for earlier in self.upgrade.waves[: number - 1]:
            assert all(self.drivers[node][0] == NEW for node in earlier.nodes)
        if number > 1:
            finished = self.upgrade.waves[number - 2].finished
            assert finished is not None
            assert self.now - finished >= timedelta(seconds=self.upgrade.soak_s)

    @precondition(lambda self: self.fragile and self.upgrade.state in ("rolling", "stopped"))
    @rule(kind=st.sampled_from(["canary", "rate", "lost", "early"]), pool=st.sampled_from("pq"))
    def something_fails(self, kind: str, pool: str) -> None:
        waves = self.upgrade.waves
        if kind == "canary":
            self.failed = pool
        elif kind == "rate":
            self.alarm = True
        elif kind == "lost" and waves[0].finished:
            self.drivers["n1"] = (OLD, self.now)
        elif kind == "early" and not waves[1].finished and not waves[2].started:
            self.drivers["n4"] = (NEW, self.now)
        else:
            return
        self.injected = True
        assert {decide(self.upgrade, self.known, n).answer for n in (1, 2, 3)} == {"roll back"}
        self.poll()
        assert self.upgrade.state == "rolled back"

    @rule()
    def the_failure_goes_away(self) -> None:
        self.failed, self.alarm = None, False
        if self.injected:
            self.drivers |= dict.fromkeys(NODES, (OLD, self.now))

    @rule()
    def poll(self) -> None:
        self.upgrade = apply(self.upgrade, notice(self.upgrade, self.known))

    @invariant()
    def nothing_starts_after_a_failure(self) -> None:
        if self.injected:
            answers = {decide(self.upgrade, self.known, n).answer for n in (1, 2, 3)}
            assert answers == {"roll back"}


Rolling.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestNoWaveStartsWithoutWhatItsPolicyAsksFor = Rolling.TestCase
