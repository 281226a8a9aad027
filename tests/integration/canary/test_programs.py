"""The shipped programs run bare, and tell what a driver says; here a stand-in of NVML says it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from compatgate.canary.engine.conclude import ExecutionEnd, conclude_step
from compatgate.canary.protocol import read_report
from compatgate.canary.run import Device, Report
from compatgate.canary.workloads.library import read_workload
from compatgate.resources import canary_dir

NVML = r"""
#include <string.h>
typedef struct { char legacy[16]; unsigned a, b, c, d, e; char bus[32]; } pci;
typedef struct { unsigned long long total, free, used; } memory;
static int one, two;
int nvmlInit_v2(void) { return INIT; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return "Driver/library version mismatch"; }
int nvmlSystemGetDriverVersion(char *t, unsigned n) { strcpy(t, "535.104.05"); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 12020; return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = i ? &two : &one; return 0; }
int nvmlDeviceGetName(void *d, char *t, unsigned n) {
    strcpy(t, d == &one || d == &two ? "NVIDIA A100-SXM4-40GB"
                                     : "NVIDIA A100-SXM4-40GB MIG 1g.5gb"); return 0; }
int nvmlDeviceGetUUID(void *d, char *t, unsigned n) {
    strcpy(t, d == &one || d == &two ? "GPU-1" : "MIG-abababab-abab-abab-abab-abababababab");
    return 0; }
int nvmlDeviceGetPciInfo_v3(void *d, pci *p) {
    strcpy(p->bus, d == &one ? "00000000:9B:00.0" : "00000000:9C:00.0"); return 0; }
int nvmlDeviceGetMemoryInfo(void *d, memory *m) { m->total = 42949672960ULL; return 0; }
int nvmlDeviceGetCudaComputeCapability(void *d, int *a, int *b) { *a = 8; *b = 0; return 0; }
int nvmlDeviceGetMigMode(void *d, unsigned *c, unsigned *p) { *c = MIG && d == &one; return 0; }
int nvmlDeviceGetMaxMigDeviceCount(void *d, unsigned *n) { *n = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *d, unsigned i, void **m) {
    static int slice; *m = &slice; return i ? 6 : 0; }
int nvmlDeviceGetEccMode(void *d, unsigned *c, unsigned *p) { *c = 1; return 0; }
int nvmlDeviceGetTotalEccErrors(void *d, int t, int k, unsigned long long *n) {
    *n = t == 1 && k == 0 && d == &two ? ECC : 0; return 0; }
int nvmlDeviceGetNvLinkState(void *d, unsigned l, unsigned *a) {
    *a = l < 12; return l < 12 ? 0 : 2; }
int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, int *l) { *l = 30; return 0; }
"""
CUDA = r"""
#include <stdlib.h>
#include <string.h>
int cuInit(unsigned f) { return CUINIT; }
int cuDeviceGetCount(int *n) { *n = getenv("CUDA_VISIBLE_DEVICES") ? 1 : 2; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetName(char *t, int n, int d) { strcpy(t, "NVIDIA A100 MIG 1g.5gb"); return 0; }
int cuDeviceGetPCIBusId(char *t, int n, int d) { strcpy(t, "0000:9B:00.0"); return 0; }
int cuDeviceTotalMem_v2(size_t *n, int d) { *n = 1; return 0; }
int cuDeviceGetAttribute(int *v, int w, int d) { *v = 8; return 0; }
int cuDeviceGetUuid_v2(unsigned char *u, int d) { memset(u, OTHER ? 0xcd : 0xab, 16); return 0; }
int cuGetErrorName(int c, const char **t) { *t = "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE";
    return 0; }
"""


def _run(name: str, libraries: Path | None = None, status: int = 0, **more: str) -> Report:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries or ""), **more}
    done = subprocess.run(
        [sys.executable, canary_dir() / name / "program.py"],
        capture_output=True,
        env=environment,
        check=False,
    )
    assert done.returncode == status, done.stderr.decode()
    return read_report([done.stdout], read_workload(canary_dir() / name))


def _without_gcc() -> None:
    reason = "gcc is not installed"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def driver(tmp_path: Path) -> Callable[..., Path]:
    """A folder with stand-ins of NVML and of the CUDA driver library."""
    if shutil.which("gcc") is None:
        _without_gcc()

    def build(**settings: int) -> Path:
        defines = {"INIT": 0, "MIG": 0, "ECC": 0, "CUINIT": 0, "OTHER": 0, **settings}
        for name, text in (("libnvidia-ml.so.1", NVML), ("libcuda.so.1", CUDA)):
            source = tmp_path / f"{name}.c"
            source.write_text(text)
            flags = [f"-D{key}={value}" for key, value in defines.items()]
            command = ["gcc", "-shared", "-fPIC", "-w", *flags, "-o", tmp_path / name, source]
            subprocess.run(command, check=True)
        return tmp_path

    return build


def _failed(report: Report) -> dict[str, str]:
    return {check.name: check.message for check in report.checks if not check.ok}


def test_every_shipped_program_runs_bare_and_keeps_to_its_manifest() -> None:
    report = _run("hello-cpu")
    assert report.problems == ()
    assert report.env is not None
    assert report.env.gpus == ()
    assert {check.name for check in report.checks} == {"digest", "repeatable", "scratch"}
    assert _failed(report) == {}


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="there is a GPU here")
def test_without_a_gpu_device_visible_says_so_in_one_line() -> None:
    report = _run("device-visible", status=77)
    assert report == Report(lines=1)


def test_devices_are_reported_as_nvml_has_them(driver: Callable[..., Path]) -> None:
    report = _run("device-visible", driver())
    assert report.problems == ()
    assert report.env is not None
    assert report.env.driver == "535.104.05"
    assert report.env.gpus[0] == Device(
        name="NVIDIA A100-SXM4-40GB",
        uuid="GPU-1",
        pci="00000000:9b:00.0",
        memory_bytes=40 << 30,
        compute_capability="8.0",
    )
    assert report.env.other["topology"] == [[0, 1, "hostbridge"]]
    assert report.env.other["devices"][1]["nvlinks"] == 12
    assert _failed(report) == {}
    assert {check.name for check in report.checks} == {
        "seen",
        "driver-agrees",
        "cuda-agrees",
        "slices",
        "ecc",
    }


def test_where_mig_is_on_the_slices_are_what_can_be_used(driver: Callable[..., Path]) -> None:
    report = _run("device-visible", driver(MIG=1))
    assert report.env is not None
    assert [gpu.mig for gpu in report.env.gpus] == ["1g.5gb", None]
    assert _failed(report) == {}


def test_a_uuid_that_opens_another_slice_is_found(driver: Callable[..., Path]) -> None:
    found = _failed(_run("device-visible", driver(MIG=1, OTHER=1)))
    assert set(found) == {"slices"}
    assert "MIG-cdcdcdcd" in found["slices"]


def test_errors_of_the_gpu_are_the_hosts_fault(driver: Callable[..., Path]) -> None:
    report = _run("device-visible", driver(ECC=3))
    workload = read_workload(canary_dir() / "device-visible")
    verdict = conclude_step(workload, ExecutionEnd("exited", 0), report)
    assert verdict.outcome == "inconclusive"
    assert verdict.reason == "the host, not the stack: check ecc failed: 00000000:9c:00.0: 3"


def test_what_is_wrong_with_the_driver_fails_a_check(driver: Callable[..., Path]) -> None:
    ecc = _failed(_run("device-visible", driver(ECC=3)))
    assert ecc == {"ecc": "00000000:9c:00.0: 3"}
    cuda = _failed(_run("device-visible", driver(CUINIT=804)))
    assert cuda == {"cuda-agrees": "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE (804)"}
    mismatch = _run("device-visible", driver(INIT=18))
    assert "Driver/library version mismatch (18)" in _failed(mismatch)["driver-agrees"]
    assert mismatch.env is not None
    assert mismatch.env.gpus == ()


@pytest.fixture
def cudnn(tmp_path: Path) -> Callable[..., Path]:
    """An installation of a library that answers as cuDNN 9.1.0 does, and states what is asked."""
    if shutil.which("gcc") is None:
        _without_gcc()

    def build(file: str, header: str, folder: str = "cudnn") -> Path:
        library = tmp_path / folder / "lib"
        include = tmp_path / folder / "include"
        library.mkdir(parents=True)
        include.mkdir()
        source = tmp_path / "cudnn.c"
        source.write_text("unsigned long cudnnGetVersion(void) { return 90100; }\n")
        made = library / f"libcudnn.so.{file}"
        command = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcudnn.so.9", "-o", made, source]
        subprocess.run(command, check=True)
        (library / "libcudnn.so.9").symlink_to(made.name)
        macros = zip(("MAJOR", "MINOR", "PATCHLEVEL"), header.split("."), strict=True)
        lines = [f"#define CUDNN_{name} {number}\n" for name, number in macros]
        (include / "cudnn_version.h").write_text("".join(lines))
        return library

    return build


def test_what_a_library_reports_is_its_version(cudnn: Callable[..., Path]) -> None:
    library = cudnn("9.1.0", "9.1.0")
    report = _run("libraries-loaded", library)
    assert report.problems == ()
    assert report.env is not None
    assert report.env.versions["cudnn"] == "9.1.0"
    assert report.env.paths["cudnn"] == str(library / "libcudnn.so.9.1.0")
    assert not {"files-agree", "headers-agree", "one-copy", "imports"} & set(_failed(report))


@pytest.mark.parametrize(
    ("file", "header", "check"),
    [("9.2.0", "9.1.0", "files-agree"), ("9.1.0", "9.2.0", "headers-agree")],
)
def test_a_file_name_or_header_that_disagrees_with_the_library_fails_a_check(
    cudnn: Callable[..., Path], file: str, header: str, check: str
) -> None:
    failed = _failed(_run("libraries-loaded", cudnn(file, header)))
    assert check in failed
    assert "9.1.0" in failed[check]


def _framework(folder: Path, text: str) -> str:
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(text)
    return str(folder)


def test_a_framework_that_cannot_be_imported_fails_a_check(tmp_path: Path) -> None:
    what = "libcudart.so.12: cannot open shared object file"
    modules = _framework(tmp_path / "modules", f"raise ImportError({what!r})\n")
    assert _failed(_run("libraries-loaded", PYTHONPATH=modules))["imports"] == (
        f"torch: ImportError: {what}"
    )


@pytest.mark.parametrize("name", ["packages", "files", "canary_text"])
def test_a_framework_gets_its_own_module_where_one_of_ours_has_its_name(
    tmp_path: Path, name: str
) -> None:
    modules = _framework(tmp_path / "modules", f"import {name}\nassert {name}.THEIRS\n")
    (tmp_path / "modules" / f"{name}.py").write_text("THEIRS = True\n")
    assert "imports" not in _failed(_run("libraries-loaded", PYTHONPATH=modules))


def test_a_framework_that_runs_with_another_major_than_it_was_built_for_fails_a_check(
    cudnn: Callable[..., Path], tmp_path: Path
) -> None:
    modules = _framework(
        tmp_path / "modules",
        """
__version__ = "2.3.1+cu121"
class version: cuda = None
class _cudnn: getCompileVersion = staticmethod(lambda: (8, 9, 2))
class _C: _cudnn = _cudnn
""",
    )
    report = _run("libraries-loaded", cudnn("9.1.0", "9.1.0"), PYTHONPATH=modules)
    assert report.env is not None
    assert report.env.versions["torch"] == "2.3.1+cu121"
    failed = _failed(report)["frameworks-agree"]
    assert failed == "torch was built for cudnn 8.9.2, but 9.1.0 is loaded"


def test_two_copies_of_a_library_in_one_process_fail_a_check(
    cudnn: Callable[..., Path], tmp_path: Path
) -> None:
    first = cudnn("9.1.0", "9.1.0")
    second = cudnn("9.1.0", "9.1.0", folder="other")
    modules = _framework(
        tmp_path / "modules",
        f"""
import ctypes
__version__ = "2.4.1"
for folder in {[str(first), str(second)]!r}:
    ctypes.CDLL(folder + "/libcudnn.so.9.1.0")
""",
    )
    failed = _failed(_run("libraries-loaded", PYTHONPATH=modules))
    assert str(first) in failed["one-copy"]
    assert str(second) in failed["one-copy"]
