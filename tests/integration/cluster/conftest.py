"""A served API server, the commands on it, and a local database with the example matrix."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from api_objects import Objects
from api_server import kubeconfig, serving

from compatgate.core.facts import Facts
from compatgate.documents.sources import read_paths
from compatgate.kit import kubernetes as cluster_api
from compatgate.kit.database.database import ENVIRONMENT, Database
from compatgate.kit.principal import Authorship
from compatgate.resources import matrix_dir
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.gate.questions.service import make_gate

Run = Callable[..., tuple[int, str, str]]
Body = dict[str, Any]


@pytest.fixture
def objects() -> Iterator[Objects]:
    """An API server."""
    with serving(Objects()) as running:
        yield running


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_api, "RETRY_PAUSES", (0.01, 0.02, 0.02))


@pytest.fixture(scope="module")
def stocked_database(tmp_path_factory: pytest.TempPathFactory, facts: Facts) -> Path:
    """A database with the example matrix."""
    path = tmp_path_factory.mktemp("stocked") / "gate.db"
    opened = open_rooms(str(path), overlays=[])
    by = Authorship("tester", "for the test")
    opened.matrix.import_documents(read_paths([matrix_dir() / "examples"]), by)
    opened.close()
    return path


@pytest.fixture
def rooms(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stocked_database: Path, facts: Facts
) -> Iterator[Rooms]:
    """The database that the commands use, with the example matrix."""
    path = str(tmp_path / "gate.db")
    shutil.copy(stocked_database, path)
    monkeypatch.setenv(ENVIRONMENT, path)
    monkeypatch.delenv("COMPATGATE_SERVER", raising=False)
    opened = Rooms(make_gate(Database.open(path), facts))
    yield opened
    opened.close()


@pytest.fixture
def run(command: Run, rooms: Rooms, objects: Objects, tmp_path: Path) -> Run:
    """``compatgate k8s`` on the cluster."""
    config = kubeconfig(tmp_path, objects.url)
    return lambda action, *arguments: command("k8s", action, "--kubeconfig", config, *arguments)


@pytest.fixture
def node(objects: Objects) -> Callable[..., Body]:
    """Adds a node of eight A100."""

    def add(name: str, driver: str | None = "535.183.01", **labels: str) -> Body:
        gpus = {
            "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
            "nvidia.com/gpu.count": "8",
            **({"nvidia.com/cuda.driver-version.full": driver} if driver else {}),
        }
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": gpus | labels, "annotations": {"a": "b"}},
            "spec": {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "64"}},
        }
        kubernetes_validate.validate(copy.deepcopy(body), "1.34", strict=True)
        objects.add("nodes", body)
        return body

    return add


@pytest.fixture
def pod(objects: Objects) -> Callable[..., Body]:
    """Adds a running pod that asks for a GPU."""

    def add(
        name: str,
        stack: str = "cuda=12.4,cudnn=9.1.0,torch=2.4.1+cu124",
        *,
        namespace: str = "ml-train",
        on: str = "a1",
        gpus: str = "1",
        **annotations: str,
    ) -> Body:
        notes = {"compatgate.dev/stack": stack, **annotations}
        limits = {"nvidia.com/gpu": gpus}
        image = "registry.example/team/app:1.2"
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "annotations": notes},
            "spec": {
                "nodeName": on,
                "containers": [{"name": "app", "image": image, "resources": {"limits": limits}}],
            },
            "status": {"phase": "Running"},
        }
        kubernetes_validate.validate(copy.deepcopy(body), "1.34", strict=True)
        objects.add("pods", body)
        return body

    return add
