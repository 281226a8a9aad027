"""Policies and match rules in words."""

from __future__ import annotations

import pytest

from compatgate.documents.specs import CanarySpec, MatchSpec, PolicySpec
from compatgate.service.matrix.documents.policy_words import describe_match, describe_policy


def test_a_policy_that_asks_for_everything_says_so():
    canary = CanarySpec(True, "14d", ("smoke", "dl-core"), True, ("soak",), "automatic", "revoke")
    said = " ".join(describe_policy(PolicySpec("enforce", True, canary, "fail")))
    for part in (
        "Failing stacks are denied.",
        "must match an entry",
        "passed suites smoke, dl-core on staging within the last 14d",
        "suite soak must also have passed",
        "blessed automatically",
        "the entry is revoked",
        "outside a container count",
        "Undecided stacks are stopped",
    ):
        assert part in said


@pytest.mark.parametrize("mode", ["warn", "audit"])
def test_only_enforce_denies(mode):
    said = describe_policy(PolicySpec(mode))
    assert said[0].startswith("Nothing is denied")
    assert not any("Undecided stacks" in sentence for sentence in said)


def test_match_rules_are_told_together_because_all_must_hold():
    (by_name,) = describe_match(MatchSpec())
    assert by_name.endswith("unless its namespace or node selection excludes the target.")
    both = describe_match(MatchSpec(("ml-*", "train"), {"gpu": "A100"}))
    assert both[1] == (
        "Otherwise an object in a namespace like ml-* or train and that requests nodes with"
        " gpu=A100."
    )


def test_that_stated_stacks_do_not_count_is_told():
    said = " ".join(describe_policy(PolicySpec(stated_stacks="ignore")))
    assert "Stacks stated by pods do not count" in said
    assert "stated by pods" not in " ".join(describe_policy(PolicySpec()))


def test_strictness_about_entries_is_told():
    said = " ".join(describe_policy(PolicySpec(require_entry=True, entries="strict")))
    assert "only if the entry names every GPU package" in said
