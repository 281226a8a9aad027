"""The JSON of an answer: exactly the keys that ``POST /gate`` promises."""

import json

import msgspec
import pytest

from compatgate.core import evaluate
from compatgate.core.rule import Finding
from compatgate.core.rules import BY_ID

PROMISED = [
    "id", "verdict", "allowed", "mode", "target", "findings", "stack", "matrix_revision", "facts",
    "evidence", "decided_at", "valid_until",
]  # fmt: skip
"""In the design's answer."""

ADDED = ["checked", "image", "basis", "pools", "entries", "overlays"]
"""Beside them."""

FINDING = [
    "rule", "name", "outcome", "pools", "component", "have", "need", "message", "source", "fixes",
]  # fmt: skip


@pytest.fixture(scope="module")
def denied(ask):
    return ask(
        {"driver": "520.61.05", "gpu": "A100-SXM4-80GB", "name": "a100-80", "count": 512},
        {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1", "arch": ["sm_80", "compute_80"]},
        target="prod-a100",
        image="registry.example/team/app@sha256:abc",
    ).to_json()


def test_an_answer_has_every_promised_key_and_no_unknown_one(denied):
    assert set(PROMISED) <= set(denied)
    assert set(denied) == {*PROMISED, *ADDED}


def test_promised_keys_come_in_the_promised_order(denied):
    assert [key for key in denied if key in PROMISED] == PROMISED


def test_the_values_have_the_promised_types(denied):
    assert denied["id"].startswith("vd_")
    assert denied["verdict"] == "fail"
    assert denied["allowed"] is False
    assert denied["mode"] == "enforce"
    assert denied["target"] == "prod-a100"
    assert denied["image"] == "registry.example/team/app@sha256:abc"
    assert denied["stack"] == {
        "cuda": "12.4",
        "cudnn": "9.1.0",
        "torch": "2.4.1",
        "arch": ["sm_80", "compute_80"],
    }
    assert denied["matrix_revision"] == 0
    assert denied["facts"].startswith("sha256:")
    assert denied["evidence"] == []
    assert denied["entries"] == {}
    assert denied["overlays"] == []
    assert denied["decided_at"] == "2026-11-21T12:00:00.000Z"
    assert denied["valid_until"] is None


def test_a_finding_has_the_promised_keys_in_order(denied):
    assert all(list(finding) == FINDING for finding in denied["findings"])


def test_the_designs_example_comes_out_as_the_design_says(denied):
    (finding,) = [dict(f) for f in denied["findings"] if f["rule"] == "CG101"]
    message, source, fixes = finding.pop("message"), finding.pop("source"), finding.pop("fixes")
    assert finding == {
        "rule": "CG101",
        "name": "driver-too-old",
        "outcome": "fail",
        "pools": ["a100-80"],
        "component": "driver",
        "have": "520.61.05",
        "need": ">=525.60.13",
    }
    assert "520.61.05" in message
    assert "525.60.13" in message
    assert set(source) == {"title", "url", "confidence", "also"}
    assert fixes[0]["set"] == {"driver": ">=525.60.13"}
    assert all(set(fix) == {"set", "message"} for fix in fixes)
    assert all(fix["message"] for fix in fixes)


def test_a_pool_is_shown_as_it_was_resolved(denied):
    assert denied["pools"] == [
        {
            "name": "a100-80",
            "gpu": "A100-SXM4-80GB",
            "compute_capability": "8.0",
            "driver": "520.61.05",
            "os": "linux",
            "cpu": "x86_64",
            "count": 512,
        }
    ]


def test_what_is_not_known_of_a_pool_is_null(ask):
    (pool,) = ask("driver=535.104.05", "cuda=12.4").to_json()["pools"]
    assert (pool["gpu"], pool["compute_capability"]) == (None, None)
    (pool,) = ask("gpu=8.7", "cuda=12.4").to_json()["pools"]
    assert (pool["gpu"], pool["compute_capability"], pool["driver"]) == ("sm_87", "8.7", None)


def test_a_described_pool_has_no_target(ask):
    answer = ask("driver=580.65.06,gpu=L4", "cuda=12.4,arch=sm_89").to_json()
    assert answer["target"] is None
    assert answer["findings"] == []
    assert answer["checked"]["passed"]


def test_every_finding_says_why_and_where_that_is_published(denied):
    for finding in denied["findings"]:
        assert finding["message"]
        assert finding["pools"] == ["a100-80"]
        if finding["outcome"] != "not-checked":
            assert finding["source"]["title"], finding
            assert finding["source"]["confidence"] in ("published", "metadata", "derived")


def test_an_answer_is_plain_json(denied):
    assert json.loads(json.dumps(denied)) == denied
    assert json.loads(msgspec.json.encode(denied)) == denied


def test_a_finding_names_each_pool_once():
    def said_on(pool: str) -> Finding:
        return BY_ID["CG411"].finding("fail", (pool,), "cuda", None, None, "the same")

    (merged,) = evaluate._group_findings([said_on("a"), said_on("b"), said_on("a")])
    assert merged.pools == ("a", "b")
