"""Shipped workloads and operators' own by name; a name is taken once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from compatgate.canary.workloads import Library
from compatgate.canary.workloads.library import ENVIRONMENT
from compatgate.errors import BadInput, Conflict, ManyProblems, NotFound

Make = Callable[..., Path]


def test_the_shipped_suites_name_workloads_that_are_there() -> None:
    library = Library.open([])
    assert [w.name for w in library.of_suite("hello")] == ["hello-cpu"]
    assert {w.name for w in library.of_suite("smoke")} <= set(library.workloads)
    assert library.gpus_of("hello") == 0
    assert library.gpus_of("smoke") == 1


def test_own_workloads_and_suites_stand_beside_the_shipped(
    make_workload: Make, tmp_path: Path
) -> None:
    make_workload("our-gemm")
    (tmp_path / "suites.toml").write_text(
        '[ours]\ndescription = "Core"\nworkloads = ["our-gemm", "hello-cpu"]\n'
    )
    library = Library.open([tmp_path])
    assert [w.name for w in library.of_suite("ours")] == ["our-gemm", "hello-cpu"]


def test_one_workload_can_be_given_by_its_own_folder(make_workload: Make) -> None:
    assert "our-gemm" in Library.open([make_workload("our-gemm")]).workloads


def test_folders_come_from_the_environment(
    make_workload: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    make_workload("our-gemm", folder=one)
    make_workload("our-conv", folder=other)
    monkeypatch.setenv(ENVIRONMENT, os.pathsep.join([str(one), str(other)]))
    assert {"our-gemm", "our-conv", "hello-cpu"} <= set(Library.open().workloads)
    assert "our-gemm" not in Library.open([]).workloads


def test_a_name_that_is_taken_is_an_error_unless_it_is_meant(
    make_workload: Make, tmp_path: Path
) -> None:
    folder = make_workload("hello-cpu")
    with pytest.raises(ManyProblems, match="replaces = true"):
        Library.open([tmp_path])
    text = (folder / "workload.toml").read_text()
    (folder / "workload.toml").write_text("replaces = true\n" + text)
    assert Library.open([tmp_path]).workload("hello-cpu").folder == folder.resolve()


def test_a_suite_that_is_taken_is_an_error_unless_it_is_meant(tmp_path: Path) -> None:
    file = tmp_path / "suites.toml"
    text = '[smoke]\ndescription = "Mine"\nworkloads = ["hello-cpu"]\n'
    file.write_text(text)
    with pytest.raises(Conflict, match="replaces = true"):
        Library.open([tmp_path])
    file.write_text(text + "replaces = true\n")
    assert Library.open([tmp_path]).suite("smoke").description == "Mine"


def test_unknown_names_come_with_the_nearest(tmp_path: Path) -> None:
    library = Library.open([])
    with pytest.raises(NotFound, match="did you mean hello-cpu"):
        library.workload("hello-gpu")
    with pytest.raises(NotFound, match=r"did you mean smoke.*COMPATGATE_WORKLOADS names folders"):
        library.suite("smoke1")
    (tmp_path / "suites.toml").write_text('[x]\ndescription = "x"\nworkloads = ["helo-cpu"]\n')
    with pytest.raises(ManyProblems, match=r"suite x: workload 'helo-cpu' does not exist"):
        Library.open([tmp_path])


def test_a_workload_that_is_named_for_a_suite_leads_to_the_suites_with_it(
    make_workload: Make, tmp_path: Path
) -> None:
    make_workload("our-gemm")
    library = Library.open([tmp_path])
    with pytest.raises(NotFound, match=r"that is a workload; add it to a suite.*suites\.toml"):
        library.suite("our-gemm")
    with pytest.raises(NotFound, match="that is a workload; suites with it: smoke"):
        library.suite("ptx-jit")


def test_reading_again_finds_what_was_changed(make_workload: Make, tmp_path: Path) -> None:
    folder = make_workload("our-gemm")
    before = Library.open([tmp_path])
    (folder / "program.py").write_text("print('another')\n")
    (tmp_path / "suites.toml").write_text('[ours]\ndescription = "x"\nworkloads = ["our-gemm"]\n')
    (after,) = before.reread().of_suite("ours")
    assert after.digest != before.workload("our-gemm").digest


def test_a_folder_without_any_of_this_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="contains neither workloads nor"):
        Library.open([tmp_path])
    with pytest.raises(BadInput, match="does not exist"):
        Library.open([tmp_path / "nowhere"])


def test_mistakes_in_several_workloads_are_reported_together(
    make_workload: Make, tmp_path: Path
) -> None:
    make_workload("one", change=lambda t: t.replace("inside", "outside"))
    make_workload("two", change=lambda t: t.replace("higher", "up"))
    with pytest.raises(ManyProblems) as error:
        Library.open([tmp_path])
    assert "one/workload.toml" in error.value.detail
    assert "two/workload.toml" in error.value.detail
