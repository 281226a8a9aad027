"""Lint says what is wrong with a workload before anything is run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from compatgate.canary.run import Check, Env, Metric, Report
from compatgate.canary.samples.sample import Sample, SampleHead, format_sample
from compatgate.canary.workloads import read_workload
from compatgate.canary.workloads.contents import list_container_files
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


def _sampled(folder: Path) -> tuple[Path, str]:
    """A workload with a sample beside it, and the sample's text."""
    workload = read_workload(folder)
    said = Report(
        env=Env(versions={"cuda": "12.4"}),
        metrics=(Metric("speed", "GB/s", tuple(1 + i / 1000 for i in range(30))),),
        checks=(Check("right", ok=True),),
    )
    head = SampleHead(
        type="sample",
        workload=workload.name,
        digest=workload.digest,
        seed=0,
        sku="cpu",
        family="cuda-12.4",
        measured_at="2026-11-21T20:16:37Z",
        executor="docker",
        development=False,
        compatgate="0.1.0",
        run="run_1",
        step="made-0",
    )
    path = folder / "samples" / head.file_name
    path.parent.mkdir()
    path.write_text(format_sample(Sample(head, said)))
    return path, path.read_text()


def test_a_whole_sample_of_the_workload_as_it_is_has_nothing_to_mend(make_workload: Make) -> None:
    folder = make_workload(change=_good)
    _sampled(folder)
    (folder / "samples" / "README.md").write_text("where these are from\n")
    assert _said(folder) == []


@pytest.mark.parametrize(
    ("old", "new", "severity", "said"),
    [
        ('"cpu"', '"Q100"', "error", "is not a GPU that the facts know"),
        ('"cpu"', '"L4x"', "warning", "as compatgate names it"),
        (
            '"GB/s"',
            '"MB/s"',
            "error",
            "line 3: the metric speed is in 'MB/s', but GB/s is declared",
        ),
        ('"speed"', '"pace"', "error", "line 3: the metric 'pace' is not declared"),
        ('"right"', '"wrong"', "error", "line 4: the check 'wrong' is not declared"),
        ("1.001,", "", "error", "speed: it has 29 values, 30 are needed"),
        ('"ok":true', '"ok":false', "error", "check right failed"),
        ('"seed":0', '"seed":"0"', "error", "line 1: seed: "),
        ('"12.4"', '"12.6"', "error", "family is cuda-12.4, but the env line shows"),
        ('"workload":"made"', '"workload":"other"', "error", "is a sample of other"),
    ],
)
def test_what_is_wrong_with_a_sample_is_said(
    make_workload: Make, old: str, new: str, severity: str, said: str
) -> None:
    folder = make_workload(change=_good)
    path, text = _sampled(folder)
    path.write_text(text.replace(old, new, 1))
    found = [(f.file, f.severity, f.message) for f in lint_workloads(folder)[1]]
    assert any(f == str(path) and s == severity and said in m for f, s, m in found), found


def test_a_sample_of_an_older_content_is_a_warning(make_workload: Make) -> None:
    folder = make_workload(change=_good)
    _sampled(folder)
    (folder / "program.py").write_text("print('changed')\n")
    ((severity, said),) = _said(folder)
    assert severity == "warning"
    assert "made has changed since" in said


def test_what_is_no_sample_beside_them_is_an_error(make_workload: Make) -> None:
    folder = make_workload(change=_good)
    (folder / "samples").mkdir()
    (folder / "samples" / "photo.bin").write_bytes(b"x")
    ((severity, said),) = _said(folder)
    assert (severity, "is not copied into containers" in said) == ("error", True)


def test_samples_change_no_digest_and_travel_into_no_container(make_workload: Make) -> None:
    folder = make_workload(change=_good)
    before = read_workload(folder)
    path, _ = _sampled(folder)
    after = read_workload(folder)
    assert after.digest == before.digest
    assert not any("samples" in file.path for file in list_container_files(after))
    (folder / "saved" / "samples").mkdir(parents=True)
    (folder / "saved" / "samples" / path.name).write_text("of the program\n")
    assert read_workload(folder).digest != before.digest, "deeper ones are the program's own"


def test_a_workload_shows_its_samples(
    make_workload: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_workload(change=_good)
    ask = ["canary", "workloads", "made", "--workloads", str(tmp_path)]
    assert main(ask) == 0
    assert "sample    none yet" in capsys.readouterr().out
    path, _ = _sampled(folder)
    assert main(ask) == 0
    assert "sample    cpu, no driver, cuda-12.4, 2026-11-21\n" in capsys.readouterr().out
    (folder / "program.py").write_text("print('changed')\n")
    assert main([*ask, "--format", "json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["samples"]
    assert (shown["file"], shown["current"]) == (path.name, False)
