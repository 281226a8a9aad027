"""Say what a judged run was bound to: image, GPU content, suite, GPUs, host and judge."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from compatgate.core.performance import sha256

_encode = msgspec.json.Encoder(order="sorted").encode
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

Assurance = Literal["self-reported", "challenged", "witnessed"]
"""The assurance of a report, weakest first.

``self-reported``: the program's word. ``challenged``: the harness signed the lines and answered the
worker's challenge. ``witnessed``: the worker also saw the program's processes, and what they did.
"""
ASSURANCES: tuple[Assurance, ...] = get_args(Assurance)


Bind = Literal["versions", "content", "image"]
"""The part that evidence shares with a question: versions, GPU content, or the image itself."""


class Comparison(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a run in pairs found, by its worst metric.

    Attributes:
        reference: digest of the image that the candidate was compared with; None: unknown.
        entry: that the reference stands for; empty: somebody named the image.
        pairs: complete pairs.
        metrics: number of metrics that were compared.
        metric: the worst, as ``WORKLOAD.METRIC``: a regression if there is one, then an open one,
            then the one that changed most for the worse against its tolerance.
        outcome: of that metric.
        effect: its relative change, candidate over reference; None: it has no ratio.
        low, high: the interval of the change; None: open.
        confidence: of the interval; None: no interval.
        tolerance: of the metric.
        judgement: digest of the whole judgement, as stored with the run.
    """

    reference: str | None = None
    entry: str = ""
    pairs: int = 0
    metrics: int = 0
    metric: str = ""
    outcome: str = ""
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    tolerance: float = 0.0
    judgement: str = ""

    @property
    def words(self) -> str:
        """Return the worst metric in one line, such as ``gemm.time +1.2 %``, for people."""
        of = f"worst of {self.metrics} metrics" if self.metrics > 1 else "the only metric"
        ends = f"{of}, {self.pairs} {'pair' if self.pairs == 1 else 'pairs'}"
        if self.effect is None:
            return f"{self.metric} {self.outcome} ({ends})"
        sides = " to ".join(
            "open" if side is None else f"{100 * side:+.1f} %" for side in (self.low, self.high)
        )
        return f"{self.metric} {100 * self.effect:+.1f} %, interval {sides} ({ends})"


class Binding(Struct, frozen=True, gc=False, omit_defaults=True):
    """The content that a run is bound to, in addition to suite, SKU, driver and measured versions.

    Attributes:
        image: digest of the image under test as it ran; None: no image, or no digest was known.
        images: other digests of that image: of its index, or of the manifest in it.
        content: digest of its GPU content (`compatgate.discovery.image.content`); None: unknown.
        content_why: why the content is unknown; empty where it is known or there was no image.
        suite: digest of the suite's definition when the run began.
        workloads: workload to the digest of its manifest and files, in the suite's order.
        arch: machine code of the GPUs as ``sm_80``; empty: no program reported it.
        gpus: UUIDs of the GPUs that the programs saw, sorted.
        mig: MIG profiles that the programs saw, sorted.
        host: staging host.
        executor: kind of the executor.
        judge: version of the judge.
        assurance: weakest of its steps on GPUs; empty: nothing is known, as of an imported result.
        compared: what its pairs found; None: it was judged alone.
    """

    image: str | None = None
    images: tuple[str, ...] = ()
    content: str | None = None
    content_why: str = ""
    suite: str = ""
    workloads: dict[str, str] = {}
    arch: str = ""
    gpus: tuple[str, ...] = ()
    mig: tuple[str, ...] = ()
    host: str = ""
    executor: str = ""
    judge: str = ""
    assurance: Assurance | Literal[""] = ""
    compared: Comparison | None = None

    def is_of_image(self, digest: str) -> bool:
        """Return whether a digest names the image that ran."""
        return digest == self.image or digest in self.images

    def to_json(self) -> dict[str, Any]:
        """Return plain data without empty members."""
        body: dict[str, Any] = msgspec.to_builtins(self)
        return body


class SuiteDefinition(Struct, frozen=True):
    """The content of a suite: a digest, and the digest of each of its workloads, in order."""

    digest: str
    workloads: dict[str, str]

    def changed_since(self, bound: Binding) -> str:
        """Return what changed in the suite since a run, in words; empty: nothing."""
        if not bound.suite or bound.suite == self.digest:
            return ""
        before, now = bound.workloads, self.workloads
        parts = [
            f"workload {name} {'changed' if name in before else 'is new'}"
            for name in now
            if before.get(name) != now[name]
        ]
        parts += [f"workload {name} is gone" for name in before if name not in now]
        return "; ".join(parts[:_MAX_NAMED]) or "the order of its workloads changed"


_MAX_NAMED = 3


def define_suite(workloads: Mapping[str, str]) -> SuiteDefinition:
    """Return the definition of a suite.

    Args:
        workloads: to the digest of their manifest and files, in the suite's order.
    """
    return SuiteDefinition(
        digest_json([[name, workloads[name]] for name in workloads]), {**workloads}
    )


def digest_json(value: Any) -> str:
    """Return ``sha256:...`` of a value's JSON with sorted keys."""
    return f"sha256:{sha256(_encode(value))}"


def is_digest(text: str) -> bool:
    """Return whether a text is ``sha256:`` and 64 hexadecimal digits."""
    return _DIGEST.fullmatch(text) is not None


def find_digest(reference: str | None) -> str | None:
    """Return the digest that a reference ends with (``app@sha256:...``), or is; else None."""
    digest = (reference or "").rpartition("@")[2]
    return digest if is_digest(digest) else None
