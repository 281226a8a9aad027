"""What becomes of verdicts about what runs, and of questions that get none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from compatgate.core.rule import Checked, Verdict
from compatgate.core.rules import BY_ID
from compatgate.documents.specs import MatchSpec, PolicySpec, PoolSpec, TargetSpec
from compatgate.errors import BadInput, CompatgateError, Forbidden, RegistryTimeout, Unavailable
from compatgate.service.cluster.kinds import load_kinds
from compatgate.service.nodes.cluster_audit import (
    AuditOptions,
    PodResult,
    RunningPod,
    audit_pods,
    pod_of,
)

KINDS = load_kinds()
DIGEST = f"registry.example/app@sha256:{'a' * 64}"

POOL = PoolSpec("a", "A100-SXM4-80GB", "535.183.01")
TARGETS = {"prod": TargetSpec((POOL,), MatchSpec(node_labels={"gpu": "a100"}))}


def verdict(outcome: Any = "pass", *, allowed: bool = True, mode: str = "enforce") -> Verdict:
    finding = BY_ID["CG101"].finding(outcome, (), "driver", "1", "2", "is too old")
    found = () if outcome == "pass" else (finding,)
    return Verdict(
        id="vd_1",
        verdict=outcome,
        allowed=allowed,
        mode=mode,
        target="prod",
        findings=found,
        checked=Checked((), ()),
        stack={"cuda": "12.4"},
        pools=(),
        matrix_revision=1,
        facts="",
    )


def body(**status: Any) -> dict[str, Any]:
    limits = {"limits": {"nvidia.com/gpu": 1}}
    container = {"name": "app", "image": "registry.example/app:1", "resources": limits}
    return {
        "metadata": {"name": "p", "namespace": "ml", "uid": "u", "annotations": {}},
        "spec": {"nodeName": "n1", "containers": [container]},
        "status": {"phase": "Running", **status},
    }


@pytest.fixture
def running() -> RunningPod:
    found = pod_of(body(), KINDS)
    assert found
    return found


class Knows:
    """Answers, or fails, as a test says; remembers what it was asked."""

    def __init__(self, *answers: Verdict | CompatgateError) -> None:
        self.known = TARGETS
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    def targets(self) -> dict[str, TargetSpec]:
        return self.known

    def waivers(self) -> dict[str, Any]:
        return {}

    def decide(self, body: dict[str, Any]) -> Verdict:
        self.asked.append(body)
        answer = self.answers.pop(0)
        if isinstance(answer, CompatgateError):
            raise answer
        return answer


@pytest.fixture
def result(running: RunningPod) -> Callable[..., PodResult]:
    """The one result about the pod."""

    def of(
        *answers: Verdict | CompatgateError, unmatched: Any = "warn", **labels: str
    ) -> PodResult:
        labels = labels or {"gpu": "a100"}
        options = AuditOptions(KINDS, unmatched)
        (found,) = audit_pods([running], {"n1": labels}, Knows(*answers), options, "2026-11-21")
        return found

    return of


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (verdict(), "pass"),
        (verdict("warn"), "warn"),
        (verdict("fail", allowed=False), "fail"),
        (verdict("fail", mode="audit"), "warn"),
        (verdict("unknown", allowed=False), "error"),
        (verdict("unknown", mode="warn"), "warn"),
        (BadInput("there is no such target", field="target"), "error"),
    ],
)
def test_unknown_is_never_a_pass(
    result: Callable[..., PodResult], answer: Any, outcome: str
) -> None:
    answers = [answer, answer] if isinstance(answer, CompatgateError) else [answer]
    found = result(*answers)
    assert found.outcome == outcome
    assert found.message
    assert found.rule == ("CG101" if isinstance(answer, Verdict) and outcome != "pass" else "")


@pytest.mark.parametrize(("unmatched", "outcome"), [("allow", "skip"), ("deny", "fail")])
def test_a_pod_on_a_node_of_no_target_is_what_the_operator_says(
    result: Callable[..., PodResult], unmatched: str, outcome: str
) -> None:
    found = result(unmatched=unmatched, gpu="l4")
    assert (found.outcome, found.target) == (outcome, "")
    assert "matches no target" in found.message


@pytest.mark.parametrize(
    "error", [BadInput("is unknown", field="image"), RegistryTimeout("too slow", field="image")]
)
def test_an_image_that_cannot_be_read_leaves_the_stack_open(
    running: RunningPod, error: CompatgateError
) -> None:
    knows = Knows(error, verdict("unknown", allowed=False))
    labels = {"n1": {"gpu": "a100"}}
    (found,) = audit_pods([running], labels, knows, AuditOptions(KINDS), "2026-11-21")
    assert found.outcome == "error"
    assert "image" not in knows.asked[1]
    assert knows.asked[1]["stack"]["open"][0].startswith("the image is not known: ")


@pytest.mark.parametrize("error", [Unavailable("away"), Forbidden("this needs the scope gate")])
def test_where_nothing_can_be_decided_nothing_is_said(
    result: Callable[..., PodResult], error: CompatgateError
) -> None:
    with pytest.raises(type(error)):
        result(error)


def test_the_image_that_was_pulled_counts() -> None:
    pulled = {"name": "app", "imageID": f"docker-pullable://{DIGEST}"}
    found = pod_of(body(containerStatuses=[pulled]), KINDS)
    assert found
    assert found.document["spec"]["containers"][0]["image"] == DIGEST
    by_id = pod_of(body(containerStatuses=[{"name": "app", "imageID": "sha256:aa"}]), KINDS)
    assert by_id
    assert by_id.document["spec"]["containers"][0]["image"] == "registry.example/app:1"


@pytest.mark.parametrize("odd", [{}, {"spec": 7}, {"spec": {"nodeName": "n", "containers": [7]}}])
def test_objects_of_odd_form_are_no_gpu_pods(odd: dict[str, Any]) -> None:
    assert pod_of(odd, KINDS) is None


def test_an_annotation_that_means_nothing_is_an_error_of_that_pod_alone() -> None:
    odd = body()
    odd["metadata"]["annotations"] = {"compatgate.dev/gpu": "yes"}
    found = pod_of(odd, KINDS)
    assert found
    options = AuditOptions(KINDS)
    (one,) = audit_pods([found], {}, Knows(), options, "2026-11-21")
    assert one.outcome == "error"
    assert "compatgate.dev/gpu" in one.message


def audited(
    known: dict[str, TargetSpec], labels: dict[str, str], **metadata: Any
) -> list[PodResult]:
    """What is found about a pod that requests a slice, on a node with these labels."""
    found = body()
    found["metadata"]["annotations"] = metadata
    limits = found["spec"]["containers"][0]["resources"]["limits"]
    limits["nvidia.com/mig-1g.10gb"] = limits.pop("nvidia.com/gpu")
    pod = pod_of(found, KINDS)
    assert pod
    decider = Knows(verdict())
    decider.known = known
    results = audit_pods([pod], {"n1": labels}, decider, AuditOptions(KINDS), "2026-11-21")
    assert len(decider.asked) <= 1
    for asked in decider.asked:
        results[-1] = replace(results[-1], message=str(asked.get("pools", "all")))
    return results


SLICE = PoolSpec("s", "A100-SXM4-80GB-MIG-1g.10gb", "535.183.01")
ON_A100 = {"gpu": "a100"}


def test_a_pod_is_decided_on_the_pools_of_what_it_requests() -> None:
    known = {"prod": TargetSpec((POOL, SLICE), MatchSpec(node_labels=ON_A100))}
    (one,) = audited(known, ON_A100)
    assert (one.outcome, one.target, one.message) == ("pass", "prod", "['s']")


@pytest.mark.parametrize(("mode", "outcome"), [("enforce", "fail"), ("audit", "warn")])
def test_a_request_that_no_pool_has_is_found(mode: Any, outcome: str) -> None:
    known = {"prod": TargetSpec((POOL,), MatchSpec(node_labels=ON_A100), PolicySpec(mode))}
    first, second = audited(known, ON_A100)
    assert (first.outcome, first.rule) == (outcome, "CG832")
    assert "nvidia.com/mig-1g.10gb is in no pool of prod" in first.message
    assert (second.outcome, second.message) == ("pass", "all")


def test_a_pod_that_names_another_target_than_that_of_its_node_is_found() -> None:
    other = TargetSpec((SLICE,), MatchSpec(node_labels={"gpu": "h100"}), PolicySpec("warn"))
    known = {"prod": TargetSpec((SLICE,), MatchSpec(node_labels=ON_A100)), "other": other}
    (one,) = audited(known, ON_A100, **{"compatgate.dev/target": "other"})
    assert (one.outcome, one.rule, one.target) == ("fail", "CG831", "prod")
    (one,) = audited(known, {"gpu": "h100"}, **{"compatgate.dev/target": "other"})
    assert (one.outcome, one.target) == ("pass", "other")


def test_the_nodes_own_label_says_whether_its_gpus_are_slices() -> None:
    known = {"prod": TargetSpec((POOL, SLICE), MatchSpec(node_labels=ON_A100))}
    labels = {**ON_A100, "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb"}
    first, _ = audited(known, labels)
    assert first.rule == "CG832"
    assert "on nodes of NVIDIA-A100-SXM4-80GB-MIG-3g.40gb" in first.message
