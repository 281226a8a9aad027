"""``compatgate target from`` and ``check --probe`` with other projects' files."""

from __future__ import annotations

import io
import sys
from pathlib import Path

from compatgate.cli.main import main

FOLDER = Path(__file__).parents[3] / "fixtures" / "neighbours"


def test_a_document_is_printed_with_its_remarks_as_comments(capsys) -> None:
    assert main(["target", "from", str(FOLDER / "aicr-snapshot-gb200.yaml"), "--name", "gb"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# AICR records the name of the first of 4 GPUs")
    assert "  - name: gb200\n    gpu: GB200\n    driver: 580.82.07\n" in out


def test_what_is_printed_can_be_imported(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COMPATGATE_DATABASE", f"sqlite:///{tmp_path}/gate.db")
    main(["target", "from", str(FOLDER / "aicr-snapshot-gb200.yaml"), "--name", "gb"])
    path = tmp_path / "target.yaml"
    path.write_text(capsys.readouterr().out)
    assert main(["matrix", "import", str(path)]) == 0
    assert "+ Target gb" in capsys.readouterr().out


def test_what_is_not_known_is_named_and_may_be_stated(capsys) -> None:
    recipe = str(FOLDER / "aicr-recipe-gb200.yaml")
    assert main(["target", "from", recipe, "--name", "next"]) == 3
    result = capsys.readouterr()
    assert "# pool eks-gb200: driver is not known: the recipe takes the driver's" in result.out
    assert "missing: eks-gb200: driver" in result.err
    stated = ["--driver", "595.91.07", "--format", "json"]
    assert main(["target", "from", recipe, "--name", "next", *stated]) == 0
    result = capsys.readouterr()
    assert '"driver": "595.91.07"' in result.out
    assert "note: a recipe states the intended" in result.err


def test_standard_input_is_read(capsys, monkeypatch) -> None:
    data = (FOLDER / "nvidiadriver.yaml").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert main(["target", "from", "-", "--name", "t", "--gpu", "L4"]) == 0
    assert "gpu: L4\n    driver: 570.148.08" in capsys.readouterr().out


def test_bad_files_are_errors_of_one_line(tmp_path, capsys) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("kind: Pod\napiVersion: v1\n")
    assert main(["target", "from", str(path), "--name", "t"]) == 2
    assert "is Pod v1" in capsys.readouterr().err
    assert main(["target", "from", str(tmp_path / "none"), "--name", "t"]) == 2
    assert (
        main(["target", "from", str(FOLDER / "nvidiadriver.yaml"), "--name", "t", "--gpu", "Z9"])
        == 2
    )


def test_check_takes_a_snapshot_as_a_probe(capsys) -> None:
    probe = ["check", "--probe", str(FOLDER / "aicr-snapshot-gb200.yaml")]
    assert main([*probe, "--stack", "cuda=13.0,arch=sm_100"]) == 0
    result = capsys.readouterr()
    assert "GB200, driver 580.82.07" in result.out
    assert "note: AICR does not record MIG devices" in result.err
    assert main([*probe, "--stack", "cuda=12.4,arch=sm_80"]) == 1


def test_check_refuses_a_snapshot_without_a_gpu_and_says_unknown_without_a_driver(capsys) -> None:
    stack = ["--stack", "cuda=12.4,arch=sm_90"]
    assert main(["check", "--probe", str(FOLDER / "aicr-snapshot-cpu.yaml"), *stack]) == 2
    assert main(["check", "--probe", str(FOLDER / "aicr-snapshot-criteria.yaml"), *stack]) == 3


def test_a_name_that_no_target_can_have_is_refused(capsys) -> None:
    assert main(["target", "from", "x.yaml", "--name", "a b\n- x"]) == 2
    assert "is not a target name" in capsys.readouterr().err
