"""Shipped workloads and operators' own by name; a name is taken once.

What the shipped Dockerfiles start from: images by version, never the image under test.

Whether a workload has an image to run in where none is under test.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from compatgate.canary.workloads import Library, contents, read_workload
from compatgate.canary.workloads.contents import has_own_image
from compatgate.canary.workloads.library import ENVIRONMENT
from compatgate.errors import BadInput, Conflict, ManyProblems, NotFound
from compatgate.resources import canary_dir

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


FILES = sorted(canary_dir().glob("*/Dockerfile"))
VERSIONED = re.compile(r"[a-z0-9./-]+:\d+\.\d+\.\d+[a-z0-9.-]*(@sha256:[0-9a-f]{64})?")
BY_TAG = {"dcgm-diag"}
"""Tools whose image has no digest that NVIDIA or others have published."""
COMMIT = re.compile(r"/archive/[0-9a-f]{40}\.tar\.gz")


def _of_tools() -> set[str]:
    return {name for name, w in Library.open().workloads.items() if w.adapter != "jsonl"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_tools_alone_are_built_and_name_images_by_digest_and_sources_by_commit(file: Path) -> None:
    text = file.read_text()
    named = contents.find_base_images(text)
    assert file.parent.name in _of_tools()
    assert named
    versions = [VERSIONED.fullmatch(image) for image in named]
    assert all(versions), named
    assert file.parent.name in BY_TAG or all(one and one[1] for one in versions), named
    assert contents.is_self_contained(text)
    assert contents.BASE_ARGUMENT not in contents.find_arguments(text)
    for line in text.splitlines():
        if line.startswith("ADD "):
            assert COMMIT.search(line), line


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_tools_that_run_in_the_image_under_test_are_not_left_to_root(file: Path) -> None:
    user = read_workload(file.parent).user
    assert ("\nUSER 65534:65534\n" in file.read_text()) == (user == "nobody")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ADD https://a.example/b.tar.gz /tmp/", ["https://a.example/b.tar.gz"]),
        ('add --chmod=644 ["http://a.example/b", "/tmp/"]', ["http://a.example/b"]),
        ("ADD \\\n  git@github.com:a/b.git \\\n  /tmp/", ["git@github.com:a/b.git"]),
        ("ADD local.tar.gz /tmp/\nCOPY a b\nRUN curl https://a.example", []),
    ],
)
def test_what_the_engine_would_download_for_a_build_is_found(text: str, found: list[str]) -> None:
    assert contents.find_downloads(f"FROM x\n{text}\n") == found


def test_programs_of_the_project_bring_none_and_tools_bring_theirs() -> None:
    workloads = Library.open().workloads.values()
    assert {w.name for w in workloads if has_own_image(w)} == {
        w.name for w in workloads if w.adapter != "jsonl"
    }


@pytest.mark.parametrize(
    ("dockerfile", "brings"),
    [
        ("FROM python:3.12", True),
        ("ARG BASE=python:3.12\nFROM ${BASE}", True),
        ("FROM ${BASE:-python:3.12}", True),
        ("ARG BASE\nFROM ${BASE}", False),
        ("ARG BASE\nfrom $BASE as one\nFROM one", False),
        ("ARG BASE\nFROM gcc:14 AS build\nRUN make\nFROM ${BASE}\nCOPY --from=build /x /x", False),
        ("FROM gcc:14 AS build\nFROM scratch\nCOPY --from=build /x /x", True),
        ("ARG VERSION=3.12\nFROM --platform=linux/amd64 python:${VERSION}", True),
    ],
)
def test_a_dockerfile_names_what_it_starts_from_or_waits_to_be_told(
    make_workload: Make, dockerfile: str, brings: bool
) -> None:
    folder = make_workload(change=lambda t: t.replace("inside = true", 'context = "."'))
    (folder / "Dockerfile").write_text(dockerfile)
    assert has_own_image(read_workload(folder)) is brings


def test_one_that_only_runs_inside_brings_none_and_a_reference_is_one(make_workload: Make) -> None:
    inside = make_workload()
    named = make_workload(
        "named", change=lambda t: t.replace("inside = true", 'inside = true\nreference = "a:1"')
    )
    lost = make_workload("lost", change=lambda t: t.replace("inside = true", 'context = "sub"'))
    assert not has_own_image(read_workload(inside))
    assert has_own_image(read_workload(named))
    assert has_own_image(read_workload(lost)), "the executor says what is missing there"
