"""What a survey means for the incidents that were known before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from compatgate.core.incidents import (
    FLAPPING,
    KINDS,
    TITLES,
    Condition,
    IncidentChange,
    IncidentMember,
    KnownIncident,
    reconcile,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
LATER = NOW + 2 * FLAPPING


def drift(*names: str, level="warn", count=1, cause="driver") -> Condition:
    members = tuple(IncidentMember("drift", name, "drifts", count=count) for name in names)
    return Condition("drift", cause, level, "nodes drift", members)


def known(change: IncidentChange, before: KnownIncident | None = None, **fields) -> KnownIncident:
    """What is known after a change, as the repository stores it."""
    one = change.condition
    if one is None:
        assert before is not None
        return replace(before, state="ended", **fields)
    after = KnownIncident(one.key, one.kind, one.level, change.state, change.episode)
    return replace(after, **fields)


def survey(before: KnownIncident | None, *found: Condition, now=NOW, covered=KINDS):
    incidents = {before.key: before} if before else {}
    return reconcile(incidents, found, covered, now)


def test_every_kind_has_a_title():
    assert set(TITLES) == set(KINDS)


def test_a_new_condition_opens_an_incident_and_the_same_again_continues_it():
    (opened,) = survey(None, drift("a", "b"))
    assert (opened.action, opened.episode) == ("open", 1)
    for again in (drift("a", "b"), drift("a", "c"), drift("a", level="fail")):
        (same,) = survey(known(opened), again)
        assert (same.action, same.state, same.episode) == ("refresh", "open", 1)
        assert same.condition == again


def test_a_condition_that_is_gone_ends_only_if_it_was_looked_for():
    (opened,) = survey(None, drift("a"))
    assert survey(known(opened), covered=()) == []
    (ended,) = survey(known(opened))
    assert (ended.action, ended.state) == ("end", "ended")


def test_what_flaps_goes_on_and_what_comes_back_later_happens_again():
    (opened,) = survey(None, drift("a"))
    (gone,) = survey(known(opened))
    ended = known(gone, known(opened), ended_at=NOW)
    (soon,) = survey(ended, drift("a"), now=NOW + timedelta(minutes=1))
    assert (soon.action, soon.state, soon.episode) == ("refresh", "open", 1)
    (later,) = survey(ended, drift("a"), now=LATER)
    assert (later.action, later.episode) == ("open", 2)


@given(st.lists(st.sets(st.sampled_from("abcd")), max_size=12))
def test_an_incident_is_open_exactly_while_its_condition_holds(surveys):
    before: KnownIncident | None = None
    for number, names in enumerate(surveys):
        now = NOW + timedelta(minutes=number)
        for change in survey(before, *([drift(*sorted(names))] if names else []), now=now):
            before = known(change, before, ended_at=now if change.condition is None else None)
        assert (before is not None and before.state == "open") == bool(names)
        assert before is None or before.episode == 1
