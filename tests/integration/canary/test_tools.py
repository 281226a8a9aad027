"""The program beside a tool: it runs the tool as it is and says what was loaded meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec import structs

from compatgate.canary.engine.conclude import ExecutionEnd, conclude_step
from compatgate.canary.protocol import read_report
from compatgate.canary.run import Report
from compatgate.canary.workloads.library import read_workload
from compatgate.resources import canary_dir

from .test_programs import CUDA, NVML

SAMPLES = Path(__file__).parents[2] / "unit/canary/protocol/samples"
NCCL = "int ncclGetVersion(int *version) { *version = 22105; return 0; }"
LINGERS = "import ctypes, sys, time; ctypes.CDLL(sys.argv[1]); time.sleep(0.5)"


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stand-ins of NVML, of the CUDA driver library, and of NCCL."""
    if shutil.which("gcc") is None:
        reason = "gcc is not installed"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("libraries")
    defines = [f"-D{name}=0" for name in ("INIT", "MIG", "ECC", "CUINIT", "OTHER")]
    for name, text in (
        ("libnvidia-ml.so.1", NVML),
        ("libcuda.so.1", CUDA),
        ("libnccl.so.2", NCCL),
    ):
        source = folder / f"{name}.c"
        source.write_text(text)
        command = ["gcc", "-shared", "-fPIC", "-w", *defines, "-o", folder / name, source]
        subprocess.run(command, check=True)
    return folder


def _started(libraries: Path | None, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(canary_dir() / "lib" / "canary_tool.py"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "LD_LIBRARY_PATH": str(libraries or "")},
    )


def _run(
    workload: str, libraries: Path | None, *arguments: str, status: int = 0
) -> tuple[bytes, Report]:
    child = _started(libraries, *arguments)
    output = child.communicate(timeout=60)[0]
    assert child.returncode == status, output.decode()
    return output, read_report([output], read_workload(canary_dir() / workload))


def test_the_output_is_the_tools_own_with_one_line_behind_it(
    libraries: Path, tmp_path: Path
) -> None:
    sample = tmp_path / "sample"
    text = (SAMPLES / "nvbandwidth-v0.5.json").read_text()
    sample.write_text(text.replace("565.02", "535.104.05"))  # the stand-in's driver
    output, report = _run("nvbandwidth", libraries, "--", "cat", str(sample))
    assert output.startswith(sample.read_bytes())
    assert output[len(sample.read_bytes()) :].count(b"\n") == 2
    assert report.problems == ()
    assert report.env is not None
    assert report.env.driver == "535.104.05"
    assert [gpu.name for gpu in report.env.gpus] == ["NVIDIA A100-SXM4-40GB"] * 2
    workload = read_workload(canary_dir() / "nvbandwidth")
    copied = "host_to_device_memcpy_ce-min"  # of the cases that the workload runs, the sample's
    workload = structs.replace(workload, metrics={copied: workload.metrics[copied]})
    assert conclude_step(workload, ExecutionEnd("exited", 0), report).outcome == "passed"


def test_libraries_that_the_tools_children_load_are_asked_for_their_version(
    libraries: Path,
) -> None:
    library = str(libraries / "libnccl.so.2")
    inner = f'"{sys.executable}" -c "{LINGERS}" {library}; true'
    _, report = _run("nvbandwidth", libraries, "--", "sh", "-c", inner)
    assert report.env is not None
    assert report.env.versions == {"nccl": "2.21.5"}
    assert report.env.paths == {"nccl": library}


def test_a_tool_that_brings_its_own_libraries_says_nothing_of_the_stacks(libraries: Path) -> None:
    tool = (sys.executable, "-c", LINGERS, str(libraries / "libnccl.so.2"))
    _, report = _run("dcgm-diag", libraries, "--driver-only", "--", *tool)
    assert report.env is not None
    assert report.env.versions == {}
    assert report.env.driver == "535.104.05"


@pytest.mark.parametrize(("linked", "outcome"), [(True, "inconclusive"), (False, "failed")])
def test_a_cuda_too_new_for_the_driver_is_the_tools_only_if_it_is_linked_into_it(
    libraries: Path, tmp_path: Path, *, linked: bool, outcome: str
) -> None:
    (tmp_path / "runtime.c").write_text(
        'const char *why(void) { return "CUDA driver version is insufficient for CUDA runtime'
        ' version"; }'
    )
    (tmp_path / "tool.c").write_text(
        "#include <stdio.h>\nconst char *why(void);\n"
        'int main(void) { fprintf(stderr, "[cudaErrorInsufficientDriver] %s in expression f() in'
        ' main() : a.cpp:1\\n", why()); return 1; }'
    )
    made = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcudart.so.12", "-o", "libcudart.so.12"]
    subprocess.run([*made, "runtime.c"], cwd=tmp_path, check=True)
    runtime = ["runtime.c"] if linked else ["libcudart.so.12", f"-Wl,-rpath,{tmp_path}"]
    subprocess.run(["gcc", "-o", "tool", "tool.c", *runtime], cwd=tmp_path, check=True)
    tool = str(tmp_path / "tool")
    output, report = _run("nvbandwidth", libraries, "--driver-only", "--", tool, status=1)
    assert b"[cudaErrorInsufficientDriver]" in output
    verdict = conclude_step(
        read_workload(canary_dir() / "nvbandwidth"), ExecutionEnd("exited", 1), report
    )
    assert verdict.outcome == outcome
    assert ("the tool, not the stack" in verdict.reason) == linked


def test_it_is_repeated_and_its_files_are_printed_and_removed(
    libraries: Path, tmp_path: Path
) -> None:
    table = SAMPLES / "nccl-all-reduce-h100-nvl.txt"
    log = "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read"
    script = f"cat {table}; echo '{log}' > {tmp_path}/nccl.$$"
    options = ("--repeat", "3", "--print", f"{tmp_path}/nccl.*")
    output, report = _run("nccl-tests", libraries, *options, "--", "sh", "-c", script)
    assert output.count(b"# Collective test concluded") == 3
    assert report.problems == ()
    assert {c.name: c.ok for c in report.checks} == {"right": True, "transport": True}
    assert report.env is not None
    assert report.env.other["transports"] == {"P2P/CUMEM": 3}
    assert list(tmp_path.iterdir()) == []


def test_the_exit_status_is_the_tools_and_the_env_line_stands_all_the_same(
    libraries: Path,
) -> None:
    for script, status in (("exit 3", 3), ("kill -SEGV $$", 139)):
        _, report = _run("nvbandwidth", libraries, "--", "sh", "-c", script, status=status)
        assert report.env is not None
        assert report.env.driver == "535.104.05"


def test_a_tool_that_fails_is_not_repeated(libraries: Path) -> None:
    script = "echo once; exit 4"
    output, _ = _run("nvbandwidth", libraries, "--repeat", "5", "--", "sh", "-c", script, status=4)
    assert output.startswith(b"once\n\n{")


def test_a_tool_that_is_not_there_is_said_in_one_line(libraries: Path) -> None:
    output, _ = _run("nvbandwidth", libraries, "--", "/no/such/tool", status=78)
    assert output.startswith(
        b"cannot run /no/such/tool: No such file or directory\nnothing to test"
    )


def test_a_library_that_the_image_lacks_says_nothing_against_the_stack(
    libraries: Path, tmp_path: Path
) -> None:
    source = tmp_path / "tool.c"
    source.write_text("int ncclGetVersion(int *); int main() { int v; return ncclGetVersion(&v); }")
    tool = tmp_path / "tool"
    library = libraries / "libnccl.so.2"
    own = tmp_path / "libgone.so.1"
    shutil.copy(library, own)
    subprocess.run(["gcc", "-o", tool, source, own], check=True)
    own.unlink()
    output, report = _run("nccl-tests", libraries, "--", str(tool), status=78)
    assert b"nothing to test" in output
    workload = read_workload(canary_dir() / "nccl-tests")
    verdict = conclude_step(workload, ExecutionEnd("exited", 78), report)
    assert verdict.outcome == "inconclusive"
    assert verdict.reason == "printed unreadable output: the output has no table of nccl-tests"


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="there is a GPU here")
@pytest.mark.parametrize("workload", ["nccl-tests", "nvbandwidth", "dcgm-diag"])
def test_without_a_gpu_the_tool_is_not_run(workload: str) -> None:
    output, report = _run(workload, None, "--", "echo", "ran", status=77)
    assert output == b"no GPU that this process may use\n"
    assert report.env is None


@pytest.mark.parametrize("arguments", [("--",), ("--repeat", "0", "--", "true"), ()])
def test_bad_arguments_end_with_2(libraries: Path, arguments: tuple[str, ...]) -> None:
    child = _started(libraries, *arguments)
    child.communicate(timeout=60)
    assert child.returncode == 2


def test_a_polite_end_reaches_the_tool(libraries: Path) -> None:
    child = _started(libraries, "--", "sh", "-c", "echo up; exec sleep 60")
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    time.sleep(0.1)
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=10)
    assert child.returncode == 128 + signal.SIGTERM
