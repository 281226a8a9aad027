"""bench/gpu.py from end to end on a stand-in, and the page that it writes."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import gpu_page
import pytest
from gpu_judge import Said

from compatgate.canary.peaks import PeakShare
from compatgate.canary.run import Device

BENCH = Path(gpu_page.__file__).parent


def bench(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / "gpu.py"), "--out", str(out), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("gpu")
    done = bench(out, "--device", "cpu", "--workload", "busy")
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_an_equal_run_is_left_alone_and_a_slower_one_found(tried: Path) -> None:
    said = {one["label"]: one for one in json.loads((tried / "judged.json").read_text())}
    assert list(said) == ["baseline-1", "baseline-2", "equal", "more-work"]
    assert {one["word"] for one in said.values()} == {"as expected"}
    assert said["more-work"]["words"].startswith("found: pretended x 0.3")


def test_outputs_are_kept_as_the_program_printed_them(tried: Path) -> None:
    (first, *rest) = (tried / "output/busy/baseline-1.jsonl").read_text().splitlines()
    assert json.loads(first)["type"] == "env"
    assert {json.loads(line)["type"] for line in rest} == {"metric", "check"}


def test_what_was_tried_on_a_cpu_shows_no_figure(tried: Path) -> None:
    page = (tried / "results.md").read_text()
    assert page.startswith(gpu_page.ON_CPU)
    assert "MB/s" not in page
    assert "peak" not in page
    assert bench(tried, "--device", "cpu", "--publish").returncode == 2


def test_the_same_again_goes_on_where_it_was(tried: Path) -> None:
    runs = tried / "runs.jsonl"
    before = runs.read_text().splitlines(keepends=True)
    runs.write_text("".join(before[:-1]) + before[-1][:40])
    again = bench(tried, "--device", "cpu", "--workload", "busy")
    assert again.returncode == 0
    assert [line.split(" ...")[0] for line in again.stdout.splitlines() if " ..." in line] == [
        "busy baseline-2"
    ]


def test_runs_of_another_way_are_not_mixed_in(tried: Path) -> None:
    other = bench(tried, "--device", "cpu", "--workload", "busy", "--repetitions", "20")
    assert other.returncode == 1
    assert "take another --out" in other.stderr


def test_where_the_time_is_up_nothing_is_begun(tmp_path: Path) -> None:
    done = bench(tmp_path, "--device", "cpu", "--workload", "busy", "--minutes", "0.01")
    assert done.returncode == 3
    assert "4 runs of the plan are left" in done.stdout


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    done = bench(tmp_path, "--python", "/bin/false")
    assert (done.returncode, done.stderr.strip()) == (3, "no GPU that CUDA gives to this process")


def test_an_unknown_workload_names_the_nearest(tmp_path: Path) -> None:
    done = bench(tmp_path, "--device", "cpu", "--workload", "gem")
    assert done.returncode == 2
    assert "gemm" in done.stderr


def facts(*shares: PeakShare) -> gpu_page.Facts:
    gpus = (Device("NVIDIA H200"),)
    versions = {"torch": "2.11.0+cu130"}
    return gpu_page.Facts("cuda", "2026-11-22", gpus, "580.95.05", versions, {"gemm": shares})


SHARE = PeakShare(
    "bf16", "TFLOP/s", 612.0, "bf16", "H200-SXM5", 989.5, 0.6185, False,
    {"title": "NVIDIA H200 product page", "confidence": "derived"},
    "612 TFLOP/s, 62 % of the published dense bf16 peak of H200-SXM5, 989.5 TFLOP/s",
)  # fmt: skip


def test_a_page_names_the_gpu_driver_versions_day_and_shares_of_the_peak() -> None:
    equal = Said("gemm", "equal", "equal", "as expected", "4 metrics show | no regression")
    page = gpu_page.section(facts(SHARE), [equal], {"soak": "hours"}, 2)
    assert "on 2026-11-22: NVIDIA H200, driver 580.95.05; torch 2.11.0+cu130." in page
    row = "| `gemm` bf16 | 612 TFLOP/s | 62 % | 989.5 TFLOP/s | NVIDIA H200 product page, derived |"
    assert row in page
    assert "| `gemm` | equal | as expected | 4 metrics show / no regression |" in page
    assert "- `soak`: hours" in page
    assert "2 runs of the plan are left" in page


def test_a_section_takes_the_place_of_the_one_before_and_leaves_the_rest() -> None:
    page = "# Results\n\n## GPUs\n\nold\n\n## Other\n\nkept\n"
    changed = gpu_page.put(page, "new")
    assert gpu_page.carried(changed) == "new"
    assert "old" not in changed
    assert changed.endswith("\n## Other\n\nkept\n")
    assert gpu_page.carried("# Results\n") == gpu_page.NOT_YET
    assert gpu_page.carried(gpu_page.put("# Results\n", "first")) == "first"


def test_the_results_say_that_no_gpu_was_measured_until_one_is() -> None:
    kept = gpu_page.carried(gpu_page.RESULTS.read_text())
    assert kept == gpu_page.NOT_YET or kept.startswith("Made by `bench/gpu.py` on ")


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed here")
def test_what_the_image_lacks_is_said_and_not_tried_again(tmp_path: Path) -> None:
    done = bench(tmp_path, "--device", "cpu", "--workload", "gemm")
    assert done.returncode == 3
    assert "gemm: nothing to test: " in done.stdout
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 1
    assert "are left" not in done.stdout
