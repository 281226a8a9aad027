"""Read workloads and suites by name: the shipped ones, then those of operators' folders."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from compatgate.canary.judge.prepare import find_conversion
from compatgate.canary.structured_files import make_file_error, read_toml
from compatgate.canary.workload import Limits, Line, MetricSpec, Program, Slug, Suite, Workload
from compatgate.canary.workloads.contents import compute_digest, find_proofs
from compatgate.core.binding import SuiteDefinition, define_suite
from compatgate.core.facts.nvidia import unit_of
from compatgate.core.needs import parse_needs
from compatgate.documents.quantities import (
    DURATION_PATTERN,
    SIZE_PATTERN,
    parse_duration,
    parse_size,
)
from compatgate.documents.sources import DocumentProblem, suggest_name
from compatgate.documents.specs import NEED_PATTERN
from compatgate.documents.text import RawDocument
from compatgate.errors import BadInput, CompatgateError, Conflict, ManyProblems, NotFound
from compatgate.resources import canary_dir

_log = logging.getLogger(__name__)
ENVIRONMENT = "COMPATGATE_WORKLOADS"
MANIFEST = "workload.toml"
SUITES = "suites.toml"


_Size = Annotated[str, Meta(pattern=SIZE_PATTERN)]


class Library:
    """Workloads and suites by name."""

    def __init__(self, folders: Sequence[str | Path] = ()) -> None:
        self.folders = tuple(folders)
        self.workloads: dict[str, Workload] = {}
        self.suites: dict[str, Suite] = {}

    @classmethod
    def open(cls, folders: Sequence[str | Path] | None = None) -> Library:
        """Read all folders.

        Operators' own folders are read after the shipped ones; None: those of
        ``COMPATGATE_WORKLOADS``, separated like ``PATH``. Each contains folders with a
        ``workload.toml``, may contain a ``suites.toml``, or is itself a workload.
        """
        if folders is None:
            folders = [part for part in os.environ.get(ENVIRONMENT, "").split(os.pathsep) if part]
        library = cls(folders)
        library._add(canary_dir())
        for folder in folders:
            library._add(Path(folder))
        problems = [
            NotFound(
                f"workload {workload!r} does not exist",
                field=f"suite {suite.name}",
                value=workload,
                hint=suggest_name(workload, library.workloads),
            )
            for suite in library.suites.values()
            for workload in suite.workloads
            if workload not in library.workloads
        ]
        if problems:
            raise ManyProblems("suites name workloads that do not exist", problems)
        return library

    def reread(self) -> Library:
        """Read the same folders again."""
        return Library.open(self.folders)

    def workload(self, name: str) -> Workload:
        """Return a workload by its name."""
        if result := self.workloads.get(name):
            return result
        hint = suggest_name(name, self.workloads)
        raise NotFound(f"workload {name!r} does not exist", field="workload", value=name, hint=hint)

    def suite(self, name: str) -> Suite:
        """Return a suite by its name."""
        if result := self.suites.get(name):
            return result
        hint = self.suggest_suite(name)
        raise NotFound(f"suite {name!r} does not exist", field="suite", value=name, hint=hint)

    def suggest_suite(self, name: str, others: Collection[str] = ()) -> str:
        """Return a hint for a missing suite: the nearest names, of ``others``, too."""
        having = [suite.name for suite in self.suites.values() if name in suite.workloads]
        if name not in self.workloads:
            hint = suggest_name(name, {*self.suites, *others})
        elif having:
            hint = f"that is a workload; suites with it: {', '.join(having)}"
        else:
            hint = f"that is a workload; add it to a suite in the {SUITES} next to its folder"
        return hint if self.folders else f"{hint}; {ENVIRONMENT} names folders of your own"

    def of_suite(self, name: str) -> tuple[Workload, ...]:
        """Return the workloads of a suite, in its order."""
        return tuple(self.workload(workload) for workload in self.suite(name).workloads)

    def gpus_of(self, name: str) -> int:
        """Return the most GPUs that a workload of a suite needs, on all its nodes."""
        return max(workload.gpus * workload.nodes for workload in self.of_suite(name))

    def nodes_of(self, name: str) -> int:
        """Return the most nodes that a workload of a suite runs on at once."""
        return max(workload.nodes for workload in self.of_suite(name))

    def _add(self, folder: Path) -> None:
        folders, suites = find_contents(folder)
        problems: list[CompatgateError] = []
        for each in folders:
            try:
                added, replaces = _read_workload(each)
                name = added.name
                other = self.workloads.get(name)
                if other is not None and not replaces:
                    here = str(each / MANIFEST)
                    raise _conflict_error("workload", name, here, str(other.folder))
                self.workloads[name] = added
            except ManyProblems as error:
                problems += error.problems
            except CompatgateError as error:
                problems.append(error)
        if suites:
            for name, table in read_suites(suites).items():
                if name in self.suites and not table.replaces:
                    raise _conflict_error("suite", name, str(suites), "another file")
                self.suites[name] = Suite(name, table.description, table.workloads)
        if problems:
            noun = "problem" if len(problems) == 1 else "problems"
            raise ManyProblems(f"{len(problems)} {noun} in workloads of {folder}", problems)


def load_library() -> Library:
    """Return every suite and workload; each value of ``COMPATGATE_WORKLOADS`` is read once."""
    return _load_library(os.environ.get(ENVIRONMENT, ""))


@cache
def _load_library(folders: str) -> Library:
    return Library.open([part for part in folders.split(os.pathsep) if part])


def define_suites(load: Callable[[], Library] = load_library) -> dict[str, SuiteDefinition]:
    """Return the definition of each suite; nothing, with a warning, if they cannot be read."""
    try:
        library = load()
        return {
            name: define_suite({one.name: one.digest for one in library.of_suite(name)})
            for name in library.suites
        }
    except CompatgateError as error:
        _log.warning("no evidence is stale for its suite: %s", error.detail)
        return {}


def find_contents(folder: Path) -> tuple[list[Path], Path | None]:
    """Return the workloads' folders in a folder, and its ``suites.toml``."""
    if not folder.is_dir():
        raise BadInput(f"folder {folder} does not exist", field="--workloads", value=str(folder))
    if (folder / MANIFEST).exists():
        return [folder], None
    folders = sorted(path.parent for path in folder.glob(f"*/{MANIFEST}"))
    suites = folder / SUITES
    if not folders and not suites.exists():
        raise BadInput(
            f"{folder} contains neither workloads nor a {SUITES}",
            field="--workloads",
            value=str(folder),
            hint=f"a workload is a folder with a {MANIFEST}, as compatgate canary lint checks it",
        )
    return folders, suites if suites.exists() else None


def _conflict_error(kind: str, name: str, here: str, there: str) -> Conflict:
    return Conflict(
        f"the {kind} {name} of {here} is also in {there}",
        field=name,
        value=name,
        hint="rename it, or set replaces = true to replace the other on purpose",
    )


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


def read_workload(folder: Path) -> Workload:
    """Return the workload of a folder."""
    return _read_workload(folder)[0]


def _read_workload(folder: Path) -> tuple[Workload, bool]:
    """Return a workload, and whether it replaces one of the same name."""
    path = folder / MANIFEST
    written, raw = read_toml(path, "workload", WorkloadFile)
    problems = list(_find_problems(written, raw))
    if problems:
        raise make_file_error(path, problems)
    limits, folder = written.limits, folder.resolve()
    sizes = {name: parse_size(getattr(limits, name)) for name in ("memory", "shm", "tmp", "output")}
    workload = Workload(
        **{name: getattr(written, name) for name in Program.__struct_fields__},
        needs=parse_needs(written.needs) if written.needs else None,
        timeout_s=int(parse_duration(written.timeout).total_seconds()),
        limits=Limits(**sizes, pids=limits.pids, cpus=limits.cpus),
        proofs=find_proofs(folder) if written.harness is not False else (),
        folder=folder,
        digest=compute_digest(folder),
    )
    why = ""
    if written.harness and not workload.proofs:
        why = "is true, but no file of the folder uses canary_lines, or the folder has its own"
    elif written.interpreter == "worker" and "torch" in workload.proofs:
        why = "starts PyTorch, which the worker's interpreter does not have"
    if why:
        problem = raw.problem(("harness",), why, value=written.harness)
        raise make_file_error(path, [problem])
    return workload, written.replaces


def read_suites(path: Path) -> SuitesFile:
    """Return the suites of a file by name, in file order."""
    written, raw = read_toml(path, "suites", SuitesFile)
    problems = [
        raw.problem((name, "workloads"), f"{twice} is named twice", value=twice)
        for name, table in written.items()
        if (twice := _find_duplicate(table.workloads))
    ]
    if problems:
        raise make_file_error(path, problems)
    return written


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
    return next((str(v) for place, v in enumerate(values) if v in values[:place]), None)
