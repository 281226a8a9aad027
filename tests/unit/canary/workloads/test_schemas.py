"""The JSON Schemas of workloads, suites and hosts accept what their readers accept."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from compatgate.canary.hosts_file import HostsFile
from compatgate.canary.workloads import library
from compatgate.documents import validation

SHAPES: dict[str, Any] = {
    "workload": library.WorkloadFile,
    "suites": library.SuitesFile,
    "hosts": HostsFile,
}
GOOD: dict[str, dict[str, Any]] = {
    "workload": {
        "name": "gemm",
        "description": "Multiplies",
        "catches": ["slow kernels"],
        "command": ["./gemm", "{seed}"],
        "gpus": 1,
        "nodes": 2,
        "timeout": "10m",
        "seeds": [0, 1],
        "adapter": "jsonl",
        "user": "nobody",
        "interpreter": "worker",
        "harness": True,
        "paired": False,
        "replaces": False,
        "image": {"inside": False, "context": ".", "network": True, "tool": "/opt/gemm"},
        "environment": {"OMP_NUM_THREADS": "1"},
        "limits": {"memory": "8GiB", "shm": "1GiB", "tmp": "1GiB", "pids": 10, "cpus": 2.5},
        "metrics": {"time": {"unit": "ms", "better": "lower", "tolerance": 0.1, "peak": "bf16"}},
        "checks": {"right": "it is right"},
        "host_checks": ["right"],
    },
    "suites": {"smoke": {"description": "fast", "workloads": ["gemm"], "replaces": True}},
    "hosts": {
        "host": [
            {
                "name": "a",
                "executor": "docker",
                "endpoint": "tcp://a:2376",
                "tls": {"ca": "ca", "cert": "cert", "key": "key"},
                "gpu": "L4",
                "driver": "550.54.15",
                "slots": 2,
                "devices": "cdi",
                "build_network": True,
                "exclusive": False,
                "health": "none",
                "quiet": [{"start": "08:00", "end": "18:00", "days": ["mon"], "timezone": "UTC"}],
                "slurm": {
                    "work": "/shared",
                    "partition": "gpu",
                    "account": "a",
                    "qos": "q",
                    "constraint": "a100&nvlink",
                    "gres": "gpu:a100",
                    "extra": ["--exclusive"],
                    "container": "wrapper",
                    "wrapper": ["apptainer", "docker://{image}"],
                    "fetch": ["pull"],
                    "bundle": "/b/{digest}",
                    "commands": "/opt/slurm/bin",
                    "poll": 2.5,
                },
                "kubernetes": {
                    "namespace": "canary",
                    "kubeconfig": "k",
                    "context": "stage",
                    "in_cluster": False,
                    "resource": "nvidia.com/mig-1g.10gb",
                    "node_selector": {"nvidia.com/gpu.product": "NVIDIA-L4"},
                    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
                    "queue": "canary",
                    "image_pull_secrets": ["registry"],
                    "service_account": "canary",
                    "runtime_class": "nvidia",
                    "images": {"gemm": "registry.example/gemm:1"},
                    "wait": "2h",
                },
            }
        ]
    },
}
# TOML tells 1 from 1.0 and so does the reader; to JSON Schema both are whole numbers.
_junk = st.sampled_from(
    [True, 0, -1, 1.5, 2**70, "", " ", "x", "A_b", "a\n", "a\0b", "é", "30d", "0d", "8GiB",
     "8GB", "24:00", "unix:///x", "http://x", "x" * 600, [], ["x"], [1], {}, {"x": "y"},
     {"unit": "ms"}]
)  # fmt: skip


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            found += _places(item, (*path, key))
    return found


@st.composite
def _mutants(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    kind = draw(st.sampled_from(sorted(GOOD)))
    body = copy.deepcopy(GOOD[kind])
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from(_places(body)))
        place: Any = body
        for step in path[:-1]:
            place = place[step]
        match draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace":
                place[path[-1]] = copy.deepcopy(draw(_junk))
            case "remove":
                del place[path[-1]]
            case "add" if isinstance(place, dict):
                place[draw(st.sampled_from(["extra", "reference", "x y", "output"]))] = (
                    copy.deepcopy(draw(_junk))
                )
        if not _places(body):
            break
    return kind, body


@given(_mutants())
def test_a_struct_accepts_exactly_what_its_schema_accepts(
    mutant: tuple[str, dict[str, Any]],
) -> None:
    kind, body = mutant
    by_schema = Draft202012Validator(validation.load_schema(kind)).is_valid(body)
    try:
        msgspec.convert(body, SHAPES[kind])
    except msgspec.ValidationError:
        by_struct = False
    else:
        by_struct = True
    assert by_struct == by_schema, body


@pytest.mark.parametrize("kind", sorted(GOOD))
def test_the_schemas_are_valid_and_describe_every_property(kind: str) -> None:
    schema = validation.load_schema(kind)
    Draft202012Validator.check_schema(schema)
    assert schema["$id"].endswith(f"/v1/{kind}.schema.json")

    def undescribed(part: Any, path: str) -> list[str]:
        found = []
        for name, child in part.get("properties", {}).items():
            if "description" not in child:
                found.append(f"{path}.{name}")
            found += undescribed(child, f"{path}.{name}")
        for key in ("items", "additionalProperties"):
            if isinstance(part.get(key), dict):
                found += undescribed(part[key], f"{path}[]")
        return found

    assert undescribed(schema, kind) == []
