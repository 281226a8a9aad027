from itertools import pairwise

from compatgate.canary.run import VERIFICATION_S, EntryVerification, select_due

DAY = 86400


def shown(n, finished=0, **also):
    return EntryVerification(
        run=f"run_{n}", entry=f"e{n}", suite="smoke", sku="L4", finished=finished, **also
    )


def test_everything_is_due_within_the_interval_and_nothing_before_four_fifths_of_it():
    many = [shown(n) for n in range(200)]
    assert select_due(many, int(VERIFICATION_S * 0.8) - 1) == []
    assert len(select_due(many, VERIFICATION_S)) == 200


def test_what_was_blessed_in_one_day_is_verified_over_several():
    many = [shown(n) for n in range(200)]
    per_day = [len(select_due(many, day * DAY)) for day in range(24, 31)]
    gained = [b - a for a, b in pairwise(per_day)]
    assert max(gained) < 60


def test_the_same_is_due_at_the_same_time_always():
    one = [shown(1)]
    first = next(now for now in range(0, VERIFICATION_S + 1, 3600) if select_due(one, now))
    assert select_due(one, first) == one
    assert select_due(one, first - 3600) == []


def test_what_is_underway_is_not_asked_for_twice():
    assert select_due([shown(1, underway=True)], VERIFICATION_S) == []


def test_the_longest_waiting_is_first():
    assert [item.run for item in select_due([shown(2, 50), shown(1, 10)], 2 * VERIFICATION_S)] == [
        "run_1",
        "run_2",
    ]


def test_what_showed_nothing_is_tried_again_after_a_day():
    tried = shown(1, tried=VERIFICATION_S)
    assert select_due([tried], VERIFICATION_S + DAY - 1) == []
    assert select_due([tried], VERIFICATION_S + DAY) == [tried]
