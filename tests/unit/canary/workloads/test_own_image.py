"""Whether a workload has an image to run in where none is under test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from compatgate.canary.workloads import Library, read_workload
from compatgate.canary.workloads.contents import has_own_image

Make = Callable[..., Path]


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
