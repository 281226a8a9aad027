"""Describe a run, the results of its steps, and what a workload reported, as values."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Protocol

from msgspec import Meta, Struct
from msgspec.structs import replace

from compatgate.core.binding import ASSURANCES, Assurance

Outcome = Literal["passed", "failed", "inconclusive", "error", "timeout", "cancelled"]
State = Literal["queued", "leased", "preparing", "running", "judging"] | Outcome
Purpose = Literal["request", "verification", "import"]
ImportTrust = Literal["reported", "stated"]
"""The source of driver and GPU of an imported result: the tool's report, or its importer."""
ACTIVE = ("leased", "preparing", "running", "judging")
"""States in which a worker has the run."""
ENDED: tuple[Outcome, ...] = ("passed", "failed", "inconclusive", "error", "timeout", "cancelled")


BY_HISTORY = "history"
"""Requested reference of a run that is judged by its baselines, and in pairs where these fail."""


class Against(Struct, frozen=True):
    """The reference of a run's candidate, in pairs."""

    asked: Annotated[
        str, Meta(description="requested reference: auto, history, an entry or an image")
    ]
    image: Annotated[
        str | None,
        Meta(description="reference image; null: none found, and the candidate is judged alone"),
    ]
    entry: Annotated[str | None, Meta(description="entry that the reference image represents")]
    reason: Annotated[
        str, Meta(description="origin of the reference image, or the reason why none was found")
    ]


class Run(Struct, frozen=True):
    """A run's request and state, as the gate's routes describe them."""

    id: str
    suite: str
    state: State
    stack: dict[str, Any]
    target: str | None = None
    pool: str | None = None
    image: str | None = None
    gpu: str | None = None
    driver: str | None = None
    gpus: int = 1
    host: str | None = None
    priority: int = 0
    purpose: Purpose = "request"
    attempts: int = 0
    max_attempts: int = 3
    doing: str = ""
    progress: float | None = None
    reason: str = ""
    asked_by: str = ""
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    against: Against | None = None
    explained: str = ""


class Origin(Struct, frozen=True):
    """Provenance of a step's values, needed where they are used elsewhere."""

    digest: Annotated[
        str, Meta(description="digest of the workload's content at the time of the run")
    ]
    sku: Annotated[str, Meta(description="SKU of the host; cpu for a host without GPUs")]
    executor: str
    development: Annotated[bool, Meta(description="true: the run was outside a container")]


class BlockPosition(Struct, frozen=True):
    """Position of a block, which is one process, among the pairs of a run."""

    arm: Literal["A", "B"]
    pair: int
    session: Annotated[int, Meta(description="number of the attempt")]


class Attribution(Struct, frozen=True):
    """Source of an imported result, which no worker of this gate measured."""

    format: str
    source: Annotated[str, Meta(description="name of the measuring party")]
    tool: str
    file: str
    sha256: Annotated[str, Meta(description="SHA-256 of the report")]
    by: Annotated[str, Meta(description="person or token that imported the report")]
    measured_at: datetime
    imported_at: datetime
    trust: Annotated[
        ImportTrust, Meta(description="source of driver and GPU: the report or the importer")
    ]
    stated: Annotated[
        tuple[str, ...],
        Meta(description="values that the importer stated because the report lacks them"),
    ]


class StepResult(Struct, frozen=True):
    """Result of one workload with one seed.

    Attributes:
        name: name of the step, unique in the run: ``gemm-0``.
        report: `compatgate.canary.run.Report` as plain data; None if nothing was printed.
        health: health of the host around the step, as plain data; None if not observed.
        origin: None in results that were recorded before this field existed.
        block: position of a block of a paired run; None for a step. Its name is the step's, with
            pair and arm.
        imported: source of an imported result; None: a worker measured it.
        attributable: the reference in the same pair decides whose fault it was: a hang, a GPU that
            was not found, a result that is missing, lost output. Without a reference, an earlier
            run decides about a hang, and the host's own probe about a GPU.
    """

    name: str
    workload: str
    seed: int
    outcome: Outcome
    reason: str = ""
    exit_code: int | None = None
    image: str | None = None
    report: dict[str, Any] | None = None
    judgement: dict[str, Any] | None = None
    health: dict[str, Any] | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    origin: Origin | None = None
    block: BlockPosition | None = None
    imported: Attribution | None = None
    attributable: bool = False


class Device(Struct, frozen=True):
    """A GPU as the process saw it."""

    name: str
    uuid: str | None = None
    pci: str | None = None
    memory_bytes: int | None = None
    compute_capability: str | None = None
    mig: str | None = None

    @property
    def full_name(self) -> str:
        """Return its name with the MIG profile."""
        return f"{self.name} MIG {self.mig}" if self.mig else self.name


class Env(Struct, frozen=True):
    """The env line: components loaded in the process, without the driver, and their files."""

    driver: str | None = None
    gpus: tuple[Device, ...] = ()
    versions: dict[str, str] = {}
    paths: dict[str, str] = {}
    other: dict[str, Any] = {}


class Conditions(Struct, frozen=True, omit_defaults=True):
    """Condition of the GPU at each judged value of a metric; [] where it was not known.

    ``settled``: clock and values stood still before the first value; None if nobody waited.
    """

    sm_mhz: tuple[float | None, ...] = ()
    watts: tuple[float | None, ...] = ()
    celsius: tuple[float | None, ...] = ()
    limits: tuple[tuple[str, ...] | None, ...] = ()
    settled: bool | None = None

    def joined(self, later: Conditions | None) -> Conditions:
        """Return the conditions of the values of two lines; they settled if both did."""
        if later is None:
            return self
        both = (self.settled, later.settled)
        return Conditions(
            self.sm_mhz + later.sm_mhz,
            self.watts + later.watts,
            self.celsius + later.celsius,
            self.limits + later.limits,
            False if False in both else self.settled if later.settled is None else later.settled,
        )

    @property
    def words(self) -> str:
        """Return the conditions for people, such as ``SM clock 1410 to 1980 MHz, 61 to 70 C``."""
        parts = []
        for values, what, unit in (
            (self.sm_mhz, "SM clock ", " MHz"),
            (self.watts, "", " W"),
            (self.celsius, "", " C"),
        ):
            if known := [value for value in values if value is not None]:
                least, most = f"{min(known):.0f}", f"{max(known):.0f}"
                parts.append(f"{what}{least if least == most else f'{least} to {most}'}{unit}")
        seen = Counter(limit for limits in self.limits for limit in limits or ())
        parts += [
            f"held by {limit} in {count} of {len(self.limits)} values"
            for limit, count in sorted(seen.items())
        ]
        parts += ["did not settle before the first value"] if self.settled is False else []
        return ", ".join(parts)


class Metric(Struct, frozen=True):
    """Values of a metric in the order measured; a repeated line appends.

    The leading ``warmup`` values are not judged; ``conditions`` of the GPU may not be recorded.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    warmup: tuple[float, ...] = ()
    conditions: Conditions | None = None


class Check(Struct, frozen=True):
    """Result of a check, which is ``skipped`` if it does not apply, for the reason in the message.

    The failure of one of the ``host``'s GPU says nothing about the stack.
    """

    name: str
    ok: bool
    message: str = ""
    skipped: bool = False
    host: bool = False


class Witness(Struct, frozen=True):
    """The worker's own observations of an execution.

    Attributes:
        wall_s: seconds from before the start until after the end, by the worker's clock.
        signed: number of lines that the harness signed.
        proofs: what answered the worker's challenge rightly, ``python`` or a framework.
        interpreter: whose interpreter ran the program.
        seen: what was seen from outside, a phrase for each subject.
        not_witnessed: what could not be seen, with the reason.
        contradictions: what the program reported and the worker saw otherwise.
        other_image: why the program did not run in the image; "" if nothing shows that.
    """

    assurance: Assurance = "self-reported"
    wall_s: float = 0.0
    signed: int = 0
    proofs: tuple[str, ...] = ()
    interpreter: Literal["image", "worker"] = "image"
    seen: dict[str, str] = {}
    not_witnessed: dict[str, str] = {}
    contradictions: tuple[str, ...] = ()
    other_image: str = ""


class Report(Struct, frozen=True):
    """Everything that one execution of a workload printed.

    Attributes:
        problems: lines that broke the protocol, each with its number and the mistake; a report with
            problems is never evidence.
        lines: number of lines read; ``dropped_bytes`` came beyond the output limit.
        own_fault: message of a tool whose own CUDA is too new for the driver; it says nothing about
            the stack under test.
        truncated: output was cut, so data may be missing.
        witness: what the worker saw; None for output that no worker ran.
    """

    env: Env | None = None
    metrics: tuple[Metric, ...] = ()
    checks: tuple[Check, ...] = ()
    progress: float | None = None
    problems: tuple[str, ...] = ()
    lines: int = 0
    dropped_bytes: int = 0
    own_fault: str = ""
    witness: Witness | None = None

    @property
    def truncated(self) -> bool:
        """Return whether data may be missing."""
        return self.dropped_bytes > 0


class OutputReader(Protocol):
    """Reader of one execution's output, one per adapter; ``progress`` is what was printed last."""

    @property
    def progress(self) -> float | None:
        """Return the share of its work that the program printed last."""

    def feed(self, data: bytes) -> None:
        """Read the next piece."""

    def report(self) -> Report:
        """Return the report; called once, at the end."""


def find_weakest(witnesses: Iterable[Witness | None]) -> Witness | None:
    """Return the witness with the least assurance; None if an execution has none."""
    result = list(witnesses)
    known = [witness for witness in result if witness]
    if not known or len(known) < len(result):
        return None
    return min(known, key=lambda witness: ASSURANCES.index(witness.assurance))


def merge_reports(reports: Sequence[Report]) -> Report:
    """Merge executions of the same workload: the last report, with the values of all.

    The weakest witness speaks for all.
    """
    values: dict[str, Metric] = {}
    for report in reports:
        for metric in report.metrics:
            before = values.get(metric.name)
            kept = before.values if before else ()
            warmup = before.warmup if before else ()
            conditions = metric.conditions
            if before and before.conditions:
                conditions = before.conditions.joined(conditions)
            values[metric.name] = Metric(
                metric.name,
                metric.unit,
                kept + metric.values,
                warmup + metric.warmup,
                conditions,
            )
    witness = find_weakest(report.witness for report in reports)
    return replace(reports[-1], metrics=tuple(values.values()), witness=witness)


VERIFICATION_S = 30 * 86400
VERIFICATION_PAUSE_S = 86400
"""Pause after an attempt that showed nothing, for example because the host was away."""
_DUE_SPREAD = 0.2


class EntryVerification(Struct, frozen=True):
    """Latest passed run of a blessed entry, for one suite on one SKU.

    Another was last ``tried`` for, whatever its outcome; one of the same kind may be ``underway``.
    """

    run: str
    entry: str
    suite: str
    sku: str
    finished: int
    tried: int | None = None
    underway: bool = False


def select_due(
    shown: Iterable[EntryVerification], now: int, *, every_s: int = VERIFICATION_S
) -> list[EntryVerification]:
    """Return the verifications to run now, longest waiting first.

    Each is due between 0.8 and 1 times ``every_s`` after its last run. The point depends only on
    entry, suite and SKU, so a matrix that was blessed in one day is not verified in one day, and no
    verification is late.
    """

    def is_due(item: EntryVerification) -> bool:
        if item.underway or (item.tried is not None and now < item.tried + VERIFICATION_PAUSE_S):
            return False
        key = "\0".join((item.entry, item.suite, item.sku)).encode()
        share = int.from_bytes(hashlib.sha256(key).digest()[:4]) / 2**32
        return now >= item.finished + int(every_s * (1 - _DUE_SPREAD * share))

    return sorted(filter(is_due, shown), key=lambda item: (item.finished, item.run))
