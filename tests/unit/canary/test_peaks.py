"""A metric is shown as a share of the published peak of the GPU that it was measured on."""

from __future__ import annotations

import pytest

from compatgate.canary.peaks import PeakShare, find_shares
from compatgate.canary.run import Device, Env, Metric, Report
from compatgate.canary.workload import MetricSpec
from compatgate.catalog import load_facts
from compatgate.core.facts.nvidia import GpuPeaks, Peaks

FACTS = load_facts([])
SPECS = {
    "bf16": MetricSpec("TFLOP/s", "higher", peak="bf16"),
    "device-copy": MetricSpec("GB/s", "higher", peak="memory"),
    "step": MetricSpec("ms", "lower"),
}
H200 = Device("NVIDIA H200")


def measured(*metrics: Metric, gpus: tuple[Device, ...] = (H200,)) -> dict[str, PeakShare]:
    report = Report(Env("580.95.05", gpus), metrics)
    return {one.metric: one for one in find_shares(SPECS, report, FACTS.gpus, FACTS.gpu_peaks)}


def test_the_median_is_held_against_the_peak_in_its_own_unit() -> None:
    found = measured(
        Metric("bf16", "TFLOP/s", (600.0, 612.0, 900.0)),
        Metric("device-copy", "TB/s", (4.2, 4.2, 4.2)),
    )
    assert found["bf16"].words == (
        "612 TFLOP/s, 62 % of the published dense bf16 peak of H200-SXM5, 989.5 TFLOP/s"
    )
    assert found["device-copy"].peak == pytest.approx(4.8)
    assert found["device-copy"].share == pytest.approx(4.2 / 4.8)
    assert found["bf16"].source["url"] == "https://www.nvidia.com/en-us/data-center/h200/"


def test_more_than_is_published_is_said_to_be_implausible() -> None:
    found = measured(Metric("bf16", "TFLOP/s", (1979.0,)))["bf16"]
    assert found.implausible
    assert "200 % of the published" in found.words
    assert "check that the program does all of its work" in found.words


def test_a_figure_that_was_rounded_in_print_may_be_reached() -> None:
    assert not measured(Metric("bf16", "TFLOP/s", (990.0,)))["bf16"].implausible


@pytest.mark.parametrize(
    "gpus",
    [
        (),
        (Device("NVIDIA A100-SXM4-40GB", mig="1g.5gb"),),
        (Device("NVIDIA A100-SXM4-40GB MIG 1g.5gb"),),
        (Device("Some GPU of tomorrow"),),
        (Device("sm_90"),),
        (H200, Device("NVIDIA L4")),
        (Device("NVIDIA GeForce RTX 4090"),),
    ],
    ids=["none", "slice", "slice in the name", "unknown", "capability", "two kinds", "no peak"],
)
def test_where_no_peak_is_published_of_what_was_seen_nothing_is_said(
    gpus: tuple[Device, ...],
) -> None:
    assert measured(Metric("bf16", "TFLOP/s", (600.0,)), gpus=gpus) == {}


def test_several_gpus_of_one_kind_have_its_peak() -> None:
    assert "bf16" in measured(Metric("bf16", "TFLOP/s", (600.0,)), gpus=(H200, H200))


def test_a_metric_that_names_no_peak_or_came_in_another_unit_has_no_share() -> None:
    assert measured(Metric("step", "ms", (3.0,)), Metric("bf16", "ms", (3.0,))) == {}


def test_a_precision_without_a_published_peak_has_no_share() -> None:
    t4 = (Device("Tesla T4"),)
    found = measured(
        Metric("bf16", "TFLOP/s", (1.0,)), Metric("device-copy", "GB/s", (250.0,)), gpus=t4
    )
    assert set(found) == {"device-copy"}


def test_a_peak_of_another_source_is_as_good() -> None:
    ours = FACTS.gpu_peaks.gpus["H200-SXM5"]
    peaks = Peaks({"H200-SXM5": GpuPeaks("H200-SXM5", ours.source, bf16=700.0)})
    report = Report(Env(gpus=(H200,)), (Metric("bf16", "TFLOP/s", (612.0,)),))
    assert find_shares(SPECS, report, FACTS.gpus, peaks)[0].share == pytest.approx(0.874, abs=1e-3)
