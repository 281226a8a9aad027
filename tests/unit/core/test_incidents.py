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
    KnownIncident,
    Member,
    reconcile,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
LATER = NOW + 2 * FLAPPING


def drift(*names: str, level="warn", count=1, cause="driver") -> Condition:
    members = tuple(Member("drift", name, "drifts", count=count) for name in names)
    return Condition("drift", cause, level, "nodes drift", members)


def known(change: IncidentChange, before: KnownIncident | None = None, **fields) -> KnownIncident:
    """What is known after a change, as the repository stores it."""
    one = change.condition
    if one is None:
        assert before is not None
        return replace(before, state="ended", **fields)
    told = () if before is None or change.action == "open" else before.told
    names = frozenset((*told, *(member.name for member in one.members)))
    settled = before.settled if before is not None and change.action != "open" else {}
    after = KnownIncident(one.key, one.kind, one.level, change.state, change.episode, names)
    return replace(after, **{"settled": settled, **fields})


def survey(before: KnownIncident | None, *found: Condition, now=NOW, covered=KINDS):
    incidents = {before.key: before} if before else {}
    return reconcile(incidents, found, covered, now)


def test_every_kind_has_a_title():
    assert set(TITLES) == set(KINDS)


def test_a_new_condition_opens_an_incident_and_the_same_again_is_no_news():
    (opened,) = survey(None, drift("a", "b"))
    assert (opened.action, opened.episode) == ("open", 1)
    assert [member.name for member in opened.told] == ["a", "b"]
    (same,) = survey(known(opened), drift("a", "b"))
    assert (same.action, same.told) == ("refresh", ())


def test_another_member_is_news_and_one_that_comes_back_is_not():
    (opened,) = survey(None, drift("a", "b"))
    first = known(opened)
    (fewer,) = survey(first, drift("a"))
    second = known(fewer, first)
    (back,) = survey(second, drift("a", "b"))
    assert back.action == "refresh"
    (more,) = survey(second, drift("a", "c"))
    assert (more.action, [member.name for member in more.told]) == ("grow", ["c"])


def test_what_becomes_worse_is_news_for_all_members():
    (opened,) = survey(None, drift("a"))
    (worse,) = survey(known(opened), drift("a", level="fail"))
    assert (worse.action, [member.name for member in worse.told]) == ("grow", ["a"])
    (better,) = survey(known(worse), drift("a"))
    assert better.action == "refresh"


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


def test_what_was_resolved_stays_away_until_it_happens_again():
    (opened,) = survey(None, drift("a", count=3))
    resolved = replace(known(opened), state="resolved", settled={"a": 3})
    (same,) = survey(resolved, drift("a", count=3))
    assert (same.action, same.state, same.told) == ("refresh", "resolved", ())
    assert survey(resolved, drift("a", count=2))[0].state == "resolved"
    for again in (drift("a", count=4), drift("a", "b"), drift("a", level="fail", count=3)):
        (change,) = survey(resolved, again)
        assert (change.action, change.state, change.episode) == ("open", "open", 2)
    (gone,) = survey(resolved)
    ended = known(gone, resolved, ended_at=NOW)
    (back,) = survey(ended, drift("a"), now=NOW + timedelta(minutes=1))
    assert (back.action, back.episode) == ("open", 2)


@given(st.lists(st.sets(st.sampled_from("abcd")), max_size=12))
def test_no_member_is_told_twice_in_an_episode(surveys):
    before: KnownIncident | None = None
    told: set[tuple[int, str]] = set()
    for number, names in enumerate(surveys):
        now = NOW + timedelta(minutes=number)
        for change in survey(before, *([drift(*sorted(names))] if names else []), now=now):
            news = {(change.episode, member.name) for member in change.told}
            assert not news & told
            told |= news
            before = known(change, before, ended_at=now if change.condition is None else None)
