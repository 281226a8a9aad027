"""The id of a verdict, and how long the verdict holds."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from compatgate.core.matrix import Evidence, Matrix, Waiver
from compatgate.core.request import CanaryPolicy, Policy
from compatgate.core.versions import parse_version

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)

GOOD = "driver=580.65.06,gpu=A100-SXM4-80GB,name=good"
OLD = "driver=535.183.01,gpu=A100-SXM4-80GB,name=old"
TOO_OLD = "driver=470.256.02,gpu=A100-SXM4-80GB,name=too-old"
OTHER = "driver=580.65.06,gpu=L4,name=other"
UNKNOWN = "driver=999.10.01,gpu=A100-SXM4-80GB,name=unknown"
STACK = "cuda=12.4,arch=sm_80"


def waiver(*rules, **fields):
    fields = {
        "name": "legacy-ocr",
        "targets": ("t",),
        "owner": "team-ocr",
        "reason": "until the reader is rebuilt",
        "expires": "2027-01-31",
    } | fields
    return Waiver(rules=rules, **fields)


# --- the id ----------------------------------------------------------------------------------


def test_the_same_question_has_the_same_id(ask):
    assert ask(OLD, STACK).id == ask(OLD, STACK).id
    assert ask(OLD, STACK).id.startswith("vd_")


@pytest.mark.parametrize(
    "later", [timedelta(milliseconds=1), timedelta(hours=3), timedelta(days=9)]
)
def test_the_id_does_not_depend_on_the_time_of_asking(later, ask):
    one, other = ask(OLD, STACK), ask(OLD, STACK, now=NOW + later)
    assert one.decided_at != other.decided_at
    assert one.id == other.id


def test_the_id_does_not_depend_on_the_time_zone_of_asking(ask):
    tokyo = NOW.astimezone(timezone(timedelta(hours=9)))
    assert ask(OLD, STACK, now=tokyo).id == ask(OLD, STACK).id
    assert ask(OLD, STACK, now=tokyo).decided_at == ask(OLD, STACK).decided_at


def test_the_id_does_not_depend_on_the_order_of_keys(ask):
    stack = {"cuda": "12.1", "torch": "2.4.1", "jax": "0.4.30", "cudnn": "8.6.0", "arch": ["sm_80"]}
    pool = {"driver": "535.183.01", "gpu": "A100-SXM4-80GB", "os": "linux"}
    backwards = ask(dict(reversed(pool.items())), dict(reversed(stack.items())))
    assert backwards.id == ask(pool, stack).id
    assert backwards.findings == ask(pool, stack).findings


def test_the_id_does_not_depend_on_which_framework_is_named_first(ask):
    stack = {"torch": "2.4.1+cu121", "jax": "0.4.20+cuda11.cudnn86", "cudnn": "8.6.0"}
    assert ask(OLD, dict(reversed(stack.items()))).id == ask(OLD, stack).id


def test_the_id_changes_with_everything_that_the_answer_rests_on(ask):
    matrix = Matrix(revision=1)
    asked = [
        ask(OLD, STACK, target="t"),
        ask(OLD, STACK, target="u"),
        ask(OLD.replace("name=old", "name=older"), STACK, target="t"),
        ask(OLD.replace("535.183.01", "535.183.06"), STACK, target="t"),
        ask(f"{OLD},os=wsl", STACK, target="t"),
        ask(f"{OLD},cpu=aarch64", STACK, target="t"),
        ask(OLD, "cuda=12.4.1,arch=sm_80", target="t"),
        ask(OLD, "cuda=12.4,arch=sm_80+sm_90", target="t"),
        ask(OLD, STACK, target="t", image="app:1"),
        ask(OLD, STACK, target="t", policy=Policy(mode="audit")),
        ask(OLD, STACK, target="t", policy=Policy(on_unknown="allow")),
        ask(OLD, STACK, target="t", matrix=matrix),
        ask([OLD, GOOD], STACK, target="t"),
    ]
    assert len({verdict.id for verdict in asked}) == len(asked)


def test_the_id_changes_when_time_changes_the_answer(ask):
    before = ask(GOOD, STACK, now=datetime(2028, 3, 31, tzinfo=UTC))
    after = ask(GOOD, STACK, now=datetime(2028, 4, 1, tzinfo=UTC))
    assert (before.verdict, after.verdict) == ("pass", "warn")
    assert before.id != after.id


def test_leaving_fixes_out_does_not_change_the_verdict(ask):
    assert ask(TOO_OLD, STACK, with_fixes=False).verdict == ask(TOO_OLD, STACK).verdict
    assert all(not f.fixes for f in ask(TOO_OLD, STACK, with_fixes=False).findings)


# --- how long it holds -----------------------------------------------------------------------

SUPPORTED = "driver=580.65.06,gpu=A100-SXM4-80GB"
"""Branch 580: end of life 2028-06-30 in the earlier of two editions, notice from 2028-04-01."""


def moment(verdict):
    return datetime.fromisoformat(verdict.valid_until) if verdict.valid_until else None


def test_a_verdict_holds_until_the_notice_of_an_end_of_life(ask):
    assert moment(ask(SUPPORTED, STACK)) == datetime(2028, 4, 1, tzinfo=UTC)


def test_within_the_notice_it_holds_until_the_end_of_life(ask):
    noticed = ask(SUPPORTED, STACK, now=datetime(2028, 5, 1, tzinfo=UTC))
    assert moment(noticed) == datetime(2028, 7, 1, tzinfo=UTC)


def test_a_verdict_that_rests_on_no_date_to_come_has_no_end(ask):
    assert ask(OLD, STACK).valid_until is None


def test_a_verdict_on_a_waiver_holds_no_longer_than_the_waiver(ask):
    matrix = Matrix(waivers=[waiver("CG101")])
    waived = ask(TOO_OLD, STACK, target="t", matrix=matrix)
    assert moment(waived) == datetime(2027, 2, 1, tzinfo=UTC)


def test_a_verdict_on_evidence_holds_until_the_evidence_is_stale(ask):
    finished = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)
    run = Evidence(
        "run_1",
        "smoke",
        "A100-SXM4-80GB",
        parse_version("driver", "580.65.06"),
        {"cuda": parse_version("cuda", "12.4")},
        "passed",
        int(finished.timestamp()),
    )
    policy = Policy(canary=CanaryPolicy(require=True, max_age_s=7 * 86400))
    verdict = ask(SUPPORTED, STACK, target="t", policy=policy, matrix=Matrix(evidence=[run]))
    assert verdict.verdict == "pass"
    assert moment(verdict) == finished + timedelta(days=7)


def test_of_several_pools_the_earliest_end_counts(ask):
    sooner = "driver=595.91.07,gpu=L4,name=sooner"
    assert moment(ask([SUPPORTED, sooner], STACK)) == datetime(2026, 12, 31, tzinfo=UTC)


@pytest.mark.parametrize("days", range(-3, 400, 7))
def test_the_end_is_never_in_the_past_and_the_answer_holds_until_then(days, ask):
    now = datetime(2026, 11, 21, 5, tzinfo=UTC) + timedelta(days=days)
    pool = "driver=595.91.07,gpu=L4"
    verdict = ask(pool, STACK, now=now)
    end = moment(verdict)
    if end is None:
        assert ask(pool, STACK, now=now + timedelta(days=4000)).id == verdict.id
        return
    assert end > now
    last = end - timedelta(seconds=1)
    assert [f.message for f in ask(pool, STACK, now=last).findings] == [
        f.message for f in verdict.findings
    ]
