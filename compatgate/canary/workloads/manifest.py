"""Read a workload's folder into a `Workload`, and ``suites.toml`` into `Suite` objects.

The structs have the shape of the JSON Schemas of both files.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from compatgate.canary.judge.prepare import find_conversion
from compatgate.canary.structured_files import make_file_error, read_toml
from compatgate.canary.workload import Limits, Line, MetricSpec, Program, Slug, Suite, Workload
from compatgate.canary.workloads.contents import compute_digest, find_proofs
from compatgate.core.facts.nvidia import unit_of
from compatgate.core.needs import parse_needs
from compatgate.documents.quantities import (
    DURATION_PATTERN,
    SIZE_PATTERN,
    parse_duration,
    parse_size,
)
from compatgate.documents.sources import DocumentProblem
from compatgate.documents.specs import NEED_PATTERN
from compatgate.documents.text import RawDocument
from compatgate.errors import BadInput

MANIFEST = "workload.toml"
SUITES = "suites.toml"


_Size = Annotated[str, Meta(pattern=SIZE_PATTERN)]


class LimitsTable(Struct, frozen=True, forbid_unknown_fields=True):
    """``[limits]``; sizes as people write them."""

    memory: _Size = "8GiB"
    shm: _Size = "1GiB"
    tmp: _Size = "1GiB"
    pids: Annotated[int, Meta(ge=1, le=1_000_000)] = 1024
    cpus: Annotated[float, Meta(gt=0, le=4096)] | None = None
    output: _Size = "16MiB"


class WorkloadFile(Program, frozen=True, forbid_unknown_fields=True):
    """Content of a ``workload.toml``."""

    needs: tuple[Annotated[str, Meta(pattern=NEED_PATTERN)], ...] = ()
    timeout: Annotated[str, Meta(pattern=DURATION_PATTERN)] = "10m"
    limits: LimitsTable = LimitsTable()
    harness: bool | None = None
    replaces: bool = False


class SuiteTable(Struct, frozen=True, forbid_unknown_fields=True):
    """``[NAME]`` of a ``suites.toml``."""

    description: Line
    workloads: Annotated[tuple[Slug, ...], Meta(min_length=1, max_length=256)]
    replaces: bool = False


SuitesFile = dict[Slug, SuiteTable]


class LibraryWorkload(Struct, frozen=True):
    """A workload, and whether it replaces one of the same name."""

    workload: Workload
    replaces: bool


class LibrarySuite(Struct, frozen=True):
    """A suite, its file, and whether it replaces another."""

    suite: Suite
    file: Path
    replaces: bool


def read_workload(folder: Path) -> Workload:
    """Return the workload of a folder."""
    return read_library_workload(folder).workload


def read_library_workload(folder: Path) -> LibraryWorkload:
    """Return the workload as `read_workload` does, with data for a library of several folders."""
    path = folder / MANIFEST
    written, raw = read_toml(path, "workload", WorkloadFile)
    problems = list(_find_problems(written, raw))
    if problems:
        raise make_file_error(path, problems)
    workload = _make_workload(written, folder.resolve())
    if why := _find_harness_problem(written, workload.proofs):
        problem = raw.problem(("harness",), why, value=written.harness)
        raise make_file_error(path, [problem])
    return LibraryWorkload(workload, written.replaces)


def read_suites(path: Path) -> list[LibrarySuite]:
    """Return the suites of a file, in file order."""
    written, raw = read_toml(path, "suites", SuitesFile)
    problems = [
        raw.problem((name, "workloads"), f"{twice} is named twice", value=twice)
        for name, table in written.items()
        if (twice := _find_duplicate(table.workloads))
    ]
    if problems:
        raise make_file_error(path, problems)
    return [
        LibrarySuite(Suite(name, table.description, table.workloads), path, table.replaces)
        for name, table in written.items()
    ]


def _find_problems(written: WorkloadFile, raw: RawDocument) -> list[DocumentProblem]:
    results = []
    image = written.image
    if not (image.inside or image.context or image.reference):
        hint = 'set inside = true, context = "." or reference = "name@sha256:..."'
        results.append(raw.problem(("image",), "names no image", hint=hint))
    if image.context and image.reference:
        hint = "remove one of them"
        results.append(raw.problem(("image",), "has both context and reference", hint=hint))
    if image.context and (
        os.path.isabs(image.context)
        or os.path.normpath(image.context).split(os.sep)[0] == os.pardir
    ):
        what = f"{image.context!r} is outside the workload's folder"
        results.append(raw.problem(("image", "context"), what, value=image.context))
    if image.tool and (image.inside or image.reference or not image.context):
        what = "needs a context, and a workload that cannot run inside"
        hint = 'set context = ".", without inside and reference'
        results.append(raw.problem(("image", "tool"), what, value=image.tool, hint=hint))
    if why := _find_need_problem(written):
        results.append(raw.problem(("needs",), why, value=list(written.needs)))
    if twice := _find_duplicate(written.seeds):
        results.append(raw.problem(("seeds",), f"{twice} is named twice", value=twice))
    if written.interpreter == "worker" and not written.command[0].startswith("python"):
        what = "needs a command that starts with python3"
        hint = "only Python can be the worker's; omit interpreter"
        results.append(raw.problem(("interpreter",), what, value=written.command[0], hint=hint))
    if strange := [name for name in written.host_checks if name not in written.checks]:
        hint = f"declare it under [checks]; known: {', '.join(written.checks) or 'none'}"
        what = f"{strange[0]} is not a check"
        results.append(raw.problem(("host_checks",), what, value=strange[0], hint=hint))
    if not (written.metrics or written.checks):
        hint = "declare a metric or a check; without one a run can show nothing"
        results.append(raw.problem((), "no metric and no check is declared", hint=hint))
    return results + [
        raw.problem(("metrics", name, "peak"), why, value=table.peak)
        for name, table in written.metrics.items()
        if (why := _find_peak_problem(table, written.gpus))
    ]


def _find_harness_problem(written: WorkloadFile, proofs: tuple[str, ...]) -> str:
    """Return why a program's harness does not fit its manifest; "" if it fits."""
    if written.harness and not proofs:
        return "is true, but no file of the folder uses canary_lines, or the folder has its own"
    if written.interpreter == "worker" and "torch" in proofs:
        return "starts PyTorch, which the worker's interpreter does not have"
    return ""


def _find_need_problem(written: WorkloadFile) -> str:
    """Return why a workload cannot need that of a GPU; "" if it can."""
    if not written.needs:
        return ""
    if not written.gpus:
        return "are of GPUs, but the workload takes no GPU"
    try:
        parse_needs(written.needs)
    except BadInput as error:
        return f"{error.problem} ({error.hint})"
    twice = _find_duplicate(written.needs)
    return f"{twice} is named twice" if twice else ""


def _find_peak_problem(table: MetricSpec, gpus: int) -> str:
    """Return why a metric cannot be shown as a share of its peak; "" if it can."""
    if table.peak is None:
        return ""
    if not gpus:
        return "peaks are of GPUs, but the workload needs no GPU"
    if find_conversion(unit := unit_of(table.peak), table.unit) is None:
        return f"the {table.peak} peak is in {unit}, which does not convert into {table.unit}"
    return "" if table.better == "higher" else "a metric with a peak must be higher-is-better"


def _find_duplicate(values: tuple[Any, ...]) -> str | None:
    seen: set[Any] = set()
    for value in values:
        if value in seen:
            return str(value)
        seen.add(value)
    return None


def _make_workload(written: WorkloadFile, folder: Path) -> Workload:
    limits = written.limits
    sizes = {name: parse_size(getattr(limits, name)) for name in ("memory", "shm", "tmp", "output")}
    return Workload(
        **{name: getattr(written, name) for name in Program.__struct_fields__},
        needs=parse_needs(written.needs) if written.needs else None,
        timeout_s=int(parse_duration(written.timeout).total_seconds()),
        limits=Limits(**sizes, pids=limits.pids, cpus=limits.cpus),
        proofs=find_proofs(folder) if written.harness is not False else (),
        folder=folder,
        digest=compute_digest(folder),
    )
