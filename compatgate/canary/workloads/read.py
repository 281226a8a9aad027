"""A workload's folder into a `Workload`, and ``suites.toml`` into `Suite`s."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from compatgate.canary.judge.units import conversion
from compatgate.canary.toml import read_toml, refused
from compatgate.canary.workload import ImageSpec, Limits, MetricSpec, Suite, Workload
from compatgate.canary.workloads.pack import digest_of
from compatgate.canary.workloads.spec import LimitsTable, MetricTable, SuitesFile, WorkloadFile
from compatgate.core.facts.peaks import unit_of
from compatgate.documents.durations import parse_duration
from compatgate.documents.nodes import RawDocument
from compatgate.documents.problems import DocumentProblem
from compatgate.documents.sizes import parse_size

MANIFEST = "workload.toml"
SUITES = "suites.toml"


class Found(Struct, frozen=True):
    """A workload, and whether it is meant to take the place of one of the same name."""

    workload: Workload
    replaces: bool


class FoundSuite(Struct, frozen=True):
    """A suite, the file it stands in, and whether it is meant to replace another."""

    suite: Suite
    file: Path
    replaces: bool


def read_workload(folder: Path) -> Workload:
    """The workload of a folder.

    Raises:
        NotFound: the folder has no ``workload.toml``.
        ManyProblems: every mistake in it, with file, field and value.
        BadInput: the folder holds links, or more than a workload may.
    """
    return find_workload(folder).workload


def find_workload(folder: Path) -> Found:
    """As `read_workload`, with what only a library of several wants to know."""
    path = folder / MANIFEST
    written, raw = read_toml(path, "workload", WorkloadFile)
    problems = list(_meaningless(written, raw))
    if problems:
        raise refused(path, problems)
    return Found(_workload(written, folder.resolve()), written.replaces)


def read_suites(path: Path) -> list[FoundSuite]:
    """The suites of a file, in its order.

    Raises:
        NotFound: there is no such file.
        ManyProblems: every mistake in it.
    """
    written, raw = read_toml(path, "suites", SuitesFile)
    problems = [
        raw.problem((name, "workloads"), f"{twice} is named twice", value=twice)
        for name, table in written.items()
        if (twice := _first_twice(table.workloads))
    ]
    if problems:
        raise refused(path, problems)
    return [
        FoundSuite(Suite(name, table.description, table.workloads), path, table.replaces)
        for name, table in written.items()
    ]


def _meaningless(written: WorkloadFile, raw: RawDocument) -> list[DocumentProblem]:
    """What a schema cannot say."""
    found = []
    image = written.image
    if not (image.inside or image.context or image.reference):
        hint = 'inside = true, context = "." or reference = "name@sha256:..."'
        found.append(raw.problem(("image",), "names no image", hint=hint))
    if image.context and image.reference:
        hint = "keep one of them"
        found.append(raw.problem(("image",), "has both context and reference", hint=hint))
    if image.context and _leaves(image.context):
        what = f"{image.context!r} leaves the workload's folder"
        found.append(raw.problem(("image", "context"), what, value=image.context))
    if image.tool and (image.inside or image.reference or not image.context):
        what = "is of what a context builds, for a workload that cannot run inside"
        hint = 'context = "." without inside and reference'
        found.append(raw.problem(("image", "tool"), what, value=image.tool, hint=hint))
    if twice := _first_twice(written.seeds):
        found.append(raw.problem(("seeds",), f"{twice} is named twice", value=twice))
    if not (written.metrics or written.checks):
        hint = "declare a metric or a check; without one a run can show nothing"
        found.append(raw.problem((), "there is neither a metric nor a check", hint=hint))
    return found + [
        raw.problem(("metrics", name, "peak"), why, value=table.peak)
        for name, table in written.metrics.items()
        if (why := _peakless(table, written.gpus))
    ]


def _peakless(table: MetricTable, gpus: int) -> str:
    """Why a metric cannot be a share of the peak that it names; "" where it can."""
    if table.peak is None:
        return ""
    if not gpus:
        return "peaks are of GPUs, and the workload needs none"
    if conversion(unit := unit_of(table.peak), table.unit) is None:
        return f"the {table.peak} peak is in {unit}, which does not convert into {table.unit}"
    return "" if table.better == "higher" else "more is better of what a GPU has a peak of"


def _leaves(path: str) -> bool:
    return os.path.isabs(path) or os.path.normpath(path).split(os.sep)[0] == os.pardir


def _first_twice(values: tuple[Any, ...]) -> str | None:
    seen: set[Any] = set()
    for value in values:
        if value in seen:
            return str(value)
        seen.add(value)
    return None


def _workload(written: WorkloadFile, folder: Path) -> Workload:
    return Workload(
        name=written.name,
        description=written.description,
        command=written.command,
        image=ImageSpec(**msgspec.structs.asdict(written.image)),
        catches=written.catches,
        gpus=written.gpus,
        nodes=written.nodes,
        timeout_s=int(parse_duration(written.timeout).total_seconds()),
        seeds=written.seeds,
        environment=written.environment,
        limits=_limits(written.limits),
        metrics={
            name: MetricSpec(**msgspec.structs.asdict(table))
            for name, table in written.metrics.items()
        },
        checks=written.checks,
        adapter=written.adapter,
        user=written.user,
        folder=folder,
        digest=digest_of(folder),
    )


def _limits(table: LimitsTable) -> Limits:
    return Limits(
        memory=parse_size(table.memory),
        shm=parse_size(table.shm),
        tmp=parse_size(table.tmp),
        pids=table.pids,
        cpus=table.cpus,
        output=parse_size(table.output),
    )
