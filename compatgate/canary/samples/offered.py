"""What files offer to judge by: samples and baselines of the workloads that are here. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from compatgate.canary.engine.judging import NO_GPU_SKU
from compatgate.canary.queue import Ground
from compatgate.canary.samples import exchange
from compatgate.canary.samples.exchange import ExportedBaseline, ExportHead
from compatgate.canary.samples.folder import read_sample
from compatgate.canary.samples.lines import read_head
from compatgate.canary.samples.model import Sample
from compatgate.canary.samples.records import Record, read_records
from compatgate.canary.samples.sound import doubts, stale
from compatgate.canary.workload import Workload
from compatgate.core.facts import Facts
from compatgate.core.gpus import resolve_gpu
from compatgate.documents.names import did_you_mean
from compatgate.documents.problems import Problems
from compatgate.documents.sources import Source
from compatgate.errors import BadInput

_DEVELOPMENT = "was measured outside a container, which starts no baseline"


class LeftOut(Struct, frozen=True):
    """What was not taken, and why."""

    what: str
    reason: str


class Offered(Struct, frozen=True):
    """What may be proposed.

    Attributes:
        samples: each with its workload.
        baselines: each with its workload.
        refused: what is well formed and cannot be judged by here.
    """

    samples: list[tuple[Sample, Workload]]
    baselines: list[tuple[ExportedBaseline, Workload]]
    refused: list[LeftOut]


def read_offered(
    sources: Iterable[Source], workloads: Mapping[str, Workload], facts: Facts
) -> Offered:
    """Read files of samples and of baselines.

    Args:
        sources: the files; each says in its first line which it is.
        workloads: by name, as they are now.
        facts: to read GPUs by.

    Raises:
        ManyProblems: whatever is malformed, each with file, line and field; nothing is offered.
    """
    reader = _Reader(workloads, facts)
    for source in sources:
        reader.read(source)
    reader.problems.raise_if_any()
    return reader.found


class _Reader:
    def __init__(self, workloads: Mapping[str, Workload], facts: Facts) -> None:
        self.problems = Problems()
        self.found = Offered([], [], [])
        self._workloads = workloads
        self._facts = facts
        self._seen: dict[object, str] = {}

    def read(self, source: Source) -> None:
        """A file, by what its first line says."""
        own = Problems()
        records = read_records(source, own)
        if not records or records[0].says == "sample":
            self._sample(source)
        elif records[0].says == "baselines":
            for problem in own:
                self.problems.add(problem)
            self._baselines(records)
        else:
            what = f"the first line is {records[0].says!r}"
            hint = "'sample' or 'baselines', see docs/canaries.md"
            self.problems.add(records[0].problem("type", what=what, hint=hint))

    def _sample(self, source: Source) -> None:
        head = read_head(source, self.problems)
        if head is None:
            return
        workload = self._workloads.get(head.workload)
        why = self._absent(head.workload) if workload is None else stale(head, workload)
        if workload is None or why:
            self._refuse(source.file, why)
        elif head.development:
            self._refuse(source.file, _DEVELOPMENT)
        elif sample := read_sample(source, workload, self.problems):
            if found := doubts(sample, workload, self._facts):
                self._refuse(source.file, "; ".join(found))
            else:
                self.found.samples.append((sample, workload))

    def _baselines(self, records: list[Record]) -> None:
        records[0].read(ExportHead, exchange.KIND, self.problems)
        for record in records[1:]:
            line = record.read(ExportedBaseline, exchange.KIND, self.problems)
            if line is not None and self._once(record, line):
                self._baseline(f"{record.file}:{record.line}", line)

    def _once(self, record: Record, line: ExportedBaseline) -> bool:
        key = (line.workload, line.sku, line.family, line.metric)
        here = f"{record.file}:{record.line}"
        first = self._seen.setdefault(key, here)
        if first != here:
            what = f"{line.metric} on {line.sku}, {line.family} is stated twice; first at {first}"
            self.problems.add(record.problem("metric", what=what, hint="keep one of them"))
        return first == here

    def _baseline(self, where: str, line: ExportedBaseline) -> None:
        name, _, content = line.workload.partition("@")
        workload = self._workloads.get(name)
        if workload is None:
            self._refuse(where, self._absent(name))
        elif why := self._unfit(line, workload, content):
            self._refuse(where, why)
        else:
            self.found.baselines.append((line, workload))

    def _unfit(self, line: ExportedBaseline, workload: Workload, content: str) -> str:
        """Why a baseline is not one of a workload that is here."""
        now = workload.digest.removeprefix("sha256:")[:12]
        if content != now:
            return f"{workload.name} is another one here: measured was @{content}, it is @{now}"
        spec = workload.metrics.get(line.metric)
        if spec is None:
            return f"{workload.name} declares no metric {line.metric}"
        if line.unit != spec.unit:
            return f"{line.metric} is in {line.unit}, declared is {spec.unit}"
        try:
            if line.sku != NO_GPU_SKU and resolve_gpu(line.sku, self._facts.gpus).sku != line.sku:
                return f"the facts spell {line.sku} otherwise"
        except BadInput as error:
            return error.detail
        return ""

    def _absent(self, name: str) -> str:
        return f"there is no workload {name} ({did_you_mean(name, self._workloads)})"

    def _refuse(self, what: str, reason: str) -> None:
        self.found.refused.append(LeftOut(what, reason))


def ground_of_sample(sample: Sample) -> Ground:
    """What a sample's values are compared with."""
    head = sample.head
    content = head.digest.removeprefix("sha256:")[:12]
    return Ground(f"{head.workload}@{content}", head.sku, head.family)
