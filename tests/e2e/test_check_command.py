"""``compatgate check`` as users run it: a process, its output, its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SMI = Path(__file__).parents[1] / "fixtures" / "nvidia_smi"
A100 = "driver=525.60.13,gpu=A100-SXM4-80GB"


def compatgate(
    *arguments: str, stdin: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("COMPATGATE_")}
    return subprocess.run(
        [sys.executable, "-m", "compatgate", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        env={**clean, "COLUMNS": "100", **environment},
    )


def check(pool: str, stack: str, *options: str) -> subprocess.CompletedProcess[str]:
    return compatgate("check", "--pool", pool, "--stack", stack, *options)


def test_a_driver_below_the_minimum_is_denied_with_the_one_that_is_needed() -> None:
    result = check("driver=525.60.12,gpu=A100-SXM4-80GB", "cuda=12.1,arch=sm_80")
    assert result.returncode == 1
    assert "CG101" in result.stdout
    assert "525.60.13" in result.stdout
    assert result.stderr == ""


def test_the_minimum_driver_is_allowed_with_a_warning_about_its_limits() -> None:
    result = check(A100, "cuda=12.1,arch=sm_80")
    assert result.returncode == 0
    assert "WARN    CG102" in result.stdout


def test_ptx_of_a_newer_toolkit_is_denied() -> None:
    result = check(A100, "cuda=12.1,arch=compute_80")
    assert result.returncode == 1
    assert "CG202" in result.stdout


def test_an_image_without_code_for_the_gpu_is_denied() -> None:
    result = check("driver=535.104.05,gpu=H100", "cuda=12.1,arch=sm_80")
    assert result.returncode == 1
    assert "CG201" in result.stdout


def test_another_cudnn_major_than_the_framework_expects_is_denied() -> None:
    pool = "driver=535.104.05,gpu=A100-SXM4-80GB"
    result = check(pool, "torch=2.4.1,cuda=12.1,cudnn=8.9.7")
    assert result.returncode == 1
    assert "CG402" in result.stdout


def test_a_release_that_is_not_known_is_no_decision() -> None:
    result = check("driver=535.104.05,gpu=A100-SXM4-80GB", "torch=9.9.9,cuda=12.1")
    assert result.returncode == 3
    assert "NO DECISION" in result.stdout
    assert "torch 9.9.9 is not known; known are " in result.stdout


def test_fail_open_lets_no_decision_pass_with_a_loud_warning() -> None:
    pool = "driver=535.104.05,gpu=A100-SXM4-80GB"
    result = check(pool, "torch=9.9.9,cuda=12.1", "--fail-open")
    assert result.returncode == 0
    assert "NO DECISION WAS MADE" in result.stderr


def test_a_bare_compute_capability_will_do_and_says_what_was_not_checked() -> None:
    result = check("driver=535.104.05,gpu=8.7", "cuda=12.2,arch=sm_87")
    assert result.returncode == 0
    assert "not checked" in result.stdout


def test_a_fix_that_is_offered_works_when_it_is_tried() -> None:
    pool, stack = "driver=525.60.12,gpu=A100-SXM4-80GB", "cuda=12.1,arch=sm_80"
    fixes = json.loads(check(pool, stack, "--format", "json").stdout)["findings"][0]["fixes"]
    assert fixes
    assert check(pool, stack, "--set", "driver=525.60.13").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--pool", A100, "--stack", "cuda=banana"), "stack.cuda: 'banana' is not a version"),
        (("--pool", A100, "--stack", "cdua=12.1"), "did you mean"),
        (("--pool", A100, "--stack", ""), "--stack: is empty"),
        (("--pool", A100, "--stack", "cuda=12.4", "--image", ""), "--image: is empty"),
        (("--pool", A100, "--stack", "cuda=12.4", "--set="), "--set: is empty"),
        (("--pool", A100, "--stack", "cuda=12.4", ""), "is empty"),
        (("--pool", A100), "no stack is given"),
        (("--stack", "cuda=12.1"), "no target or pool is given"),
        (("--pool", "driver=525.60.13,gpus=L4", "--stack", "cuda=12.1"), "pool.gpus: unknown key"),
        (("--pool", "driver=525,gpu=L4", "--stack", "cuda=12.1"), "a branch is not a driver"),
        (("--pool", "gpu=Banana 3000", "--stack", "cuda=12.1"), "pool.gpu"),
        (("--probe", "/nowhere", "--stack", "cuda=12.1"), "cannot read '/nowhere'"),
        (("--nvidia-smi", os.devnull, "--stack", "cuda=12.1"), "is empty"),
        (("--pool", A100, "--stack", "cuda=12.1", "--formt", "json"), "did you mean '--format'?"),
        (("--facts", "/nowhere", "--pool", A100, "--stack", "cuda=12.1"), "/nowhere"),
    ],
)
def test_bad_input_exits_with_2_and_one_clear_line(arguments: tuple[str, ...], words: str) -> None:
    result = compatgate("check", *arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


def test_the_same_question_has_the_same_id() -> None:
    answers = [
        json.loads(check(A100, "cuda=12.1,arch=sm_80", "--format", "json").stdout) for _ in range(2)
    ]
    assert answers[0]["id"] == answers[1]["id"]


@pytest.mark.parametrize("form", ["text", "json", "sarif", "junit", "github", "markdown"])
def test_every_form_has_the_same_exit_status(form: str) -> None:
    pool = "driver=525.60.12,gpu=A100-SXM4-80GB"
    result = check(pool, "cuda=12.1,arch=sm_80", "--format", form)
    assert result.returncode == 1
    assert "CG101" in result.stdout


def test_the_gpus_of_another_host_come_through_a_pipe() -> None:
    text = (SMI / "table-r550-a100-mixed-mig.txt").read_text()
    arguments = ("check", "--nvidia-smi", "-", "--stack", "cuda=12.4,arch=sm_80")
    result = compatgate(*arguments, "--format", "json", stdin=text)
    assert result.returncode == 0
    assert [pool["gpu"] for pool in json.loads(result.stdout)["pools"]] == [
        "A100-SXM4-40GB",
        "A100-SXM4-40GB-MIG-1g.5gb",
        "A100-SXM4-40GB-MIG-7g.40gb",
    ]


def test_the_worst_pool_of_a_host_decides() -> None:
    pools = (
        "--pool",
        "driver=535.104.05,gpu=A100-SXM4-80GB",
        "--pool",
        "driver=535.104.05,gpu=H100",
    )
    result = compatgate("check", *pools, "--stack", "cuda=12.1,arch=sm_80")
    assert result.returncode == 1
    assert "CG201 no-kernel-image  [h100]" in result.stdout


def test_an_error_that_nvidia_smi_printed_is_explained() -> None:
    arguments = ("check", "--nvidia-smi", str(SMI / "error-no-driver.txt"), "--stack", "cuda=12.4")
    result = compatgate(*arguments)
    assert result.returncode == 2
    assert "no NVIDIA kernel module is loaded" in result.stderr


def test_a_target_that_does_not_exist_is_bad_input(tmp_path: Path) -> None:
    database = str(tmp_path / "gate.db")
    compatgate("db", "upgrade", "--database", database)
    arguments = ("check", "--target", "prod", "--stack", "cuda=12.4", "--database", database)
    result = compatgate(*arguments)
    assert result.returncode == 2
    assert "prod" in result.stderr


def test_a_gate_that_does_not_answer_is_no_decision() -> None:
    arguments = ("check", "--target", "prod", "--stack", "cuda=12.4")
    result = compatgate(*arguments, COMPATGATE_SERVER="http://127.0.0.1:9")
    assert result.returncode == 3
    assert "does not answer" in result.stderr


def peak_memory_kib(questions: Path) -> tuple[int, int]:
    """Answer a file in a process of its own; the number of answers and its largest size."""
    code = (
        "import resource, sys; from compatgate.cli.main import main;"
        "main(['check', '--batch', sys.argv[1]]);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(questions)], capture_output=True, text=True, timeout=300
    )
    return len(result.stdout.splitlines()), int(result.stderr)


def test_memory_does_not_grow_with_the_lines_of_a_batch(tmp_path: Path) -> None:
    def question(number: int) -> str:
        pool = {"driver": f"535.{number % 300}.{number % 97:02}", "gpu": "A100-SXM4-80GB"}
        stack = {"cuda": f"12.{number % 7}", "arch": "sm_80"}
        return json.dumps({"pool": pool, "stack": stack}) + "\n"

    few, many = tmp_path / "few.jsonl", tmp_path / "many.jsonl"
    few.write_text("".join(map(question, range(500))))
    many.write_text("".join(map(question, range(10_000))))
    (lines_few, size_few), (lines_many, size_many) = map(peak_memory_kib, (few, many))
    assert (lines_few, lines_many) == (500, 10_000)
    assert size_many - size_few < 8 * 1024
