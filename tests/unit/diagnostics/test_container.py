"""A container's files and its processes as one stack."""

from __future__ import annotations

from typing import Any

from compatgate.core.facts import Facts
from compatgate.diagnostics.container import join_inspections
from compatgate.diagnostics.document import Process
from compatgate.diagnostics.loaded import Library
from compatgate.discovery.findings import Inspection
from compatgate.discovery.observations import Observation

HOSTS = Library("driver-cuda", "/usr/lib/libcuda.so.550.54.15", "550.54.15", "550")


def process(pid: int, *libraries: Library, **stack: Any) -> tuple[Process, Inspection]:
    seen = Process(pid, "/service", None, True, libraries, {})
    return seen, Inspection(stack)


def files(**stack: Any) -> Inspection:
    stack = {name.replace("_", "-"): value for name, value in stack.items()}
    seen = tuple(Observation(n, str(v), f"files: {n}", "metadata") for n, v in stack.items())
    return Inspection(stack, seen)


def test_what_is_loaded_decides_and_the_contradiction_names_its_witness(facts: Facts) -> None:
    found = join_inspections(
        files(cuda="12.1", torch="2.4.1"), [process(7, cuda="12.4.127")], facts.arch
    )
    assert found.stack == {"cuda": "12.4.127", "torch": "2.4.1"}
    (conflict,) = found.conflicts
    assert conflict.message == "cuda 12.4.127 is loaded, files: cuda says 12.1"


def test_versions_that_agree_as_far_as_both_are_stated_do_not_contradict(facts: Facts) -> None:
    found = join_inspections(files(cuda="12.4"), [process(7, cuda="12.4.127")], facts.arch)
    assert found.conflicts == ()


def test_processes_that_differ_are_a_conflict(facts: Facts) -> None:
    looked = [process(7, cudnn="9.1.0"), process(8, cudnn="8.9.7")]
    found = join_inspections(files(), looked, facts.arch)
    assert found.stack["cudnn"] == "9.1.0"
    assert "in 8 8.9.7" in found.conflicts[0].message


def test_gpu_code_must_run_in_every_process(facts: Facts) -> None:
    looked = [process(7, arch=["sm_80", "sm_90"]), process(8, arch=["sm_80"])]
    found = join_inspections(files(arch=["sm_70"]), looked, facts.arch)
    assert found.stack["arch"] == ["sm_80"]
    assert "process 8 has nothing for sm_90" in found.conflicts[0].message


def test_a_version_that_only_the_files_tell_settles_a_loaded_library(facts: Facts) -> None:
    cudnn = Library("cudnn", "/usr/lib/libcudnn.so.9", None, "9")
    found = join_inspections(files(cudnn="9.1.0"), [process(7, cudnn)], facts.arch)
    assert (found.stack["cudnn"], found.open, found.conflicts) == ("9.1.0", (), ())
    other = join_inspections(files(cudnn="8.9.7"), [process(7, cudnn)], facts.arch)
    assert "libcudnn.so.9 is loaded" in other.conflicts[0].message
    assert (
        "except its major, 9" in join_inspections(files(), [process(7, cudnn)], facts.arch).open[0]
    )


def test_forward_compatibility_that_is_not_loaded_does_not_count(facts: Facts) -> None:
    lying = files(cuda_compat="12.8", cuda_compat_use="newer")
    assert join_inspections(lying, [process(7, HOSTS)], facts.arch).stack == {}
    assert join_inspections(lying, [], facts.arch).stack["cuda-compat"] == "12.8"
    used = process(7, HOSTS, **{"cuda-compat": "12.5"})
    assert join_inspections(lying, [used], facts.arch).stack == {"cuda-compat": "12.5"}
