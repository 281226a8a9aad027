"""A node against the matrix: its targets, where it drifted, and whether its driver is blessed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from compatgate.core.facts import Facts
from compatgate.documents.validation import read_body
from compatgate.service.matrix.snapshots.snapshot import build
from compatgate.service.nodes.comparison import MatrixComparer, NodeComparison

A100, L4 = "A100-SXM4-80GB", "L4"
ON_A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}


def target(name: str, *pools: dict[str, Any], **spec: Any) -> tuple[str, dict[str, Any]]:
    match = {"nodeLabels": ON_A100, **spec.pop("match", {})}
    return "Target", {"metadata": {"name": name}, "spec": {"pools": pools, "match": match, **spec}}


def entry(name: str, status: str = "blessed", **spec: Any) -> tuple[str, dict[str, Any]]:
    whole = {"targets": ["prod"], "components": {"cuda": "12.*"}, "status": status, **spec}
    return "Entry", {"metadata": {"name": name}, "spec": whole}


def pool(gpu: str = A100, driver: str = "535.183.01") -> dict[str, Any]:
    return {"name": "p", "gpu": gpu, "driver": driver}


PROD = target("prod", pool())
DRIVER_535 = {"driver": ">=535.104.05,<536", "cuda": "12.4.*"}


@pytest.fixture
def matrix(facts: Facts) -> Callable[..., MatrixComparer]:
    """A matrix of documents."""

    def of(*documents: tuple[str, dict[str, Any]]) -> MatrixComparer:
        names = [body["metadata"]["name"] for kind, body in documents if kind == "Target"]
        read: list[Any] = []
        for kind, body in documents:
            document = read_body(body, kind, facts.gpus, names)  # type: ignore[arg-type]
            read.append((kind, document.metadata.name, document, 1))
        return MatrixComparer(build(read, facts, 1))

    return of


def look(
    matrix: MatrixComparer,
    driver: str | None = "535.183.01",
    gpus: Sequence[str] = (A100,),
    labels: dict[str, str] = ON_A100,
    stated: str | None = None,
    assigned: str | None = None,
) -> NodeComparison:
    return matrix.standing(driver, gpus, labels, (stated, assigned))


def test_a_node_belongs_to_the_target_whose_labels_it_has(
    matrix: Callable[..., MatrixComparer],
) -> None:
    narrow = target("narrow", pool(), match={"nodeLabels": {**ON_A100, "zone": "a"}})
    found = matrix(PROD, narrow)
    assert look(found).targets == ("prod",)
    assert look(found, labels={**ON_A100, "zone": "a"}).targets == ("narrow",)
    assert look(found, labels={"zone": "a"}).targets == ()


def test_namespaces_say_nothing_about_nodes(matrix: Callable[..., MatrixComparer]) -> None:
    one = target("one", pool(), match={"namespaces": ["ml-*"]})
    two = target("two", pool(), match={"namespaces": ["research"]})
    three = target("three", pool(), match={"namespaces": ["x"], "nodeLabels": {}})
    assert look(matrix(one, two, three)).targets == ("one", "two")


def test_a_report_adds_a_target_and_an_assignment_decides(
    matrix: Callable[..., MatrixComparer],
) -> None:
    other = target("other", pool(), match={"nodeLabels": {"never": "there"}})
    found = matrix(PROD, other)
    assert look(found, stated="other").targets == ("other", "prod")
    assert "token with the scope bless" in look(found, stated="other").notes[-1]
    assert look(found, labels={**ON_A100, "compatgate.dev/target": "other"}).targets == (
        "other",
        "prod",
    )
    assert look(found, assigned="other").targets == ("other",)
    assert look(found, stated="prod", assigned="other").targets == ("other", "prod")


def test_a_target_that_does_not_exist_is_told_and_nothing_is_blessed(
    matrix: Callable[..., MatrixComparer],
) -> None:
    found = look(matrix(PROD, entry("e")), stated="prd")
    assert (found.targets, found.driver) == ((), "unknown")
    assert "'prd', which does not exist" in found.notes[0]


def test_a_node_that_is_as_declared_has_not_drifted(matrix: Callable[..., MatrixComparer]) -> None:
    assert look(matrix(PROD)).differences == ()
    assert look(matrix(PROD), driver="535.183.1").differences == ()
    family = matrix(target("prod", pool("A100")))
    assert look(family).differences == ()
    assert look(matrix(target("prod", pool("8.0")))).differences == ()


def test_another_driver_or_gpu_is_drift(matrix: Callable[..., MatrixComparer]) -> None:
    (found,) = look(matrix(PROD), driver="550.54.15").differences
    assert (found.what, found.have, tuple(found.declared)) == (
        "driver",
        "550.54.15",
        ("535.183.01",),
    )
    assert found.message == "it has driver 550.54.15, prod declares 535.183.01"
    (found,) = look(matrix(PROD), gpus=(f"{A100}-MIG-1g.10gb",)).differences
    assert (found.what, found.have, tuple(found.declared)) == (
        "gpu",
        f"{A100}-MIG-1g.10gb",
        (A100,),
    )


def test_the_driver_is_compared_with_pools_of_the_nodes_gpu(
    matrix: Callable[..., MatrixComparer],
) -> None:
    two = target("prod", {**pool(), "name": "a"}, {**pool(L4, "580.95.05"), "name": "b"})
    (found,) = look(matrix(two), driver="580.95.05").differences
    assert tuple(found.declared) == ("535.183.01",)
    assert look(matrix(two), driver="580.95.05", gpus=(L4,)).differences == ()


def test_what_is_not_known_counts_as_a_difference(matrix: Callable[..., MatrixComparer]) -> None:
    found = look(matrix(PROD), driver=None, gpus=()).differences
    assert [(one.what, one.have) for one in found] == [("gpu", None), ("driver", None)]
    assert "does not report its driver" in found[1].message


@pytest.mark.parametrize(
    ("entries", "driver", "state"),
    [
        ([entry("e", components=DRIVER_535)], "535.183.01", "blessed"),
        ([entry("e", components=DRIVER_535)], "550.54.15", "not-blessed"),
        ([entry("e", "deprecated", components=DRIVER_535)], "535.183.01", "blessed"),
        ([entry("e")], "550.54.15", "blessed"),
        ([entry("e"), entry("r", "revoked", components=DRIVER_535)], "535.183.01", "blessed"),
        ([entry("e", targets=["*"], components=DRIVER_535)], "550.54.15", "not-blessed"),
        ([entry("e", gpus=[L4])], "535.183.01", "not-blessed"),
        ([entry("e", gpus=[A100], components=DRIVER_535)], "535.183.01", "blessed"),
        ([entry("e", "candidate")], "535.183.01", "unknown"),
        ([entry("r", "revoked")], "535.183.01", "unknown"),
        ([], "535.183.01", "unknown"),
        ([entry("e")], None, "unknown"),
        ([entry("e")], "new", "unknown"),
    ],
)  # fmt: skip
def test_a_driver_is_blessed_when_an_entry_admits_it(
    matrix: Callable[..., MatrixComparer], entries: list[Any], driver: str | None, state: str
) -> None:
    found = look(matrix(PROD, *entries), driver=driver)
    assert found.driver == state, found.why
    assert found.why


def test_an_entry_for_a_whole_gpu_blesses_no_node_of_slices(
    matrix: Callable[..., MatrixComparer],
) -> None:
    slices = f"{A100}-MIG-1g.10gb"
    lab = target("prod", pool(slices))
    assert look(matrix(lab, entry("e", gpus=[A100])), gpus=(slices,)).driver == "not-blessed"
    assert look(matrix(lab, entry("e", gpus=[slices])), gpus=(slices,)).driver == "blessed"


def test_what_cannot_be_decided_is_unknown(matrix: Callable[..., MatrixComparer]) -> None:
    found = matrix(PROD, entry("e", gpus=[A100]))
    assert look(found, labels={}).driver == "unknown"
    assert look(found, gpus=()).driver == "unknown"
    assert look(found, gpus=("NVIDIA Z9000",)).driver == "unknown"


def test_one_of_several_targets_is_enough(matrix: Callable[..., MatrixComparer]) -> None:
    other = target("other", pool())
    entries = entry("a", components=DRIVER_535), entry("b", targets=["other"])
    assert look(matrix(PROD, other, *entries), driver="550.54.15").driver == "blessed"
