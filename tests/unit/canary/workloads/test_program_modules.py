"""What programs read of the machine: file systems, ways to share a GPU, networks of NCCL."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import pytest

from compatgate.resources import canary_dir

ROOT = Path(__file__).parents[4]
MOUNTS = """\
overlay / overlay rw 0 0
tmpfs /tmp tmpfs rw 0 0
/dev/vdb /tmp/with\\040space ext4 rw 0 0
/dev/vdc /models xfs rw 0 0
"""


@pytest.fixture
def module_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], ModuleType]]:
    """Import a module of a workload as its program does."""
    before = set(sys.modules)

    def load(workload: str, name: str) -> ModuleType:
        path = [str(canary_dir() / workload), str(canary_dir() / "lib"), *sys.path]
        monkeypatch.setattr(sys, "path", path)
        return import_module(name)

    yield load
    for name in set(sys.modules) - before:
        if name.startswith("canary_") or name in ("storage", "sharing", "networks"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/tmp", "overlay"),
        ("/tmp", "tmpfs"),
        ("/tmp/some/folder", "tmpfs"),
        ("/tmp/with space/folder", "ext4"),
        ("/models", "xfs"),
        ("/models-of-others", "overlay"),
    ],
)
def test_a_folder_is_on_the_file_system_of_the_nearest_mount(
    folder: str, kind: str, tmp_path: Path, module_of: Callable[[str, str], ModuleType]
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    assert module_of("model-load", "storage").file_system(folder, mounts) == kind


def test_the_file_system_is_unknown_where_mounts_cannot_be_read(
    tmp_path: Path, module_of: Callable[[str, str], ModuleType]
) -> None:
    assert module_of("model-load", "storage").file_system("/tmp", tmp_path / "none") == "?"


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder of the repository: the temporary folder may be in memory."""
    above = ROOT / "build"
    above.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=above) as folder:
        yield Path(folder)


def test_the_page_cache_of_a_file_is_seen_and_emptied(
    on_disk: Path, module_of: Callable[[str, str], ModuleType]
) -> None:
    storage = module_of("model-load", "storage")
    if storage.file_system(str(on_disk)) in storage.IN_MEMORY:
        pytest.skip("the repository is in memory")
    file = on_disk / "weights"
    file.write_bytes(os.urandom(1 << 20))
    assert storage.resident(file) == 1.0
    storage.drop(file)
    assert storage.resident(file) < 1.0


def test_mps_is_told_by_the_pipe_of_its_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module_of: Callable[[str, str], ModuleType]
) -> None:
    sharing = module_of("shared-gpu", "sharing")
    monkeypatch.setattr(sharing, "_slices", list)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert sharing.find_mode("cuda") == ("time slices", None)
    os.mkfifo(tmp_path / "control")
    assert sharing.find_mode("cuda") == ("mps", None)
    assert sharing.find_mode("cpu") == ("cpu", None)


def test_a_second_slice_becomes_the_neighbours(
    monkeypatch: pytest.MonkeyPatch, module_of: Callable[[str, str], ModuleType]
) -> None:
    sharing = module_of("shared-gpu", "sharing")
    monkeypatch.setattr(sharing, "_slices", lambda: ["MIG-a", "MIG-b"])
    assert sharing.find_mode("cuda") == ("mig", "MIG-b")


@pytest.mark.parametrize(
    ("way", "device", "ok", "said"),
    [
        ("NET/IB/0/GDRDMA", "mlx5_0", True, "NET/IB x 2; RDMA devices: mlx5_0"),
        ("NET/Socket/0", "mlx5_0", False, "NET/Socket x 2; RDMA devices: mlx5_0"),
        ("P2P/CUMEM", "mlx5_0", False, "none named; RDMA devices: mlx5_0"),
        ("NET/Socket/0", None, None, "NET/Socket x 2; no RDMA device in this container"),
    ],
)
def test_sockets_between_nodes_are_wrong_where_there_is_an_rdma_device(
    way: str,
    device: str | None,
    ok: bool | None,
    said: str,
    tmp_path: Path,
    module_of: Callable[[str, str], ModuleType],
) -> None:
    networks = module_of("nccl-nodes", "networks")
    line = f"node:7:9 [0] NCCL INFO Channel 0{{}}/0 : 0[0] -> 1[0] [send] via {way}\n"
    (tmp_path / "nccl.node.7").write_text(line.format(0) + "NCCL INFO Bootstrap\n" + line.format(1))
    devices = tmp_path / "infiniband"
    if device:
        (devices / device).mkdir(parents=True)
    assert networks.judge(networks.read(tmp_path), devices) == (ok, said)
