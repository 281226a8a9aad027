"""Lint says what is wrong with a workload before anything is run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from compatgate.canary.workloads.lint import lint_workloads
from compatgate.cli.main import main
from compatgate.resources import canary_dir

Make = Callable[..., Path]
DIGEST = "sha256:" + "0" * 64


def _said(folder: Path) -> list[tuple[str, str]]:
    return [(finding.severity, finding.message) for finding in lint_workloads(folder)[1]]


def _good(text: str) -> str:
    text = text.replace("command =", 'catches = ["x"]\ncommand =')
    return text.replace('better = "higher"', 'better = "higher"\ndescription = "x"')


def _peak(text: str, kind: str) -> str:
    return text.replace("[image]", "gpus = 1\n[image]").replace(
        "[metrics.speed]", f'[metrics.speed]\npeak = "{kind}"'
    )


def test_the_shipped_workloads_have_no_errors() -> None:
    folders, found = lint_workloads(canary_dir())
    assert len(folders) >= 3
    assert [f for f in found if f.severity == "error"] == []


def test_a_good_workload_has_nothing_to_mend(make_workload: Make) -> None:
    assert _said(make_workload(change=_good)) == []


@pytest.mark.parametrize(
    ("change", "severity", "said"),
    [
        (lambda t: t.replace('"higher"', '"up"'), "error", "metrics.speed.better: 'up' is not"),
        (lambda t: t.replace("program.py", "other.py"), "error", "other.py does not exist"),
        (lambda t: t.replace('"python3", "program.py"', '"./program.py"'), "error",
         "./program.py is not executable"),
        (lambda t: t.replace('"program.py"', '"-m", "x"'), "warning", "names no file"),
        (lambda t: t.replace('["x"]', "[]"), "warning", "catches is empty"),
        (lambda t: t.replace('"GB/s"', '" "'), "error", "metrics.speed: unit is blank"),
        (lambda t: t.replace('"the result is right"', '" "'), "error", "checks.right"),
        (lambda t: t.replace('"higher"', '"higher"\npeak = "memory"'), "error",
         "metrics.speed.peak: peaks are of GPUs"),
        (lambda t: _peak(t, "bf16"), "error", "in TFLOP/s, which does not convert into GB/s"),
        (lambda t: _peak(t, "int8"), "error", "metrics.speed.peak: 'int8' is not"),
        (lambda t: _peak(t, "memory").replace('"higher"', '"lower"'), "error", "higher-is-better"),
        (lambda t: _peak(t, "memory"), None, ""),
        (lambda t: t.replace("[image]", 'adapter = "dcgm"\n[image]'), "error", "'dcgm' is not"),
        (lambda t: t.replace("inside = true", 'context = "."'), "error", "Dockerfile does not"),
        (lambda t: t.replace("inside = true", 'reference = "x:1"'), "warning", "not pinned"),
        (lambda t: t.replace("inside = true", f'reference = "x@{DIGEST}"'), None, ""),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(
    make_workload: Make, change: Callable[[str], str], severity: str | None, said: str
) -> None:
    found = _said(make_workload(change=lambda text: change(_good(text))))
    if severity is None:
        assert found == []
        return
    assert any(how == severity and said in what for how, what in found), found


def test_a_program_that_does_not_compile_is_an_error(make_workload: Make) -> None:
    folder = make_workload(change=_good)
    (folder / "program.py").write_text("def f(:\n")
    errors = [what for severity, what in _said(folder) if severity == "error"]
    assert any(what.startswith("program.py: line 1 is not Python: ") for what in errors)


def test_a_page_and_the_folders_name_are_asked_for(make_workload: Make) -> None:
    folder = make_workload(change=_good)
    (folder / "README.md").unlink()
    moved = folder.rename(folder.with_name("other"))
    assert [what for _, what in _said(moved)] == [
        "the folder other must be called made",
        "README.md is missing; write one that says what the workload catches",
    ]


def test_images_of_a_dockerfile_are_pinned_by_digest(make_workload: Make) -> None:
    folder = make_workload(
        change=lambda t: _good(t).replace("inside = true", 'inside = true\ncontext = "."')
    )
    (folder / "Dockerfile").write_text(
        "ARG BASE=python:3\nARG OTHER\nFROM a/b:1 AS build\nFROM ${OTHER} AS c\n"
        f"FROM --platform=linux/amd64 x@{DIGEST}\nFROM build\nFROM scratch\nFROM ${{BASE}}\n"
    )
    assert _said(folder) == [
        ("warning", "Dockerfile: a/b:1 is not pinned by a digest"),
        ("warning", "Dockerfile: python:3 is not pinned by a digest"),
    ]


@pytest.mark.parametrize(
    ("image", "text", "said"),
    [
        ('context = "."', "ARG BASE\nFROM ${BASE}\n", ("error", "ARG BASE: nothing is built on")),
        ('context = "."', f"FROM x@{DIGEST}\n", ("warning", "it only ever tests its own image")),
        ('context = "."\ntool = "/opt/x"', f"FROM x@{DIGEST}\n", None),
    ],
)
def test_what_is_built_beside_the_image_under_test_is_looked_at(
    make_workload: Make, image: str, text: str, said: tuple[str, str] | None
) -> None:
    folder = make_workload(change=lambda t: _good(t).replace("inside = true", image))
    (folder / "Dockerfile").write_text(text)
    found = _said(folder)
    if said is None:
        assert found == []
    else:
        ((severity, what),) = found
        assert severity == said[0]
        assert said[1] in what


def test_the_command_exits_with_1_on_errors_and_2_without_workloads(
    make_workload: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["canary", "lint"]) == 0
    capsys.readouterr()
    folder = make_workload("one", change=lambda t: t.replace("inside", "outside"))
    assert main(["canary", "lint", str(folder), "--format", "json"]) == 1
    body = json.loads(capsys.readouterr().out)
    assert body["workloads"] == [str(folder)]
    assert body["findings"][0]["severity"] == "error"
    assert main(["canary", "lint", str(tmp_path / "nowhere")]) == 2
    warned = make_workload("two")
    assert main(["canary", "lint", str(warned)]) == 0
    assert main(["canary", "lint", "--strict", str(warned)]) == 1


def test_workloads_and_suites_are_listed_and_shown(
    make_workload: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_workload("our-gemm")
    assert main(["canary", "workloads", "--workloads", str(tmp_path)]) == 0
    assert "our-gemm" in capsys.readouterr().out
    assert main(["canary", "workloads", "hello-cpu", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["hash-time"]["unit"] == "ms"
    assert main(["canary", "workloads", "hello-cpu"]) == 0
    assert "lower is better, tolerance 25%" in capsys.readouterr().out
    assert main(["canary", "suites", "--format", "json"]) == 0
    assert {s["name"] for s in json.loads(capsys.readouterr().out)["suites"]} >= {"smoke", "hello"}
    assert main(["canary", "suites", "hello"]) == 0
    assert main(["canary", "suites", "nope"]) == 2
