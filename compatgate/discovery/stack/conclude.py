"""From findings to one stack, and everything that is to be said of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from compatgate.core.facts import CudaArch
from compatgate.core.facts.records import Record
from compatgate.discovery.observed import Conflict, Observation
from compatgate.discovery.stack.code import common_code, is_of_others, made_by
from compatgate.discovery.stack.findings import Findings
from compatgate.discovery.stack.settle import settle


class Inspection(Struct, frozen=True):
    """A stack, where each part of it was seen, and what is doubtful about it.

    Attributes:
        stack: in the form of requests.
        observations: every one of them.
        conflicts: where witnesses disagree, and which decides.
        open: what could not be read or is not decided, in sentences.
    """

    stack: dict[str, Any]
    observations: tuple[Observation, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    open: tuple[str, ...] = ()

    @property
    def doubts(self) -> tuple[Conflict, ...]:
        """Conflicts, and what is open as a conflict that nothing decides."""
        return (*self.conflicts, *(Conflict("open", sentence) for sentence in self.open))

    def to_json(self) -> dict[str, Any]:
        """``{"stack": {...}, "observations": [...], "conflicts": [...]}``."""
        return {
            "stack": self.stack,
            "observations": [observation.to_json() for observation in self.observations],
            "conflicts": [conflict.to_json() for conflict in self.doubts],
        }


def conclude(found: Findings, facts: CudaArch | None = None) -> Inspection:
    """The stack that the findings amount to.

    Files that stand in a package's record speak for that package alone; ``arch`` is the code of the
    others.

    Args:
        found: all of them.
        facts: where code runs; without them the code of several distributions is not compared.
    """
    observations = list(found.observations)
    compiled = made_by(found.files, facts)
    if compiled and not any(o.component == "cuda" for o in observations):
        observations.append(max(compiled, key=lambda o: _numbers(o.version)))
    measured = measured_of(settle(observations)[0], found.measured)
    loose = [file for file in found.files if found.owned.get(file.origin) not in measured]
    if measured:  # what supports a package's code does not vote alone
        loose = [file for file in loose if not is_of_others(file)]
    arch, disagreements = common_code(loose, facts)
    stack, conflicts = settle(observations, [code.name for code in arch])
    if measured:
        stack["measured"] = {name: record.to_stack() for name, record in measured.items()}
    if any(file.arch for file in loose):
        stack.setdefault("arch", [])  # code there is, but none that all of it can run with
    with_ptx = [file for file in found.files if file.ptx_isa]
    return Inspection(
        stack,
        tuple(dict.fromkeys([*observations, *found.majors, *(f.seen() for f in found.files)])),
        (
            *conflicts,
            *_other_majors(stack, found.majors),
            *_newer_ptx(stack, made_by(with_ptx, facts)),
            *disagreements,
        ),
        tuple(found.open),
    )


def measured_of(stack: dict[str, Any], measured: Mapping[str, Record]) -> dict[str, Record]:
    """Return the records of the releases that the stack has: another witness may have decided."""
    return {
        name: record
        for name, record in measured.items()
        if name in stack and _public(stack[name]) == _public(record.version)
    }


def _public(version: str) -> str:
    return version.partition("+")[0].partition(".post")[0]


def _other_majors(stack: dict[str, Any], majors: Iterable[Observation]) -> list[Conflict]:
    """Libraries whose major version is not the stack's."""
    return [
        Conflict(
            seen.component,
            f"the stack has {seen.component} {stack[seen.component]}, {seen.origin} says "
            f"{seen.version}",
            stack[seen.component],
        )
        for seen in dict.fromkeys(majors)
        if seen.component in stack and stack[seen.component].partition(".")[0] != seen.version
    ]


def _newer_ptx(stack: dict[str, Any], compiled: Iterable[Observation]) -> list[Conflict]:
    """PTX of a newer toolkit than the stack's, which an older driver cannot compile."""
    cuda = stack.get("cuda")
    return [
        Conflict("cuda", f"the stack has CUDA {cuda}, {o.origin}, of CUDA {o.version}", cuda)
        for o in dict.fromkeys(compiled)
        if cuda and _numbers(o.version)[:2] > _numbers(cuda)[:2]
    ]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))
