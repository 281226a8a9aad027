"""A finding that is waived stays visible, and somebody answers for it."""

from datetime import UTC, datetime, timedelta

import pytest

from compatgate.core.constraints import parse_constraint
from compatgate.core.matrix import Matrix, Waiver

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


def test_a_waiver_by_driver_covers_the_pools_on_that_driver(ask):
    drivers = {"driver": parse_constraint("driver", "470.*")}
    matrix = Matrix(waivers=[waiver("CG101", components=drivers)])
    older = TOO_OLD.replace("470.256.02", "450.248.02").replace("too-old", "older")
    verdict = ask([TOO_OLD, older], STACK, target="t", matrix=matrix)
    outcomes = {f.pools: f.outcome for f in findings(verdict, "CG101")}
    assert outcomes == {("older",): "fail", ("too-old",): "waived"}


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
