"""Which witness decides, and where witnesses disagree."""

from __future__ import annotations

from compatgate.discovery.observations import Observation, settle


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
