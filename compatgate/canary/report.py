"""What a workload reported: its JSON lines, as values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace


class Device(Struct, frozen=True):
    """A GPU as the process saw it."""

    name: str
    uuid: str | None = None
    pci: str | None = None
    memory_bytes: int | None = None
    compute_capability: str | None = None
    mig: str | None = None


class Env(Struct, frozen=True):
    """The first line: what is really loaded.

    Attributes:
        versions: canonical component to version as the process reported it, the driver apart.
        paths: component to the file it was loaded from.
        other: the line's further members, kept as they came.
    """

    driver: str | None = None
    gpus: tuple[Device, ...] = ()
    versions: dict[str, str] = {}
    paths: dict[str, str] = {}
    other: dict[str, Any] = {}


class Metric(Struct, frozen=True):
    """Values of a metric in the order measured; a repeated line appends.

    Attributes:
        warmup: leading values that the program marked as warm-up; not judged.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    warmup: tuple[float, ...] = ()


class Check(Struct, frozen=True):
    """Something that holds or does not.

    Attributes:
        ok: it does not fail.
        skipped: it does not apply here, so that it neither passes nor fails; the message says why.
    """

    name: str
    ok: bool
    message: str = ""
    skipped: bool = False


class Report(Struct, frozen=True):
    """Everything that one execution of a workload printed.

    Attributes:
        problems: lines that broke the protocol, each with its number and what was wrong; a report
            with problems is never evidence.
        lines: how many were read; ``dropped_bytes`` came beyond the limit of output.
        own_fault: how an existing tool says that its own CUDA is too new for the driver; that is
            neither for nor against the stack under test.
        truncated: output was cut, so that something may be missing.
    """

    env: Env | None = None
    metrics: tuple[Metric, ...] = ()
    checks: tuple[Check, ...] = ()
    progress: float | None = None
    problems: tuple[str, ...] = ()
    lines: int = 0
    dropped_bytes: int = 0
    own_fault: str = ""

    @property
    def truncated(self) -> bool:
        """Whether something may be missing."""
        return self.dropped_bytes > 0


def together(reports: Sequence[Report]) -> Report:
    """Executions of the same workload as one report: the last one, with the values of all."""
    values: dict[str, Metric] = {}
    for report in reports:
        for metric in report.metrics:
            before = values.get(metric.name)
            kept = before.values if before else ()
            warmup = before.warmup if before else ()
            values[metric.name] = replace(
                metric, values=kept + metric.values, warmup=warmup + metric.warmup
            )
    return replace(reports[-1], metrics=tuple(values.values()))
