"""What can be said of the samples that lie beside a workload."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from compatgate.canary.samples.folder import PAGE, files
from compatgate.canary.samples.lines import read_head, read_report
from compatgate.canary.samples.model import Sample
from compatgate.canary.samples.sound import doubts, stale
from compatgate.canary.workload import Workload
from compatgate.canary.workloads.finding import Finding, Said
from compatgate.canary.workloads.pack import SAMPLES
from compatgate.core.facts import Facts
from compatgate.documents.problems import Problems
from compatgate.documents.sources import Source, read_paths
from compatgate.errors import CompatgateError

_ELSEWHERE = "is no sample, and travels into no container; put it elsewhere"


def lint_samples(workload: Workload, folder: Path) -> Iterator[Finding]:
    """Whether they are whole, and of the workload as it is now."""
    known = files(folder)
    for path in sorted((folder / SAMPLES).iterdir()):
        if path in known:
            for severity, message in _sample(path, workload):
                yield Finding(str(path), severity, message)
        elif path.name != PAGE and not path.name.startswith("."):
            yield Finding(str(path), "error", _ELSEWHERE)


def _sample(path: Path, workload: Workload) -> Iterator[Said]:
    try:
        (source,) = read_paths([path])
    except CompatgateError as error:
        yield "error", error.problem
        return
    yield from _read(source, path, workload)


def _read(source: Source, path: Path, workload: Workload) -> Iterator[Said]:
    problems = Problems()
    head = read_head(source, problems)
    if head is None or len(problems):
        yield from _said(problems)
        return
    if head.workload != workload.name:
        yield "error", f"is a sample of {head.workload}"
        return
    if path.name != head.file_name:
        yield "warning", f"is called {head.file_name} where compatgate writes it"
    if why := stale(head, workload):
        yield "warning", f"{why}; measure it again"
        return
    report = read_report(source, workload, problems)
    yield from _said(problems)
    if not len(problems):
        yield from (("error", doubt) for doubt in doubts(Sample(head, report), workload, _facts()))


def _said(problems: Problems) -> Iterator[Said]:
    for problem in problems:
        at = f"line {problem.line}: " if problem.line else ""
        yield "error", f"{at}{problem.detail.removeprefix(f'{problem.where}: ')}"


@cache
def _facts() -> Facts:
    """Vendors' facts; only samples need them."""
    from compatgate.catalog import load_facts

    return load_facts()
