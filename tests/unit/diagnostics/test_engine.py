"""Which GPUs a container was given, by what the engine says of it."""

from __future__ import annotations

from typing import Any

import pytest

from compatgate.diagnostics.container import granted_gpus

GPU = [["gpu"]]


@pytest.mark.parametrize(
    ("host", "environment", "runtime", "wanted"),
    [
        ({}, [], "runc", None),
        ({"DeviceRequests": [{"Count": -1, "Capabilities": GPU}]}, [], "runc", "all"),
        ({"DeviceRequests": [{"Count": 2, "Capabilities": GPU}]}, [], "runc", "0,1"),
        ({"DeviceRequests": [{"DeviceIDs": ["1"], "Capabilities": GPU}]}, [], "runc", "1"),
        (
            {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]},
            [],
            "runc",
            "all",
        ),
        ({"DeviceRequests": None}, ["NVIDIA_VISIBLE_DEVICES=all"], "runc", None),
        ({"Runtime": "nvidia"}, ["NVIDIA_VISIBLE_DEVICES=0,1"], "runc", "0,1"),
        ({"Runtime": ""}, ["NVIDIA_VISIBLE_DEVICES=all"], "nvidia", "all"),
        ({"Runtime": "runc"}, ["NVIDIA_VISIBLE_DEVICES=all"], "nvidia", None),
        ({"Privileged": True}, [], "runc", "all"),
        (
            {"Devices": [{"PathOnHost": "/dev/nvidia3"}, {"PathOnHost": "/dev/nvidiactl"}]},
            [],
            "runc",
            "3",
        ),
    ],
)
def test_gpus_are_given_by_request_runtime_or_device(
    host: dict[str, Any], environment: list[str], runtime: str, wanted: str | None
) -> None:
    assert granted_gpus(host, environment, runtime) == wanted
