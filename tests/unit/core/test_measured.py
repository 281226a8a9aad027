"""Records of wheels that were measured on request, beside those of the catalog."""

import pytest

from compatgate.core.evaluate import evaluate
from compatgate.core.facts.records import Library, PackageRecords, Record
from compatgate.core.package_finder import open_packages, package_finder, release_of
from compatgate.core.request import Target, parse_request
from compatgate.core.stack import parse_stack, update_stack
from compatgate.core.stack_values import Wheel
from compatgate.core.versions import parse_version
from compatgate.errors import BadInput

A100 = "driver=580.95.05,gpu=A100-SXM4-80GB"
H100 = "driver=580.95.05,gpu=H100-SXM5-80GB"
DIGEST = "1a" * 32
OTHER = "2b" * 32


def record(name="fast", version="1.0", digest=DIGEST, arch="sm_80") -> Record:
    library = Library("fast/_C.so", sass={arch: 1}, units=1)
    wheel = f"{name}-{version}-cp312-cp312-manylinux_2_28_x86_64.whl"
    return Record(name, version, wheel, sha256=digest, libraries=(library,))


def asked(facts, name="fast", wheel=None):
    version = parse_version(name, "1.0")
    return package_finder(facts, "linux", "x86_64", None).find(name, version, wheel)


def test_a_measured_record_counts_and_leaves_the_facts_that_were_there_as_they_are(facts):
    known = facts.with_measured([record()])
    assert asked(known).record == record()
    assert asked(known).on_request
    assert asked(facts).is_open
    assert known.digest == facts.digest


def test_a_record_of_the_catalog_is_none_that_was_measured_on_request(facts):
    (first, *_) = facts.records("xformers")
    known = facts.with_measured([record("xformers", "9.9")])
    assert not known.is_measured(first)
    assert len(known.records("xformers")) == len(facts.records("xformers")) + 1


def test_the_digest_that_a_lock_states_decides_between_measured_wheels(facts):
    known = facts.with_measured([record(), record(digest=OTHER, arch="sm_90")])
    assert asked(known, wheel=Wheel(sha256=OTHER)).record.sha256 == OTHER
    assert asked(known, wheel=Wheel(sha256=DIGEST)).record.sha256 == DIGEST


def test_records_that_stay_in_memory_are_bounded(facts, monkeypatch):
    monkeypatch.setattr("compatgate.core.facts._MAX_MEASURED", 2)
    known = facts.with_measured([record(name) for name in ("one", "two", "three")])
    assert [bool(known.records(name)) for name in ("one", "two", "three")] == [False, True, True]


def test_open_packages_are_named_once_for_each_platform(facts):
    stack = parse_stack({"cuda": "12.4", "fast": "1.0", "xformers": "9.9", "python": "3.12"})
    pools = [("linux", "x86_64"), ("wsl", "x86_64"), ("linux", "aarch64")]
    found = open_packages(stack, pools, facts.with_measured([record()]))
    assert [(one.name, one.os, one.cpu) for one in found] == [
        ("xformers", "linux", "x86_64"),
        ("fast", "linux", "aarch64"),
        ("xformers", "linux", "aarch64"),
    ]
    assert release_of(found[0]) == "xformers==9.9"


@pytest.fixture
def ask_with(facts, pool_of, stack_of, now):
    """Ask with records that were measured on request."""

    def asked(pool, stack, *records):
        known = facts.with_measured(records)
        return evaluate(stack_of(stack), Target("", (pool_of(pool),)), facts=known, now=now)

    return asked


def test_the_answer_names_the_wheel_and_its_id_depends_on_it(ask_with):
    answers = [ask_with(A100, "cuda=12.4,fast=1.0", record(digest=d)) for d in (DIGEST, OTHER)]
    for answer, digest in zip(answers, (DIGEST, OTHER), strict=True):
        (said,) = [f for f in answer.findings if f.component == "fast"]
        assert (said.rule, said.outcome) == ("CG901", "not-checked")
        assert record().wheel in said.message
        assert digest in said.message
        assert answer.allowed
    assert answers[0].id != answers[1].id
    again = ask_with(A100, "cuda=12.4,fast=1.0", record())
    assert again.id == answers[0].id


def test_measured_code_denies_as_any_other_does(ask_with):
    denied = ask_with(H100, "cuda=12.4,fast=1.0", record())
    assert "CG411" in [f.rule for f in denied.failing]


def test_the_reason_for_no_record_stands_in_the_finding_of_its_release_alone(ask, facts):
    body = {"cuda": "12.4", "fast": "1.0", "unmeasured": {"fast==1.0": "the index is away"}}
    stack = parse_stack(body)
    assert stack.to_json() == body
    message = "no record describes the content of fast 1.0: the index is away"
    question = {"pool": {"driver": "580.95.05", "gpu": "L4"}, "stack": body}
    assert parse_request(question, facts.gpus).stack == stack
    assert [f.message for f in ask(A100, stack).findings if f.rule == "CG410"] == [message]
    other = ask(A100, update_stack(stack, {"fast": "2.0"}))
    assert [f.message for f in other.findings if f.rule == "CG410"] == [
        "no record describes the content of fast 2.0"
    ]


@pytest.mark.parametrize("value", ["text", {"fast==1.0": 1}, {"fast==1.0": "x" * 2000}])
def test_what_is_no_list_of_reasons_is_refused(value):
    with pytest.raises(BadInput) as caught:
        parse_stack({"cuda": "12.4", "unmeasured": value})
    assert caught.value.field == "unmeasured"


def test_reasons_alone_are_no_stack():
    with pytest.raises(BadInput, match="the stack is empty"):
        parse_stack({"unmeasured": {"fast==1.0": "the index is away"}})


def test_a_component_keeps_the_records_that_ship_under_the_name_of_its_package(facts, monkeypatch):
    shipped = record("fast-cu12", "1.0")
    monkeypatch.setattr(facts, "recorded", facts.recorded | {"fast-cu12"})
    monkeypatch.setattr(facts, "_shipped", facts.recorded)
    monkeypatch.setattr(facts, "_recorded", {"fast-cu12": PackageRecords((shipped,))})
    monkeypatch.setattr(facts, "memory", {})
    known = facts.with_measured([record(version="2.0+cu12", digest=OTHER)])
    for text, digest in (("1.0+cu12", DIGEST), ("2.0+cu12", OTHER)):
        version = parse_version("fast", text)
        found = package_finder(known, "linux", "x86_64", None).find("fast", version)
        assert found.record is not None
        assert found.record.sha256 == digest
