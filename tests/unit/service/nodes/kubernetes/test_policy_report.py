"""Policy reports: of the CRD's form, small enough for a cluster, whatever was found."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from policy_reports import report_problems

from compatgate.service.nodes.kubernetes.policy_reports import (
    OMITTED_ANNOTATION,
    ReportEntry,
    is_unchanged,
    keep_times,
    node_entry,
    report_object,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
ETCD = 1024 * 1024


def entry(name: str, outcome: Any = "fail", message: str = "is wrong") -> ReportEntry:
    return ReportEntry(
        outcome, "CG101", message, {"kind": "Pod", "name": name}, True, {"image": "a"}
    )


@pytest.mark.parametrize(("count", "message"), [(5000, "short"), (1900, "x" * 5000), (0, "")])
def test_a_report_has_the_form_of_its_crd_and_fits(count: int, message: str) -> None:
    found = report_object((entry(f"p{n}", message=message) for n in range(count)), "ml", NOW)
    assert report_problems(found) == []
    assert len(msgspec.json.encode(found)) < ETCD
    assert found["summary"]["fail"] == count
    left = int(found["metadata"].get("annotations", {}).get(OMITTED_ANNOTATION, 0))
    assert len(found["results"]) + left == count


def test_the_worst_come_first() -> None:
    outcomes = ("pass", "skip", "warn", "error", "fail")
    found = report_object([entry("p", outcome) for outcome in outcomes], None, NOW)
    assert [one["result"] for one in found["results"]] == list(reversed(outcomes))
    assert found["kind"] == "ClusterPolicyReport"
    assert "namespace" not in found["metadata"]
    severities = [one.get("severity") for one in found["results"]]
    assert severities == ["high", "medium", "low", None, None]


def test_hostile_text_stays_on_its_line() -> None:
    found = report_object([entry("p", message="a\n\x1b[2J\u202eb" * 400)], "ml", NOW)
    (result,) = found["results"]
    assert result["message"].isprintable()
    assert len(result["message"]) <= 500


def test_results_keep_the_time_at_which_they_were_found_first() -> None:
    later = NOW.replace(day=22)
    old = report_object([entry("a"), entry("b")], "ml", NOW)
    new = keep_times(report_object([entry("b"), entry("c")], "ml", later), old)
    days = {one["resources"][0]["name"]: one["timestamp"]["seconds"] for one in new["results"]}
    assert days == {"b": int(NOW.timestamp()), "c": int(later.timestamp())}
    assert not is_unchanged(new, old)
    again = keep_times(report_object([entry("b"), entry("a")], "ml", later), old)
    assert is_unchanged(again, old)


@pytest.mark.parametrize(
    ("state", "drift", "outcome"),
    [
        ("blessed", False, "pass"),
        ("blessed", True, "warn"),
        ("not-blessed", False, "fail"),
        ("unknown", False, "error"),
    ],
)
def test_a_node_is_what_its_driver_is_unless_it_drifted(
    state: str, drift: bool, outcome: str
) -> None:
    node = {
        "name": "n1", "targets": ["prod"], "driver": "550.54.15", "driver_state": state,
        "driver_why": "because", "drift": [{"message": "it has another"}] if drift else [],
        "disagreements": [],
    }  # fmt: skip
    found = report_object([node_entry(node)], None, NOW)
    assert report_problems(found) == []
    (result,) = found["results"]
    assert (result["result"], result["scored"]) == (outcome, outcome != "warn")
    assert result["message"] == ("because; it has another" if drift else "because")
