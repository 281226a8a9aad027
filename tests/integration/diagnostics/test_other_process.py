"""``compatgate probe --pid``: another process, looked at from outside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compatgate.catalog import load_facts
from compatgate.cli.main import main
from compatgate.diagnostics.process import read_process
from compatgate.discovery import probe as machine
from compatgate.discovery.driver import KernelDriver
from compatgate.discovery.nvidia_smi import parse_nvidia_smi
from compatgate.errors import BadInput, NotFound

Build = Callable[..., Path]
Start = Callable[..., "subprocess.Popen[str]"]
Loading = Callable[..., str]

SMI = Path(__file__).parents[2] / "fixtures" / "nvidia_smi"
NCCL = 'const char *version = "NCCL version 2.21.5+cuda12.4";'


def probed(capsys: pytest.CaptureFixture[str], pid: int) -> dict[str, Any]:
    assert main(["probe", "--pid", str(pid), "--format", "json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_versions_come_from_names_and_texts(
    build: Build, started: Start, loading: Loading, capsys: pytest.CaptureFixture[str]
) -> None:
    process = started(
        loading(
            build("libcudart.so.12.4.127", cudaRuntimeGetVersion="12040"),
            build("libcudnn.so.9.1.0", cudnnGetVersion="90100"),
            build("libnccl.so.2", source=NCCL, ncclGetVersion="22105"),
        ),
        env={"CUDA_VISIBLE_DEVICES": "1", "SECRET": "hunter2"},
    )
    document = probed(capsys, process.pid)
    stack = document["stack"]
    assert (stack["cuda"], stack["cudnn"], stack["nccl"]) == ("12.4.127", "9.1.0", "2.21.5+cu124")
    assert stack["python"] == "{}.{}".format(*sys.version_info)
    assert "open" not in stack
    assert document["process"]["pid"] == process.pid
    assert document["process"]["environment"]["CUDA_VISIBLE_DEVICES"] == "1"
    assert "hunter2" not in json.dumps(document)


def test_a_library_whose_name_tells_the_major_alone_is_open(
    build: Build, started: Start, loading: Loading, capsys: pytest.CaptureFixture[str]
) -> None:
    process = started(loading(build("libcudnn.so.9", cudnnGetVersion="90100")))
    stack = probed(capsys, process.pid)["stack"]
    assert "cudnn" not in stack
    assert "its version is unknown, except its major, 9" in stack["open"][0]


def wheel_of(site: Path, name: str, version: str, *files: str) -> None:
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    info.joinpath("RECORD").write_text("".join(f"{file},,\n" for file in files))


def test_packages_count_only_where_a_file_of_theirs_is_loaded(
    build: Build,
    started: Start,
    loading: Loading,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    site = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    cudnn = build("libcudnn.so.9", folder=site / "nvidia" / "cudnn" / "lib", cudnnGetVersion="1")
    torch = build("libtorch_cuda.so", folder=site / "torch" / "lib", source="int t;")
    (site / "torch" / "version.py").write_text("__version__ = '2.4.1+cu121'\ncuda = '12.1'\n")
    wheel_of(site, "nvidia-cudnn-cu12", "9.1.0.70", "nvidia/cudnn/lib/libcudnn.so.9")
    wheel_of(site, "torch", "2.4.1", "torch/lib/libtorch_cuda.so")
    wheel_of(site, "tensorflow", "2.17.0", "tensorflow/libtensorflow_cc.so.2")
    stack = probed(capsys, started(loading(cudnn, torch)).pid)["stack"]
    assert stack["cudnn"] == "9.1.0.70+cu12"
    assert (stack["torch"], stack["cuda"]) == ("2.4.1+cu121", "12.1")
    assert "tensorflow" not in stack
    assert "open" not in stack


def test_a_framework_without_metadata_is_open(
    build: Build,
    started: Start,
    loading: Loading,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    library = build("libtensorflow_cc.so.2", folder=site / "tensorflow", source="int t;")
    stack = probed(capsys, started(loading(library)).pid)["stack"]
    assert stack["open"][0].startswith("tensorflow: ")


def test_gpu_code_is_read_of_every_file_outside_nvidias_own(
    build: Build, started: Start, loading: Loading, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged fatbinary says so; NVIDIA's libraries are told by their versions."""
    damaged = '__attribute__((section(".nv_fatbin"), used)) char code[64] = "no fatbinary";'
    mine = build("libcustom_kernels.so", source=damaged)
    theirs = build("libcublas.so.12.4.5.8", source=damaged)
    stack = probed(capsys, started(loading(mine, theirs)).pid)["stack"]
    (sentence,) = stack["open"]
    assert "libcustom_kernels.so cannot be read and may hold GPU code" in sentence
    assert stack["cublas"] == "12.4.5.8"


def test_the_gpus_left_by_the_process_own_choice_are_its_pools(
    build: Build,
    started: Start,
    loading: Loading,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = parse_nvidia_smi((SMI / "table-r550-a100-mixed-mig.txt").read_text())
    kernel = KernelDriver("550.163.01", True, "/proc/driver/nvidia/version")
    monkeypatch.setattr(machine, "read_nvml", lambda: report)
    monkeypatch.setattr(machine, "read_kernel_driver", lambda: kernel)
    library = build("libcuda.so.555.42.06", cuDriverGetVersion="12050")
    chosen = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    process = started(loading(library), env=chosen)
    document = probed(capsys, process.pid)
    assert [device["bus"] for device in document["process"]["devices"]] == [report.devices[0].bus]
    assert all(pool["driver"] == "550.163.01" for pool in document["pools"])
    assert "555.42.06 is loaded over driver 550.163.01" in document["stack"]["open"][0]


def test_a_file_that_was_replaced_since_is_read_as_it_was(
    build: Build,
    started: Start,
    loading: Loading,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if os.getuid() != 0:
        pytest.skip("/proc/PID/map_files is for root")
    path = build("libnccl.so.2", source=NCCL)
    newer = build("libnccl.so.2", folder=tmp_path / "new", source=NCCL.replace("2.21.5", "2.99.1"))
    process = started(loading(path))
    newer.replace(path)
    assert probed(capsys, process.pid)["stack"]["nccl"] == "2.21.5+cu124"


def test_a_process_with_another_root_is_read_through_it(
    build: Build, started: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The metadata of a package in its root count; a link that leaves it does not."""
    if os.getuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare")
    root = tmp_path / "root"
    site = root / "opt" / "lib" / "python3.11" / "site-packages"
    library = build("libcudnn.so.9", folder=site / "nvidia" / "cudnn" / "lib", cudnnGetVersion="1")
    wheel_of(site, "nvidia-cudnn-cu12", "9.1.0.70", "nvidia/cudnn/lib/libcudnn.so.9")
    outside = tmp_path / "outside"
    wheel_of(outside, "nvidia-cudnn-cu12", "9.99.0.1", "nvidia/cudnn/lib/libcudnn.so.9")
    info = site / "nvidia_cudnn_cu12-9.1.0.70.dist-info" / "METADATA"
    (root / "metadata").write_bytes(info.read_bytes())
    info.unlink()
    info.symlink_to("/metadata")
    inside = "/" + str(library.relative_to(root))
    program = (
        f"import ctypes, os, sys, encodings.idna; os.chroot({str(root)!r}); os.chdir('/');"
        f"ctypes.CDLL({inside!r}); print('ready', flush=True); sys.stdin.read()"
    )
    process = started(program, prefix=("unshare", "--mount"))
    document = probed(capsys, process.pid)
    assert document["process"]["container"] is True
    assert document["stack"]["cudnn"] == "9.1.0.70+cu12"


def test_a_program_without_cuda_has_an_empty_stack(
    started: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    process = started("import sys; print('ready', flush=True); sys.stdin.read()")
    assert main(["probe", "--pid", str(process.pid)]) == 0
    out = capsys.readouterr().out
    assert f"process {process.pid}" in out


def test_a_process_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--pid", "2147483646"]) == 2
    assert "process 2147483646 does not exist" in capsys.readouterr().err


def test_a_process_that_has_ended_is_said_to_have() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    while Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.02)
    with pytest.raises(BadInput, match="has ended"):
        read_process(child.pid)
    child.wait()
    with pytest.raises(NotFound):
        read_process(child.pid)


def test_a_thread_of_the_kernel_is_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "2"
    folder.mkdir()
    (folder / "stat").write_text("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0")
    with pytest.raises(BadInput, match="kernel thread"):
        read_process(2, proc=str(tmp_path))


def test_a_process_of_another_user_needs_rights(started: Start) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root, to become somebody else")
    process = started("import sys; print('ready', flush=True); sys.stdin.read()")
    program = (
        "import os, sys; from compatgate.cli.main import main;"
        "main(['probe', '--pid', str(os.getpid())]);"
        f"os.setgid(65534); os.setuid(65534); sys.exit(main(['probe', '--pid', '{process.pid}']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "permission to inspect process" in done.stderr
    assert "CAP_SYS_PTRACE" in done.stderr


@pytest.mark.parametrize("text", ["0", "-1", "x", "99999999999", "1.5", ""])
def test_what_is_no_number_of_a_process_is_refused(text: str) -> None:
    assert main(["probe", f"--pid={text}"]) == 2


def test_this_very_process_is_read_as_any_other() -> None:
    view = read_process(os.getpid(), load_facts([]).arch)
    assert view.process.pid == os.getpid()
    assert view.process.python == "{}.{}".format(*sys.version_info)
