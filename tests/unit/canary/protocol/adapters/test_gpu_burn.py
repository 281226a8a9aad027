"""gpu-burn: its reports and verdicts, and what it does not say itself."""

from __future__ import annotations

SOUND = "gpu-burn-1080.txt"


def test_rates_and_temperatures_of_every_gpu(read, sample, values, checks):
    report = read("gpu-burn", sample(SOUND))
    assert report.problems == ()
    assert values(report) == {
        "gflops-gpu0": (7020.0, 6951.0),
        "gflops-gpu1": (6944.0, 6853.0),
        "temperature-gpu0": (56.0, 57.0, 59.0),
        "temperature-gpu1": (73.0, 79.0, 79.0),
    }
    assert checks(report) == {"right": True, "alive": True}


def test_the_first_rate_is_warm_up(read, sample):
    first = next(m for m in read("gpu-burn", sample(SOUND)).metrics if m.name == "gflops-gpu0")
    assert first.warmup == (7124.0,)


def test_a_gpu_that_finished_nothing_new_has_no_new_rate(read, values):
    lines = (
        "20.0%  proc'd: 81 (47174 Gflop/s) - 0 (0 Gflop/s)   errors: 0 - 0   temps: 50 C - 45 C \r"
        "30.0%  proc'd: 162 (52502 Gflop/s) - 81 (46929 Gflop/s)   errors: 0 - 0   temps: 50 C - --"
        "   power: 300 W - -- \r"
        "50.0%  proc'd: 162 (52502 Gflop/s) - 162 (51733 Gflop/s)   errors: 0 - 0 "
        "  temps: 5 C - 4 C\nTested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: OK\n"
    )
    report = read("gpu-burn", lines)
    assert report.problems == ()
    assert values(report)["gflops-gpu0"] == (52502.0,)
    assert values(report)["gflops-gpu1"] == (51733.0,)
    assert values(report)["temperature-gpu1"] == (45.0, 4.0)


def test_gpus_are_those_of_the_list_that_it_prints(read, sample):
    env = read("gpu-burn", sample(SOUND)).env
    assert env is not None
    assert [device.name for device in env.gpus] == ["NVIDIA GeForce GTX 1080"] * 2


def test_wrong_results_fail_though_its_exit_status_is_0(read, sample, checks):
    report = read("gpu-burn", sample("gpu-burn-faulty.txt"))
    assert report.problems == ()
    assert checks(report) == {"right": False, "alive": True}


def test_a_wrong_result_fails_though_the_verdict_says_ok(read, sample, checks):
    text = sample(SOUND).replace(
        "errors: 0 - 0   temps: 57", "errors: 0 - 3  (WARNING!)  temps: 57"
    )
    assert checks(read("gpu-burn", text))["right"] is False


def test_gpus_that_computed_nothing_are_not_right_though_it_says_ok(read, sample, checks):
    report = read("gpu-burn", sample("gpu-burn-not-begun.txt"))
    assert checks(report) == {"alive": False}
    assert report.problems[0].startswith("finished no work, despite its verdict: GPU 0, GPU 1")


def test_a_process_that_died_is_a_failed_check(read, checks):
    text = (
        "50.0%  proc'd: -1 (0 Gflop/s) - 9 (7 Gflop/s)   errors: 1641686072  (DIED!)- 0 "
        "  temps: 33 C - 29 C read[0] error 0\nTested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: OK\n"
    )
    assert checks(read("gpu-burn", text))["alive"] is False


def test_output_without_the_verdict_is_a_problem(read, sample, checks):
    text = sample(SOUND)
    report = read("gpu-burn", text[: text.index("Tested")])
    assert report.problems == ("the verdict at the end is missing",)
    assert checks(report) == {}


def test_a_verdict_that_is_missing_is_a_problem(read, sample):
    report = read("gpu-burn", sample(SOUND).replace("\tGPU 1: OK\n", ""))
    assert report.problems == ("1 of 2 GPUs have a verdict",)


def test_a_report_that_is_cut_off_is_a_problem(read, sample):
    report = read("gpu-burn", sample(SOUND).replace("   errors: 0 - 0   temps: 57 C - 79 C ", ""))
    assert report.problems[0].startswith("a report is cut off: 23.3%")


def test_a_report_that_lost_a_gpu_is_a_problem(read, sample):
    report = read("gpu-burn", sample(SOUND).replace("57 C - 79 C", "57 C"))
    assert report.problems[0].startswith("a report has different numbers of GPUs")


def test_a_verdict_without_reports_is_a_problem(read):
    report = read("gpu-burn", "Burning for 10 seconds.\nTested 1 GPUs:\n\tGPU 0: OK\n")
    assert "the output has no report of gpu-burn" in report.problems
    assert "right" not in {check.name for check in report.checks}
