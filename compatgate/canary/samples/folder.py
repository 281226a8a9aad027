"""The samples that lie beside a workload, and those that a path means."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from compatgate.canary.samples.lines import read_head, read_report
from compatgate.canary.samples.model import SUFFIX, Sample
from compatgate.canary.workload import Workload
from compatgate.canary.workloads.pack import SAMPLES
from compatgate.documents.problems import Problems
from compatgate.documents.sources import Source, read_paths
from compatgate.errors import BadInput

PAGE = "README.md"


class Kept(Struct, frozen=True):
    """A sample of a workload, as lists show it.

    Attributes:
        current: it is of the workload as it is now.
    """

    file: str
    sku: str
    family: str
    driver: str | None
    versions: dict[str, str]
    measured_at: str
    seed: int
    development: bool
    current: bool
    note: str = ""


def files(folder: Path) -> list[Path]:
    """The samples of a workload's folder, by name."""
    return sorted(p for p in (folder / SAMPLES).glob(f"*{SUFFIX}") if p.is_file())


def below(paths: list[str]) -> list[Source]:
    """What some paths hold: a file is itself, a folder its own ``.jsonl`` and every sample below.

    Raises:
        BadInput: a path that is not there or cannot be read; a folder with nothing of this.
    """
    return read_paths([found for path in paths for found in _below(Path(path))])


def kept(workload: Workload) -> list[Kept]:
    """The samples of a workload that can be read, newest first; lint says more of the others."""
    if workload.folder is None:
        return []
    found = [_kept(source, workload) for source in _sources(workload.folder)]
    return sorted(filter(None, found), key=lambda one: (one.measured_at, one.file), reverse=True)


def read_sample(source: Source, workload: Workload, problems: Problems) -> Sample | None:
    """A sample of a workload; None where there are problems."""
    before = len(problems)
    head = read_head(source, problems)
    if head is None:
        return None
    report = read_report(source, workload, problems)
    return None if len(problems) > before else Sample(head, report)


def _sources(folder: Path) -> Iterator[Source]:
    for path in files(folder):
        try:
            yield from read_paths([path])
        except BadInput:
            continue


def _below(path: Path) -> list[str | Path]:
    if str(path) == "-" or not path.is_dir():
        return [path]
    nested = path.glob(f"**/{SAMPLES}/*{SUFFIX}")
    found = sorted({p for p in (*path.glob(f"*{SUFFIX}"), *nested) if p.is_file()})
    if not found:
        hint = f"files *{SUFFIX}, or folders {SAMPLES}/ with them"
        raise BadInput(f"no samples below {path}", field="FILE", value=str(path), hint=hint)
    return list(found)


def _kept(source: Source, workload: Workload) -> Kept | None:
    problems = Problems()
    head = read_head(source, problems)
    if head is None:
        return None
    env = read_report(source, workload, problems).env
    return Kept(
        file=Path(source.file).name,
        sku=head.sku,
        family=head.family,
        driver=env.driver if env else None,
        versions=dict(env.versions) if env else {},
        measured_at=head.measured_at,
        seed=head.seed,
        development=head.development,
        current=head.digest == workload.digest,
        note=head.note,
    )
