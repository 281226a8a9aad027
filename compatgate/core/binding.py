"""Say what a judged run was bound to: image, GPU content, suite, GPUs, host and judge."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct

from compatgate.core.performance import sha256
from compatgate.errors import BadInput

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
    """The result of a run in pairs, by its worst metric.

    The worst metric is a regression if there is one, else an open one, else the one that changed
    most for the worse against its tolerance.
    """

    reference: Annotated[str | None, Meta(description="digest of the reference image")] = None
    entry: Annotated[str, Meta(description="entry that the reference image represents")] = ""
    pairs: Annotated[int, Meta(description="number of complete pairs")] = 0
    metrics: Annotated[int, Meta(description="compared metrics")] = 0
    metric: Annotated[str, Meta(description="worst metric, as WORKLOAD.METRIC")] = ""
    outcome: Literal["", "regression", "inconclusive", "improvement", "ok"] = ""
    effect: Annotated[
        float | None,
        Meta(description="relative change of the worst metric, candidate against reference"),
    ] = None
    low: Annotated[
        float | None, Meta(description="interval of the change: lower and upper end")
    ] = None
    high: float | None = None
    confidence: Annotated[float | None, Meta(description="confidence of the interval")] = None
    tolerance: float = 0.0
    judgement: Annotated[
        str, Meta(description="digest of the run's `pairs.judgement` as JSON with sorted keys")
    ] = ""

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
    """The content that a judged run is bound to; unknown values are empty."""

    image: Annotated[str | None, Meta(description="digest of the image under test")] = None
    images: Annotated[
        tuple[str, ...], Meta(description="other digests of the image under test")
    ] = ()
    content: Annotated[str | None, Meta(description="digest of the image's GPU content")] = None
    content_why: Annotated[str, Meta(description="reason why the content is unknown")] = ""
    suite: Annotated[str, Meta(description="digest of the suite's definition")] = ""
    workloads: Annotated[dict[str, str], Meta(description="digest of each workload")] = {}
    arch: Annotated[str, Meta(description="architecture of the GPUs, for example sm_80")] = ""
    gpus: Annotated[tuple[str, ...], Meta(description="UUIDs of the GPUs")] = ()
    mig: Annotated[tuple[str, ...], Meta(description="MIG profiles")] = ()
    host: str = ""
    executor: str = ""
    judge: Annotated[str, Meta(description="version of the judge")] = ""
    assurance: Annotated[
        Literal["", "self-reported", "challenged", "witnessed"],
        Meta(description="weakest assurance of the run's steps on GPUs; empty: unknown"),
    ] = ""
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


def require_definition(suite: str, expected: SuiteDefinition | None, own: SuiteDefinition) -> None:
    """Refuse a copy of a suite that is not as the gate defines it.

    Args:
        expected: the gate's; None: the run was queued before definitions were stored.
    """
    if expected is None or own.digest == expected.digest:
        return
    changed = expected.changed_since(Binding(suite=own.digest, workloads=own.workloads))
    raise BadInput(
        f"the worker's suite {suite} is {own.digest}, the gate's is {expected.digest}: {changed}",
        field="suite",
        value=suite,
        hint="give both the same folders of workloads, and restart the gate",
    )


def define_suite(workloads: Mapping[str, str]) -> SuiteDefinition:
    """Return the definition of a suite."""
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
