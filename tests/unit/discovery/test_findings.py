"""From what files hold to one stack: who decides, what is compared, what is a conflict.

Which witness decides, and where witnesses disagree.
"""

from __future__ import annotations

import pytest

from compatgate.core.gpu_code import parse_arch
from compatgate.discovery.findings import Findings, conclude
from compatgate.discovery.gpucode import Entry, GpuCode
from compatgate.discovery.observations import Observation, settle


def _code(*names: str, isa: str | None = None, cuda: str | None = None) -> GpuCode:
    archs = [parse_arch(name)[0] for name in names]
    return GpuCode(
        tuple(Entry(a.kind, a, ptx_isa=isa if a.kind == "ptx" else None, cuda=cuda) for a in archs)
    )


@pytest.fixture
def found() -> Findings:
    return Findings()


def test_nothing_found_is_an_empty_stack(found):
    assert conclude(found).to_json() == {"stack": {}, "observations": [], "conflicts": []}


def test_each_part_of_the_stack_says_where_it_was_seen(found):
    found.add_library("lib/libcudart.so.12.4.127")
    found.add_packages({"nvidia-cudnn-cu12": "9.1.0.70"}, "site-packages")
    found.add_code("x.so", _code("sm_80", "compute_90"))
    assert conclude(found).to_json() == {
        "stack": {
            "cuda": "12.4.127",
            "cudnn": "9.1.0.70+cu12",
            "arch": ["sm_80", "compute_90"],
        },
        "observations": [
            {
                "component": "cuda",
                "version": "12.4.127",
                "origin": "lib/libcudart.so.12.4.127",
                "confidence": "metadata",
            },
            {
                "component": "cudnn",
                "version": "9.1.0.70+cu12",
                "origin": "site-packages: package nvidia-cudnn-cu12",
                "confidence": "metadata",
            },
            {
                "component": "arch",
                "version": "sm_80+compute_90",
                "origin": "x.so",
                "confidence": "measured",
            },
        ],
        "conflicts": [],
    }


def test_a_library_copied_by_auditwheel_keeps_its_version(found):
    found.add_library("torch.libs/libcudart-d0da41ae.so.11.8.89")
    assert conclude(found).stack == {"cuda": "11.8.89"}


def test_a_soname_tells_the_major_only_and_does_not_decide(found):
    found.add_library("nvidia/cuda_runtime/lib/libcudart.so.12")
    inspection = conclude(found)
    assert inspection.stack == {}
    assert [(o.component, o.version) for o in inspection.observations] == [("cuda", "12")]


@pytest.mark.parametrize(
    ("name", "agrees"), [("libcudart.so.12", True), ("libcudart.so.11.0", False)]
)
def test_a_soname_of_another_major_is_a_conflict(name, agrees, found):
    found.add_packages({"nvidia-cuda-runtime-cu12": "12.4.127"}, "site-packages")
    found.add_library(f"lib/{name}")
    conflicts = conclude(found).conflicts
    assert (conflicts == ()) is agrees
    assert all(name in conflict.message for conflict in conflicts)


def test_a_library_that_needs_another_cuda_major_is_a_conflict(found):
    found.add_packages({"nvidia-cuda-runtime-cu12": "12.4.127"}, "site-packages")
    found.add_needed("x.so", ["libc.so.6", "libcudart.so.13"])
    (conflict,) = conclude(found).conflicts
    assert "x.so: needs libcudart.so.13 says 13" in conflict.message


def test_code_names_its_toolkit_when_nothing_else_names_cuda(found, facts):
    found.add_code("x.so", _code("sm_80", cuda="12.4"))
    assert conclude(found, facts.arch).stack["cuda"] == "12.4"


def test_the_isa_version_of_ptx_names_the_toolkit_that_first_had_it(found, facts):
    found.add_code("x.so", _code("compute_80", isa="8.4"))
    (cuda, _) = conclude(found, facts.arch).observations
    assert (cuda.version, cuda.confidence) == ("12.4", "derived")


def test_machine_code_of_a_newer_toolkit_is_no_conflict(found, facts):
    found.add_packages({"nvidia-cuda-runtime-cu12": "12.4.127"}, "site-packages")
    found.add_code("x.so", _code("sm_80", cuda="12.9"))
    assert conclude(found, facts.arch).conflicts == ()


def test_ptx_newer_than_the_stacks_cuda_is_a_conflict_and_does_not_decide(found, facts):
    found.add_packages({"nvidia-cuda-runtime-cu12": "12.4.127"}, "site-packages")
    found.add_code("x.so", _code("compute_80", isa="8.8"))
    inspection = conclude(found, facts.arch)
    assert inspection.stack["cuda"] == "12.4.127"
    assert "PTX ISA 8.8, of CUDA 12.9" in inspection.conflicts[0].message


def test_the_code_of_one_distribution_is_united(found, facts):
    found.add_code("a.so", _code("sm_80"), "flash-attn")
    found.add_code("b.so", _code("sm_90a"), "flash-attn")
    assert conclude(found, facts.arch).stack["arch"] == ["sm_80", "sm_90a"]


def test_of_several_distributions_only_what_all_can_run_counts(found, facts):
    found.add_code("torch.so", _code("sm_80", "sm_86", "sm_90", "compute_90"), "torch")
    found.add_code("flash.so", _code("sm_80", "sm_90"), "flash-attn")
    inspection = conclude(found, facts.arch)
    assert inspection.stack["arch"] == ["sm_80", "sm_86", "sm_90"]
    (conflict,) = inspection.conflicts
    assert "flash-attn has nothing for compute_90" in conflict.message
    assert conflict.decided == "sm_80+sm_86+sm_90"


def test_distributions_without_common_code_have_an_empty_list_and_not_none(found, facts):
    found.add_code("a.so", _code("sm_70"), "a")
    found.add_code("b.so", _code("sm_90"), "b")
    assert conclude(found, facts.arch).stack["arch"] == []


def test_nvidias_libraries_do_not_lend_their_code_to_others(found, facts):
    found.add_code("libcublas.so.12", _code("sm_70", "sm_80"), "nvidia-cublas-cu12")
    found.add_code("x.so", _code("sm_80"), "extension")
    assert conclude(found, facts.arch).stack["arch"] == ["sm_80"]


def test_link_time_code_is_shown_and_does_not_run(found):
    code = GpuCode((Entry("lto", parse_arch("compute_80")[0]),))
    found.add_code("x.o", code)
    inspection = conclude(found)
    assert inspection.stack == {}
    assert [o.version for o in inspection.observations] == ["(lto_80)"]


def test_a_file_that_cannot_be_read_is_open_and_shown_as_undecided(found):
    found.add_unread("x.so", "damaged at byte 5")
    inspection = conclude(found)
    assert "x.so" in inspection.open[0]
    (conflict,) = inspection.to_json()["conflicts"]
    assert (conflict["component"], conflict["decided"]) == ("open", None)


def test_what_others_built_into_pytorch_does_not_speak_for_it(found):
    found.add_code("torch/lib/libtorch_cuda.so", _code("sm_70", "sm_80"), "torch")
    found.add_code("torch/lib/libtorch_cuda_linalg.so", _code("sm_50", "sm_80"), "torch")
    found.add_code("torch/lib/libtorch_nvshmem.so", _code("sm_60"), "torch")
    assert conclude(found).stack["arch"] == ["sm_70", "sm_80"]


def test_what_was_measured_decides_over_metadata() -> None:
    stack, conflicts = settle(
        [
            Observation("cudnn", "8.9.7", "package", "metadata"),
            Observation("cudnn", "90100", "torch", "measured"),
        ]
    )
    assert stack == {"cudnn": "90100"}
    assert conflicts[0].decided == "90100"
    assert "package says 8.9.7" in conflicts[0].message


def test_the_earlier_of_equal_witnesses_decides() -> None:
    stack, _ = settle(
        [
            Observation("cuda", "12.4.1", "LD_LIBRARY_PATH", "metadata"),
            Observation("cuda", "11.8.0", "/usr/local", "metadata"),
        ]
    )
    assert stack == {"cuda": "12.4.1"}


def test_versions_that_are_stated_to_different_lengths_do_not_disagree() -> None:
    _, conflicts = settle(
        [
            Observation("cudnn", "90100", "torch"),
            Observation("cudnn", "9.1.0.70+cu12", "package", "metadata"),
            Observation("torch", "2.4.1+cu121", "torch"),
            Observation("torch", "2.4.1", "package", "metadata"),
            Observation("cuda", "12.4", "torch"),
            Observation("cuda", "12.4.127", "libcudart", "metadata"),
        ]
    )
    assert conflicts == ()


def test_driver_and_its_cuda_are_no_part_of_the_stack() -> None:
    stack, conflicts = settle(
        [
            Observation("driver", "535.104.05", "/proc"),
            Observation("driver", "535.183.01", "nvidia-smi"),
            Observation("driver-cuda", "12.2", "nvidia-smi"),
        ]
    )
    assert stack == {}
    assert [c.component for c in conflicts] == ["driver"]


def test_a_version_that_cannot_be_read_is_kept_as_written() -> None:
    stack, conflicts = settle(
        [Observation("torch", "main", "a"), Observation("torch", "2.4.1", "b")]
    )
    assert stack == {"torch": "main"}
    assert len(conflicts) == 1


def test_gpu_code_is_added() -> None:
    stack, _ = settle([], ["sm_80", "compute_90"])
    assert stack == {"arch": ["sm_80", "compute_90"]}
