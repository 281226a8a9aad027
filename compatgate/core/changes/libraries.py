"""Changes of cuDNN and NCCL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from compatgate.core.rules.base import Candidate
from compatgate.core.versions import Version

if TYPE_CHECKING:
    from compatgate.core.case import Case


def other_cudnn(case: Case) -> Iterator[Candidate]:
    """The nearest cuDNN releases, same major first."""
    yield from _other_release(case, "cudnn", (r.version for r in case.facts.cudnn.releases))


def other_nccl(case: Case) -> Iterator[Candidate]:
    """The nearest NCCL releases, newer ones first."""
    yield from _other_release(case, "nccl", (r.version for r in case.facts.nccl.releases))


def _other_release(case: Case, name: str, known: Iterable[Version]) -> Iterator[Candidate]:
    have = case.stack.components[name]
    if have.cuda and case.cuda and have.cuda[0] != case.cuda.major:
        yield Candidate(
            {name: f"{have.public}+cu{case.cuda.major}"},
            f"use the build of {name} {have.public} for CUDA {case.cuda.major}",
        )
    suffix = f"+cu{case.cuda.major}" if have.cuda and case.cuda else ""
    versions = list(known)
    newer = [v for v in versions if v > have and v.at(3) != have.at(3)]
    older = [v for v in reversed(versions) if v < have]
    near = [
        *(v for pair in zip(newer, older, strict=False) for v in pair),
        *newer[len(older) :],
        *older[len(newer) :],
    ]
    for version in sorted(near, key=lambda v: v.major != have.major):
        yield Candidate({name: version.text + suffix}, f"use {name} {version}")
