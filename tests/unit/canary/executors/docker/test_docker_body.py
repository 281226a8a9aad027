"""The request that creates a container, and the engine's answers in our words.

A log that breaks off: the program's doing after a flood, the engine's failure otherwise.
"""

from __future__ import annotations

import io
import struct
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from docker.errors import APIError

from compatgate.canary.executors import EXECUTORS, Job, docker, open_executor
from compatgate.canary.executors.docker import containers
from compatgate.canary.executors.docker.engine import missing_image_error, translate_start_errors
from compatgate.canary.hosts import Host, Slurm
from compatgate.canary.protocol.jsonl import LOST_LINE
from compatgate.canary.workload import ImageSpec, Limits, Workload
from compatgate.errors import CompatgateError, InfrastructureError, NotFound

WORKLOAD = Workload("w", "", ("./run", "{seed}"), ImageSpec(True), limits=Limits(cpus=1.5), gpus=1)


def _body(config: dict[str, Any] | None = None, **job: Any) -> dict[str, Any]:
    made = Job("run_1", 2, "w-0", **{"workload": WORKLOAD, "gpu_slots": (0, 1), **job})
    return containers.make_container_body(
        made, "img@sha256:0", config or {}, "vol", job.pop("devices", "request")
    )


def test_a_container_gets_nothing_that_it_does_not_need() -> None:
    body = _body()
    host = body["HostConfig"]
    assert (body["User"], body["Entrypoint"], body["Cmd"]) == ("65534:65534", ["./run", "0"], [])
    assert body["NetworkDisabled"]
    assert host["NetworkMode"] == "none"
    assert host["ReadonlyRootfs"]
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["Memory"] == host["MemorySwap"] == 8 << 30
    assert host["PidsLimit"] == 1024
    assert host["NanoCpus"] == 1_500_000_000
    assert "Binds" not in host
    assert [(m["Source"], m["ReadOnly"]) for m in host["Mounts"]] == [("vol", True)]
    assert host["LogConfig"]["Type"] == "local"
    assert body["Labels"]["dev.compatgate.run"] == "run_1"


@pytest.mark.parametrize(
    ("image", "wanted", "user"),
    [
        ("", "nobody", "65534:65534"),
        ("root", "nobody", "65534:65534"),
        ("0:0", "nobody", "65534:65534"),
        ("triton", "nobody", "triton"),
        ("", "image", ""),
        ("1000:1000", "image", "1000:1000"),
    ],
)
def test_the_user_is_the_images_unless_that_is_root(image: str, wanted: str, user: str) -> None:
    workload = msgspec.structs.replace(WORKLOAD, user=wanted)
    assert _body({"User": image}, workload=workload)["User"] == user


def test_volumes_of_the_image_are_in_memory() -> None:
    tmpfs = _body({"Volumes": {"/data": {}, "/compatgate/x": {}, "/tmp/y": {}}})["HostConfig"]
    assert set(tmpfs["Tmpfs"]) == {"/tmp", "/data"}


def test_without_slots_no_gpu_is_given_even_to_an_image_that_wants_all() -> None:
    body = _body(gpu_slots=())
    assert body["HostConfig"]["DeviceRequests"] == []
    assert "NVIDIA_VISIBLE_DEVICES=void" in body["Env"]


def test_gpus_by_cdi_name() -> None:
    job = Job("r", 1, "s", WORKLOAD, gpu_slots=(3,))
    body = containers.make_container_body(job, "img@sha256:0", {}, "vol", "cdi")
    (request,) = body["HostConfig"]["DeviceRequests"]
    assert request == {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=3"]}


@pytest.mark.parametrize(
    ("stated", "requested"),
    [
        (None, ["gpu"]),
        ("", ["gpu"]),
        ("all", ["gpu"]),
        ("compute,utility,video", ["gpu"]),
        ("compute, video", ["gpu", "compute", "video", "utility"]),
        ("compute,ngx", ["gpu", "compute", "utility"]),
    ],
)
def test_an_image_gets_the_parts_of_the_driver_that_it_states_and_nvml(
    stated: str | None, requested: list[str]
) -> None:
    config = {} if stated is None else {"Env": [f"NVIDIA_DRIVER_CAPABILITIES={stated}"]}
    (request,) = _body(config)["HostConfig"]["DeviceRequests"]
    assert request["Capabilities"] == [requested]


def test_an_engine_that_cannot_limit_is_refused() -> None:
    good = {"MemoryLimit": True, "PidsLimit": True, "ServerVersion": "24.0.7"}
    job = Job("r", 1, "s", WORKLOAD, gpu_slots=(0,))
    containers.check_engine(good, Host("h"), job)
    with pytest.raises(CompatgateError, match="cannot limit memory"):
        containers.check_engine({**good, "MemoryLimit": False}, Host("h"), job)
    with pytest.raises(CompatgateError, match=r"is 24\.0\.7 and does not support CDI"):
        containers.check_engine(good, Host("h", devices="cdi"), job)
    containers.check_engine({**good, "ServerVersion": "27.1.1"}, Host("h", devices="cdi"), job)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            'could not select device driver "nvidia" with capabilities: [[gpu]]',
            "Toolkit is missing",
        ),
        ('could not select device driver "cdi"', "by its CDI name"),
        ("CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=9", "CDI name"),
        ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4", "refuses"),
        ('exec: "nvcc": executable file not found in $PATH: unknown', "cannot run 'nvcc'"),
        ("exec ./nvcc: no such file or directory", "cannot run 'nvcc'"),
        ("exec /x: exec format error", "cannot run 'nvcc'"),
    ],
)
def test_what_an_engine_lacks_is_no_infrastructure_error(said: str, expected: str) -> None:
    with pytest.raises(CompatgateError) as caught, translate_start_errors("nvcc", "stage"):
        raise APIError("500", explanation=said)
    assert not isinstance(caught.value, InfrastructureError)
    assert expected in caught.value.problem


def test_other_errors_at_the_start_may_pass() -> None:
    with pytest.raises(APIError), translate_start_errors("x", "stage"):
        raise APIError("500", explanation="containerd: connection refused")


@pytest.mark.parametrize(
    ("said", "final"),
    [
        ("manifest for x:1 not found: manifest unknown", True),
        ("pull access denied for x, repository does not exist or may require 'docker login'", True),
        ("no matching manifest for linux/amd64 in the manifest list entries", True),
        ("unauthorized: authentication required", True),
        ("toomanyrequests: You have reached your pull rate limit", False),
        ('Get "https://r/v2/": dial tcp: lookup r: no such host', False),
        ("net/http: TLS handshake timeout", False),
        ("received unexpected HTTP status: 503 Service Unavailable", False),
    ],
)
def test_registries_answers_are_final_or_not(said: str, final: bool) -> None:
    assert (missing_image_error("x:1", said) is not None) == final
    assert isinstance(missing_image_error("x:1", said), NotFound) == final


def test_every_kind_of_executor_opens_without_talking_to_its_host() -> None:
    for kind in EXECUTORS:
        executor = open_executor(Host("h", executor=kind, slurm=Slurm("/shared")))  # type: ignore[arg-type]
        assert executor.kind == kind
        executor.close()


class Api:
    """An engine whose log ends, perhaps within a frame, while the container still runs."""

    base_url, api_version = "http://engine", "1.41"

    def __init__(self, lines, cut, runs_on):
        self.raw = b"".join(struct.pack(">BxxxL", 1, len(line)) + line for line in lines) + cut
        self.runs_on = runs_on

    def inspect_container(self, container):
        self.runs_on -= 1
        state = "running" if self.runs_on > 0 else "exited"
        config = {"LogConfig": {"Config": {"max-size": "1000"}}}
        return {"HostConfig": config, "State": {"Status": state}}

    def get(self, url, **options):
        return SimpleNamespace(raw=io.BytesIO(self.raw), close=lambda: None)

    def _raise_for_status(self, response):
        pass


@pytest.mark.parametrize("cut", [b"", b"\1\0\0"])
def test_a_log_that_breaks_off_in_a_flood_is_read_to_the_containers_end(monkeypatch, cut):
    monkeypatch.setattr(docker, "_ENDING_S", 0.0)
    line = b"x" * 599 + b"\n"
    api = Api([line] * 3, cut, runs_on=5)
    assert b"".join(docker.follow_log(api, "c", lambda: False)).count(LOST_LINE) == 1
    assert api.runs_on <= 0, "it waited for the container"


def test_a_log_that_breaks_off_otherwise_is_the_engines_failure(monkeypatch):
    monkeypatch.setattr(docker, "_ENDING_S", 0.0)
    with pytest.raises(InfrastructureError):
        list(docker.follow_log(Api([b"few\n"], b"", runs_on=9), "c", lambda: False))
    with pytest.raises(EOFError):
        list(docker.follow_log(Api([b"few\n"], b"\1\0", runs_on=9), "c", lambda: False))
