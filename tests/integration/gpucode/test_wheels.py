"""Wheels of the package index are read as cuobjdump lists what they hold.

What a wheel is measured to hold is what cuobjdump lists of the libraries in it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections import Counter

import pytest
from wheels import make_wheel

from compatgate.core.stack import parse_stack
from compatgate.discovery.gpucode import read_gpu_code
from compatgate.discovery.local import inspect_path
from compatgate.discovery.wheels.measure import MeasureOptions, measure_path

_MEASURED = """
import resource, sys
from compatgate.discovery.local import inspect_path
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
inspect_path(sys.argv[1])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) / 1024)
"""


@pytest.fixture(scope="session")
def cupy(wheel):
    return wheel("cupy-cuda12x")


def test_the_code_of_every_library_in_a_framework_agrees_with_cuobjdump(
    cupy, toolkit, tmp_path, facts
):
    inspection = inspect_path(str(cupy), facts.arch)
    seen = {o.origin: o.version for o in inspection.observations if o.component == "arch"}
    assert len(seen) >= 3
    union: set[str] = set()
    with zipfile.ZipFile(cupy) as archive:
        for origin, version in seen.items():
            path = archive.extract(origin.partition(": ")[2], tmp_path)
            listing = toolkit.listing(path)
            assert version.split("+") == [a.name for a in read_gpu_code(path).arch]
            assert set(version.split("+")) == {*listing.sass, *listing.ptx}
            union |= set(version.split("+"))
    assert set(inspection.stack["arch"]) == union


def test_a_frameworks_wheel_gives_a_stack_that_the_gate_reads(cupy, facts):
    stack = parse_stack(inspect_path(str(cupy), facts.arch).stack)
    assert stack.components["cupy"].major >= 13
    assert stack.components["cuda"].major == 12
    assert stack.arch


def test_a_large_wheel_is_read_in_little_memory_and_without_a_file(cupy):
    result = subprocess.run(
        [sys.executable, "-c", _MEASURED, str(cupy)], capture_output=True, text=True, check=True
    )
    assert float(result.stdout) < 60


def test_the_wheel_of_the_runtime_names_cuda(wheel):
    inspection = inspect_path(str(wheel("nvidia-cuda-runtime-cu12")))
    assert parse_stack(inspection.stack).components["cuda"].major == 12
    assert inspection.conflicts == ()
    assert any("libcudart.so.12" in o.origin for o in inspection.observations)


def test_the_metadata_of_cudnn_names_its_version_and_its_cuda(pip, tmp_path):
    """The wheel has 600 MB; its metadata is read from the index and put into a small one."""
    report = tmp_path / "report.json"
    wanted = ["--dry-run", "--no-deps", "--ignore-installed", "--only-binary=:all:"]
    pip("install", *wanted, "--report", str(report), "nvidia-cudnn-cu12")
    metadata = json.loads(report.read_text())["install"][0]["metadata"]
    small = tmp_path / f"nvidia_cudnn_cu12-{metadata['version']}-py3-none-any.whl"
    folder = f"nvidia_cudnn_cu12-{metadata['version']}.dist-info"
    with zipfile.ZipFile(small, "w") as archive:
        text = f"Metadata-Version: 2.1\nName: {metadata['name']}\nVersion: {metadata['version']}\n"
        archive.writestr(f"{folder}/METADATA", text)
        archive.writestr("nvidia/cudnn/lib/libcudnn.so.9", b"")
    cudnn = parse_stack(inspect_path(str(small)).stack).components["cudnn"]
    assert (cudnn.cuda, cudnn.public) == ((12,), metadata["version"])


ARCHES = ("-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=[sm_90,compute_90]")
SEVERAL = ("one", "two", "three")


@pytest.fixture
def measure(tmp_path):
    def run(path, name="kernel.so"):
        wheel = tmp_path / "pkg-1.0-cp312-cp312-linux_x86_64.whl"
        wheel.write_bytes(make_wheel({f"pkg/{name}": path.read_bytes()}))
        (library,) = measure_path(str(wheel), MeasureOptions()).libraries
        return library

    return run


@pytest.mark.parametrize(
    "flags",
    [
        ARCHES,
        (*ARCHES, "-Xfatbin=-compress-all"),
        (*ARCHES, "-Xfatbin=--compress=false"),
        ("-gencode=arch=compute_90a,code=sm_90a", "-gencode=arch=compute_75,code=compute_75"),
    ],
)
def test_units_of_a_library_are_the_entries_that_cuobjdump_lists(toolkit, measure, flags):
    path = toolkit.make(".so", *flags, sources=SEVERAL)
    listing = toolkit.listing(path)
    found = measure(path)
    assert found.sass == dict(Counter(listing.sass))
    assert found.ptx == dict(Counter(listing.ptx))
    # nvcc links the device code of any program: that is one more unit, with machine code alone
    assert found.units == len(SEVERAL) + 1 == max(found.sass.values())
    assert set(found.ptx.values()) == {len(SEVERAL)}
    assert [found.ptx_isa] == sorted(set(listing.isa))
    assert found.opens == ("libcuda.so.1",)  # of the runtime, which is linked in


def test_relocatable_code_counts_as_what_it_is_linked_to(toolkit, measure):
    path = toolkit.make(".so", *ARCHES, "-rdc=true", sources=SEVERAL)
    listing = toolkit.listing(path)
    found = measure(path)
    assert set(found.sass) == set(listing.sass) == {"sm_80", "sm_90"}
    assert (found.sass, found.ptx) == ({"sm_80": 1, "sm_90": 1}, {"compute_90": 1})
    # cuobjdump lists the objects, too
    assert Counter(listing.sass) == {"sm_80": 1 + len(SEVERAL), "sm_90": 1 + len(SEVERAL)}


@pytest.mark.parametrize("form", [".cubin", ".fatbin", ".ptx"])
def test_kernel_files_are_counted_as_cuobjdump_lists_them(toolkit, measure, form):
    flags = ("-arch=sm_90",) if form != ".ptx" else ("-arch=compute_90",)
    found = measure(toolkit.make(form, *flags), f"kernel{form}")
    assert found.units == 1
    assert {*found.sass, *found.ptx} <= {"sm_90", "compute_90"}
    if form == ".ptx":
        assert float(found.ptx_cuda) >= 13.5
