"""Library of workloads and suites by name: the shipped ones, then operators' folders."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from compatgate.canary.workload import Suite, Workload
from compatgate.canary.workloads.manifest import (
    MANIFEST,
    SUITES,
    read_library_workload,
    read_suites,
)
from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput, CompatgateError, Conflict, ManyProblems, NotFound
from compatgate.resources import canary_dir

ENVIRONMENT = "COMPATGATE_WORKLOADS"


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
        library._check_suites()
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
                added = read_library_workload(each)
                name = added.workload.name
                other = self.workloads.get(name)
                if other is not None and not added.replaces:
                    here = str(each / MANIFEST)
                    raise _conflict_error("workload", name, here, str(other.folder))
                self.workloads[name] = added.workload
            except ManyProblems as error:
                problems += error.problems
            except CompatgateError as error:
                problems.append(error)
        if suites:
            for result in read_suites(suites):
                name = result.suite.name
                if name in self.suites and not result.replaces:
                    raise _conflict_error("suite", name, str(result.file), "another file")
                self.suites[name] = result.suite
        if problems:
            noun = "problem" if len(problems) == 1 else "problems"
            raise ManyProblems(f"{len(problems)} {noun} in workloads of {folder}", problems)

    def _check_suites(self) -> None:
        problems = [
            NotFound(
                f"workload {workload!r} does not exist",
                field=f"suite {suite.name}",
                value=workload,
                hint=suggest_name(workload, self.workloads),
            )
            for suite in self.suites.values()
            for workload in suite.workloads
            if workload not in self.workloads
        ]
        if problems:
            raise ManyProblems("suites name workloads that do not exist", problems)


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
