"""The GPU Operator's objects: the driver of each node, or why it is not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatgate.discovery.drafts import read_objects, read_operator

FOLDER = Path(__file__).parents[2] / "fixtures" / "neighbours"
H100 = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
L4 = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "NVIDIA-L4"}


def policy(**driver) -> dict:
    return {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "cluster-policy"},
        "spec": {"driver": driver},
    }


def nvidia_driver(name: str = "one", **spec) -> dict:
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "NVIDIADriver",
        "metadata": {"name": name},
        "spec": spec,
    }


def sample(name: str) -> list[dict]:
    return list(read_objects((FOLDER / name).read_text(), name))


def test_the_published_samples_are_read() -> None:
    assert read_operator(sample("clusterpolicy-2021.yaml")).drivers[0].version == "460.73.01"
    assert read_operator(sample("nvidiadriver.yaml")).drivers[0].version == "570.148.08"
    newer = read_operator(sample("clusterpolicy.yaml")).drivers[0]
    assert newer.version is None
    assert "operator installs its default" in newer.why


@pytest.mark.parametrize(
    ("driver", "version", "why"),
    [
        ({"version": "580.82.07"}, "580.82.07", ""),
        ({"version": "580.82.07-ubuntu22.04"}, "580.82.07", ""),
        ({"version": "535.54.03-rhcos4.14"}, "535.54.03", ""),
        ({"image": "registry.example:5000/nvidia/driver:570.86.15"}, "570.86.15", ""),
        ({"version": "sha256:" + "a" * 64}, None, "by its digest"),
        ({"image": "nvcr.io/nvidia/driver@sha256:" + "a" * 64}, None, "by its digest"),
        ({"version": "latest"}, None, "'latest' is not a driver's version"),
        ({"version": "580", "usePrecompiled": "true"}, None, "precompiled driver of branch 580"),
        ({"version": "580"}, None, "'580' is not a driver's version"),
        (
            {"image": "driver", "repository": "nvcr.io/nvidia"},
            None,
            "operator installs its default",
        ),
        ({"enabled": "false", "version": "580.82.07"}, None, "installed by something else"),
        ({"enabled": False}, None, "installed by something else"),
    ],
)
def test_a_version_is_known_or_the_reason_is(driver, version, why) -> None:
    [found] = read_operator([policy(**driver)]).drivers
    assert found.version == version
    assert why in found.why


def test_each_node_gets_the_driver_whose_selector_it_fits() -> None:
    old = nvidia_driver(
        "old", version="535.216.01", nodeSelector={"nvidia.com/gpu.product": "NVIDIA-L4"}
    )
    new = nvidia_driver(
        "new",
        version="580.82.07",
        nodeSelector={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
    )
    operator = read_operator([policy(useNvidiaDriverCRD="true"), old, new])
    assert operator.for_node(H100).version == "580.82.07"
    assert operator.for_node(L4).version == "535.216.01"
    assert operator.for_node({}) is None


def test_two_that_select_one_node_are_a_contradiction() -> None:
    operator = read_operator(
        [nvidia_driver("a", version="535.216.01"), nvidia_driver("b", version="580.82.07")]
    )
    found = operator.for_node(H100)
    assert found.version is None
    assert found.why == (
        "NVIDIADriver a and NVIDIADriver b both select the node, which the operator does not accept"
    )


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ({"operator": "In", "values": ["NVIDIA-L4", "x"]}, False),
        ({"operator": "In", "values": ["NVIDIA-H100-80GB-HBM3"]}, True),
        ({"operator": "NotIn", "values": ["NVIDIA-L4"]}, True),
        ({"operator": "Exists"}, True),
        ({"operator": "DoesNotExist"}, False),
        ({"operator": "Gt", "values": ["1"]}, False),
        ({"operator": "Near", "values": ["1"]}, False),
    ],
)
def test_required_affinity_decides_as_in_kubernetes(expression, fits) -> None:
    terms = [{"matchExpressions": [{"key": "nvidia.com/gpu.product", **expression}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    driver = nvidia_driver(version="580.82.07", nodeAffinity=required)
    found = read_operator([driver]).for_node(H100)
    assert (found is not None) is fits


def test_numbers_are_compared_as_numbers() -> None:
    term = {"matchExpressions": [{"key": "memory", "operator": "Gt", "values": ["9"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    operator = read_operator(
        [nvidia_driver(version="580.82.07", nodeSelector={}, nodeAffinity=required)]
    )
    assert operator.for_node({"memory": "10"})
    assert not operator.for_node({"memory": "8"})


def test_drivers_for_hypervisors_are_no_drivers_of_containers() -> None:
    assert (
        read_operator([nvidia_driver(driverType="vgpu-host-manager", version="580.82.07")]).drivers
        == ()
    )


def test_objects_that_the_operator_does_not_follow_are_said() -> None:
    ignored = read_operator([policy(version="580.82.07"), nvidia_driver(version="535.216.01")])
    assert [one.version for one in ignored.drivers] == ["580.82.07"]
    assert "does not follow the NVIDIADriver objects" in ignored.notes[0]
    missing = read_operator([policy(useNvidiaDriverCRD=True, version="580.82.07")])
    assert missing.drivers == ()
    assert "none is given" in missing.notes[0]


def test_of_two_policies_that_disagree_none_is_taken() -> None:
    both = read_operator([policy(version="580.95.05"), policy(version="570.124.06")])
    (found,) = both.drivers
    assert found.version is None
    assert "different drivers" in found.why
    (agreed,) = read_operator([policy(version="580.95.05")] * 2).drivers
    assert agreed.version == "580.95.05"
