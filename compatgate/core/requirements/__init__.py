"""Check NVIDIA's ``NVIDIA_REQUIRE_*`` language, in the two dialects that NVIDIA ships.

An image states what it needs of a host in environment variables such as
``NVIDIA_REQUIRE_CUDA=cuda>=12.4 brand=tesla,driver>=470,driver<471``. Spaces separate
alternatives, commas join conditions. The C library (libnvidia-container,
``nvidia-container-cli``) and the Go toolkit (nvidia-container-toolkit) read the same text
differently; the modules `c` and `go` say how. `check` answers whether a host meets an image's
requirements, with the reason: the clause that holds, or the closest ones, and the host's values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

from compatgate.core.performance import MIB, BoundedCache
from compatgate.core.requirements import c, go
from compatgate.core.requirements.model import (
    PROPERTIES,
    Clause,
    Dialect,
    Factor,
    Host,
    Impl,
    MalformedRequirement,
    Properties,
    Requirement,
    RequirementAnswer,
    quote_text,
)
from compatgate.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Impl", "MalformedRequirement", "Properties", "Question", "RequirementAnswer", "check"]

_DIALECTS: Mapping[str, Dialect] = {"go": go.DIALECT, "c": c.DIALECT}
_MAX_CACHED_LENGTH = 8192
"""Characters of the longest requirement that is cached, so that no caller can fill the memory; the
longest that NVIDIA has published has 2596."""


def check(requirements: Sequence[str], host: Properties, impl: Impl = "go") -> RequirementAnswer:
    """Return whether NVIDIA's container runtime would start an image on a host.

    All of ``requirements``, the values of ``NVIDIA_REQUIRE_*``, must hold; ``impl`` is the Go
    toolkit or the C library.
    """
    dialect = _DIALECTS.get(impl)
    if dialect is None:
        raise BadInput(
            f"'{quote_text(impl)}' is not a dialect", field="impl", value=impl, hint="go or c"
        )
    seen = dialect.host(host)
    if dialect.most is not None and len(requirements) > dialect.most:
        last = requirements[dialect.most]
        why = f"is one requirement too many: {dialect.name} takes {dialect.most}"
        raise MalformedRequirement(last, last, why, "fewer NVIDIA_REQUIRE_* variables")
    compiled = [_get_compiled(impl, text) for text in requirements]
    reasons = []
    for requirement in compiled:
        answer = _evaluate(requirement, seen)
        if not answer.satisfied:
            return answer
        reasons.append(answer.reason)
    return RequirementAnswer(True, "; ".join(dict.fromkeys(reasons)) or "nothing is required")


def _get_compiled(impl: Impl, text: str) -> Requirement:
    if len(text) > _MAX_CACHED_LENGTH:
        return _compile(impl, text)
    found = _compiled.get((impl, text))
    if found is None:
        found = _compile(impl, text)
        _compiled.put((impl, text), found, _BYTES_OF_CHARACTER * len(text))
    return found


def _compile(impl: Impl, text: str) -> Requirement:
    if "\0" in text:
        why = "has a NUL character, which no environment variable can hold"
        raise MalformedRequirement(text, text, why, "printable characters")
    return _DIALECTS[impl].compile(text)


_compiled: BoundedCache[tuple[Impl, str], Requirement] = BoundedCache(16 * MIB)
_BYTES_OF_CHARACTER = 120  # bytes of a compiled requirement for each of its characters, as measured


def _evaluate(requirement: Requirement, host: Host) -> RequirementAnswer:
    if not requirement.clauses:
        return RequirementAnswer(True, explain_no_requirement(requirement))
    misses: list[FailedClause] = []
    for clause in requirement.clauses:
        for position, factor in enumerate(clause.factors):
            if not factor.holds(host):
                left = len(clause.factors) - position
                misses.append(FailedClause(clause, factor, left))
                break
        else:
            return RequirementAnswer(True, explain_match(clause, host))
    return RequirementAnswer(False, explain_mismatch(misses, host))


class Question(Struct, frozen=True, forbid_unknown_fields=True):
    """Requirements, and the host to check them on; an absent property is not known."""

    require: list[str]
    impl: Impl | UnsetType = UNSET
    cuda: str | None = None
    driver: str | None = None
    arch: str | None = None
    brand: str | None = None

    def answer(self, impl: Impl = "go") -> RequirementAnswer:
        """Return the answer of `check`; `impl` applies where the question names none."""
        host = Properties(self.cuda, self.driver, self.arch, self.brand)
        return check(self.require, host, impl if self.impl is UNSET else self.impl)


_MAX_NAMED = 3  # clauses that a reason names; a published requirement has up to 73


class FailedClause(Struct, frozen=True):
    """A clause that does not hold, and its first factor that does not hold."""

    clause: Clause
    factor: Factor
    left: int  # number of factors from this one to the end of the clause


def explain_match(clause: Clause, host: Host) -> str:
    """Explain which clause meets a requirement."""
    names = dict.fromkeys(factor.property for factor in clause.factors)
    known = [_host_value(name, host) for name in names if _stated_value(name, host) is not None]
    unknown = [name for name in names if _stated_value(name, host) is None]
    facts = [f"the host has {', '.join(known)}"] if known else []
    if unknown:
        verb = "is" if len(unknown) == 1 else "are"
        facts.append(f"{' and '.join(unknown)} {verb} not known, which {host.unknown}")
    return f"{quote_text(clause.text)} holds: {', and '.join(facts)}"


def explain_no_requirement(requirement: Requirement) -> str:
    """Explain why a requirement without clauses is met."""
    if not requirement.ignored:
        return "nothing is required"
    ignored = ", ".join(quote_text(factor) for factor in requirement.ignored[:_MAX_NAMED])
    known = f"it knows {', '.join(PROPERTIES)}, in lower case"
    return f"nothing is required: the Go toolkit ignores {ignored} ({known})"


def explain_mismatch(misses: Sequence[FailedClause], host: Host) -> str:
    """Explain why a requirement is not met, by the closest clauses, in the order written.

    The closest clause failed nearest to its end; next comes the version nearest to the host's.
    """
    if len(misses) == 1:
        why = _explain_factor(misses[0], host)
        return f"{quote_text(misses[0].clause.text)} does not hold: {why}"
    ranked = []
    for at, miss in enumerate(misses):
        # The last factor bounds the driver branch of a published clause from above.
        last = miss.clause.factors[-1]
        ranked.append((miss.left, abs(last.major - host.majors.get(last.property, 0)), at))
    closest = [misses[at] for at in sorted(at for _, _, at in sorted(ranked)[:_MAX_NAMED])]
    named = ", ".join(
        f"{quote_text(miss.clause.text)} ({_explain_factor(miss, host)})" for miss in closest
    )
    among = ":" if len(closest) == len(misses) else "; closest are"
    return f"none of {len(misses)} alternatives holds{among} {named}"


def _explain_factor(miss: FailedClause, host: Host) -> str:
    """Explain which factor of a clause failed on the host."""
    factor = miss.factor
    if factor.note:
        return factor.note
    which = f"{quote_text(factor.text)} fails, " if len(miss.clause.factors) > 1 else ""
    if _stated_value(factor.property, host) is None:
        return f"{which}the host's {factor.property} is not known, which {host.unknown}"
    return f"{which}the host has {_host_value(factor.property, host)}"


def _host_value(name: str, host: Host) -> str:
    return f"{name} {quote_text(_stated_value(name, host) or '')}"


def _stated_value(name: str, host: Host) -> str | None:
    value: str | None = getattr(host.stated, name)
    return value
