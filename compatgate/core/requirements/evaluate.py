"""The one question: does a host meet an image's requirements?"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from compatgate.core.requirements import c, explain, go
from compatgate.core.requirements.model import (
    Answer,
    Dialect,
    Host,
    Impl,
    MalformedRequirement,
    Properties,
    Requirement,
    shown,
)
from compatgate.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DIALECTS: Mapping[str, Dialect] = {"go": go.DIALECT, "c": c.DIALECT}
_KEPT_LENGTH = 8192
"""Requirements longer than this are compiled anew each time, so that no caller can fill the
memory with them; the longest that NVIDIA has published has 2596 characters."""


def check(requirements: Sequence[str], host: Properties, impl: Impl = "go") -> Answer:
    """Whether NVIDIA's container runtime would start such an image on such a host.

    Args:
        requirements: the values of the image's ``NVIDIA_REQUIRE_*`` variables; all must hold.
        host: what is known of the host. With several visible GPUs the C library asks for each
            of them, the Go toolkit for the first.
        impl: whose reading: the Go toolkit's (`go`) or the C library's (`c`).

    Raises:
        MalformedRequirement: the implementation would reject a requirement. The C library
            notices only what it reaches: nothing after the first requirement that is not met.
        BadInput: a property of the host is not of its form.
    """
    dialect = _DIALECTS.get(impl)
    if dialect is None:
        raise BadInput(f"'{shown(impl)}' is no dialect", field="impl", value=impl, hint="go or c")
    seen = dialect.host(host)
    if dialect.most is not None and len(requirements) > dialect.most:
        last = requirements[dialect.most]
        why = f"is one requirement too many: {dialect.name} takes {dialect.most}"
        raise MalformedRequirement(last, last, why, "fewer NVIDIA_REQUIRE_* variables")
    compiled = [_compiled(impl, text) for text in requirements]
    reasons = []
    for requirement in compiled:
        answer = _evaluate(requirement, seen)
        if not answer.satisfied:
            return answer
        reasons.append(answer.reason)
    return Answer(True, "; ".join(dict.fromkeys(reasons)) or "nothing is required")


def _compiled(impl: Impl, text: str) -> Requirement:
    return _compile(impl, text) if len(text) > _KEPT_LENGTH else _kept(impl, text)


def _compile(impl: Impl, text: str) -> Requirement:
    if "\0" in text:
        why = "has a NUL character, which no environment variable can hold"
        raise MalformedRequirement(text, text, why, "printable characters")
    return _DIALECTS[impl].compile(text)


_kept = lru_cache(maxsize=512)(_compile)


def _evaluate(requirement: Requirement, host: Host) -> Answer:
    if not requirement.clauses:
        return Answer(True, explain.nothing_asked(requirement))
    misses: list[explain.Miss] = []
    for clause in requirement.clauses:
        for position, factor in enumerate(clause.factors):
            if not factor.holds(host):
                left = len(clause.factors) - position
                misses.append(explain.Miss(clause, factor, left))
                break
        else:
            return Answer(True, explain.held(clause, host))
    return Answer(False, explain.missed(misses, host))
