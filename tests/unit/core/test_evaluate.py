"""From rules to one verdict: pools, policy, waivers, the id, and how long it holds."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from compatgate.core.constraints import parse_constraint
from compatgate.core.evaluate import evaluate, is_allowed
from compatgate.core.matrix import Entry, EntryIndex, Evidence, Matrix, Waiver
from compatgate.core.stack import parse_stack
from compatgate.core.target import CanaryPolicy, Policy, Target
from compatgate.core.verdict import RANK, exit_code
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


def findings(verdict, rule):
    return [finding for finding in verdict.findings if finding.rule == rule]


# --- several pools -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pools", "expected"),
    [
        ([GOOD], "pass"),
        ([OLD], "warn"),
        ([UNKNOWN], "unknown"),
        ([TOO_OLD], "fail"),
        ([GOOD, OLD], "warn"),
        ([OLD, GOOD], "warn"),
        ([OLD, UNKNOWN], "unknown"),
        ([UNKNOWN, TOO_OLD, GOOD], "fail"),
        ([GOOD, OTHER], "pass"),
    ],
)
def test_the_verdict_on_a_target_is_the_worst_over_its_pools(pools, expected, ask):
    assert ask(pools, STACK, target="t").verdict == expected


def test_what_all_pools_share_is_said_once(ask):
    verdict = ask([GOOD, OTHER], "cuda=12.4,arch=sm_90", target="t")
    twice = ask([TOO_OLD, TOO_OLD.replace("too-old", "too")], STACK, target="t")
    assert [f.pools for f in findings(twice, "CG101")] == [("too-old", "too")]
    assert sorted(f.pools for f in findings(verdict, "CG201")) == [("good",), ("other",)]


def test_what_one_pool_has_names_that_pool(ask):
    verdict = ask([GOOD, TOO_OLD], STACK, target="t")
    assert [f.pools for f in findings(verdict, "CG101")] == [("too-old",)]


def test_a_rule_that_objects_on_one_pool_is_not_listed_as_passed(ask):
    verdict = ask([GOOD, TOO_OLD], STACK, target="t")
    assert "CG101" not in verdict.checked.passed
    assert "CG203" in verdict.checked.passed


def test_every_rule_is_a_finding_or_passed_or_not_applicable(ask):
    from compatgate.core.rules import RULES

    verdict = ask([GOOD, OLD, TOO_OLD], STACK, target="t")
    said = {f.rule for f in verdict.findings}
    assert said | {*verdict.checked.passed, *verdict.checked.not_applicable} == {
        rule.id for rule in RULES
    }
    assert not said & {*verdict.checked.passed, *verdict.checked.not_applicable}
    assert not set(verdict.checked.passed) & set(verdict.checked.not_applicable)


def test_findings_come_worst_first(ask):
    verdict = ask([GOOD, OLD, TOO_OLD, UNKNOWN], f"{STACK},cudnn=9.1.0", target="t")
    ranks = [RANK[f.outcome] for f in verdict.findings]
    assert ranks == sorted(ranks, reverse=True)
    assert verdict.failing[0].outcome == "fail"


def test_a_target_without_pools_is_not_a_pass(facts):
    verdict = evaluate(parse_stack({"cuda": "12.4"}), Target("t", ()), facts=facts, now=NOW)
    assert verdict.verdict == "unknown"
    assert not verdict.allowed
    assert findings(verdict, "CG901")


# --- policy --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["enforce", "warn", "audit"])
@pytest.mark.parametrize("on_unknown", ["fail", "warn", "allow"])
@pytest.mark.parametrize("outcome", ["pass", "warn", "unknown", "fail"])
def test_only_enforce_denies_and_only_what_fails(mode, on_unknown, outcome):
    allowed = is_allowed(outcome, Policy(mode=mode, on_unknown=on_unknown))
    denied = mode == "enforce" and (
        outcome == "fail" or (outcome == "unknown" and on_unknown == "fail")
    )
    assert allowed is not denied


@pytest.mark.parametrize(
    ("pool", "mode", "allowed"),
    [(TOO_OLD, "enforce", False), (TOO_OLD, "warn", True), (TOO_OLD, "audit", True)],
)
def test_the_verdict_is_the_truth_whatever_the_mode(pool, mode, allowed, ask):
    verdict = ask(pool, STACK, target="t", policy=Policy(mode=mode))
    assert (verdict.verdict, verdict.allowed, verdict.mode) == ("fail", allowed, mode)


@pytest.mark.parametrize(
    ("on_unknown", "allowed"), [("fail", False), ("warn", True), ("allow", True)]
)
def test_what_unknown_means_is_the_policys_choice(on_unknown, allowed, ask):
    verdict = ask(UNKNOWN, STACK, target="t", policy=Policy(on_unknown=on_unknown))
    assert (verdict.verdict, verdict.allowed) == ("unknown", allowed)


@pytest.mark.parametrize(
    ("outcome", "allowed", "status"),
    [
        ("pass", True, 0),
        ("warn", True, 0),
        ("fail", True, 0),
        ("unknown", True, 0),
        ("fail", False, 1),
        ("unknown", False, 3),
    ],
)
def test_the_exit_status_follows_what_is_allowed(outcome, allowed, status):
    assert exit_code(outcome, allowed=allowed) == status


# --- waivers -------------------------------------------------------------------------------------


def test_a_waived_finding_stays_visible_and_no_longer_weighs(ask):
    matrix = Matrix(waivers=[waiver("CG101")])
    verdict = ask(TOO_OLD, STACK, target="t", matrix=matrix)
    assert [f.outcome for f in findings(verdict, "CG101")] == ["waived"]
    assert verdict.verdict == "warn"
    assert verdict.allowed


def test_the_record_of_a_waiver_says_who_answers_for_it_and_until_when(ask):
    matrix = Matrix(waivers=[waiver("CG101")])
    (record,) = findings(ask(TOO_OLD, STACK, target="t", matrix=matrix), "CG821")
    assert record.outcome == "warn"
    assert record.name == "waived"
    assert record.have == "legacy-ocr"
    assert record.pools == ("too-old",)
    for word in ("CG101", "team-ocr", "until the reader is rebuilt", "2027-01-31"):
        assert word in record.message


def test_a_waiver_of_one_rule_leaves_the_others(ask):
    matrix = Matrix(waivers=[waiver("CG101")])
    verdict = ask(TOO_OLD, "cuda=12.4,arch=sm_90", target="t", matrix=matrix)
    assert [f.outcome for f in findings(verdict, "CG201")] == ["fail"]
    assert verdict.verdict == "fail"


@pytest.mark.parametrize(
    "one",
    [
        waiver("CG101", expires="2026-11-20"),
        waiver("CG101", targets=("u",)),
        waiver("CG102"),
        waiver("CG101", image="registry.example/ocr/*"),
        waiver("CG101", components={"cuda": parse_constraint("cuda", "12.6.*")}),
    ],
    ids=["expired", "other target", "other rule", "other image", "other stack"],
)
def test_a_waiver_that_does_not_apply_changes_nothing(one, ask):
    plain = ask(TOO_OLD, STACK, target="t")
    waived = ask(TOO_OLD, STACK, target="t", matrix=Matrix(waivers=[one]))
    assert waived.findings == plain.findings
    assert waived.verdict == "fail"


def test_a_waiver_holds_on_its_last_day(ask):
    matrix = Matrix(waivers=[waiver("CG101", expires="2026-11-21")])
    assert ask(TOO_OLD, STACK, target="t", matrix=matrix).verdict == "warn"
    tomorrow = NOW + timedelta(days=1)
    assert ask(TOO_OLD, STACK, target="t", matrix=matrix, now=tomorrow).verdict == "fail"


def test_a_waiver_by_image_covers_that_image(ask):
    matrix = Matrix(waivers=[waiver("CG101", image="registry.example/ocr/*")])
    image = "registry.example/ocr/reader@sha256:abc"
    assert ask(TOO_OLD, STACK, target="t", matrix=matrix, image=image).verdict == "warn"


def test_what_is_not_known_cannot_be_waived(ask):
    matrix = Matrix(waivers=[waiver("CG901")])
    verdict = ask("driver=580.65.06", STACK, target="t", matrix=matrix)
    assert verdict.verdict == "unknown"
    assert not findings(verdict, "CG821")


def test_a_warning_can_be_waived_too(ask):
    matrix = Matrix(waivers=[waiver("CG102", "CG104")])
    verdict = ask(OLD, STACK, target="t", matrix=matrix)
    assert {f.outcome for f in findings(verdict, "CG102")} == {"waived"}
    assert len(findings(verdict, "CG821")) == 2


def test_a_waiver_on_several_pools_is_recorded_once_for_what_they_share(ask):
    matrix = Matrix(waivers=[waiver("CG101")])
    pools = [TOO_OLD, TOO_OLD.replace("too-old", "too")]
    (record,) = findings(ask(pools, STACK, target="t", matrix=matrix), "CG821")
    assert record.pools == ("too-old", "too")


# --- the id --------------------------------------------------------------------------------------


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


# --- how long it holds -----------------------------------------------------------------------------

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


# --- what it rests on --------------------------------------------------------------------------------


def test_a_verdict_names_the_facts_the_revision_and_the_entry_it_rests_on(ask, facts):
    blessed = Entry("torch24", ("t",), {"cuda": parse_constraint("cuda", "12.4.*")}, "blessed")
    matrix = Matrix(revision=42, entries=EntryIndex([blessed]))
    verdict = ask(GOOD, STACK, target="t", matrix=matrix, policy=Policy(require_entry=True))
    assert verdict.verdict == "pass"
    assert verdict.facts == facts.digest
    assert verdict.facts.startswith("sha256:")
    assert verdict.matrix_revision == 42
    assert verdict.entries == {"good": "torch24"}


def test_the_cuda_of_a_label_is_completed_and_shown(ask):
    verdict = ask(GOOD, "torch=2.4.1+cu121")
    assert verdict.stack == {"cuda": "12.1", "torch": "2.4.1+cu121"}


def test_a_stated_cuda_is_not_replaced_by_a_label(ask):
    assert ask(GOOD, "torch=2.4.1+cu121,cuda=12.4").stack["cuda"] == "12.4"
