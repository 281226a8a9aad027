"""Read and compare version constraints (``>=535.104.05,<536``, ``12.4.*``), and word their ends."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from compatgate.core.components import resolve_component
from compatgate.core.versions import Version, format_parts, make_version, parse_version
from compatgate.errors import BadInput

Operator = Literal["==", "!=", ">=", "<=", ">", "<", "~=", "==*", "!=*"]
_CLAUSE = re.compile(r"(==|!=|>=|<=|~=|>|<|=)?\s*((?:\d+!)?[^\s=<>!~,]+)")


class Clause(Struct, frozen=True, gc=False):
    """One comparison; ``==*`` and ``!=*`` compare a prefix."""

    operator: Operator
    version: Version

    def allows(self, have: Version) -> bool:
        """Return whether a version satisfies this clause, as PEP 440 compares whole versions.

        Pre-releases compare like any other.
        """
        want = self.version
        if have.whole or want.whole:
            return _compare_whole(self.operator, _spell(want), _spell(have))
        match self.operator:
            case "==":
                return self._is(have)
            case "!=":
                return not self._is(have)
            case ">=":
                return have.key >= want.key
            case "<=":
                return have.key <= want.key
            case ">":
                return have.key > want.key
            case "<":
                return have.key < want.key
            case "~=":
                places = max(len(want.parts) - 1, 1)
                return have.key >= want.key and have.at(places) == want.at(places)
            case "==*":
                return have.at(len(want.parts)) == want.parts
            case "!=*":
                return have.at(len(want.parts)) != want.parts

    def _is(self, have: Version) -> bool:
        """Compare the release, and the label where the clause names one (``2.4.1+cu121``)."""
        want = self.version
        return have.key == want.key and (not want.local or have.local == want.local)


def _spell(version: Version) -> str:
    label = f"+{version.local}" if version.local else ""
    return version.whole or format_parts(version.parts) + label


@lru_cache(maxsize=4096)
def _compare_whole(operator: Operator, want: str, have: str) -> bool:
    """Compare versions of which numbers and label do not say all, like ``2.4.1.post1``."""
    from packaging.specifiers import Specifier

    bound = f"{operator[:2]}{want}.*" if operator.endswith("*") else f"{operator}{want}"
    return Specifier(bound).contains(have, prereleases=True)


class Constraint(Struct, frozen=True, gc=False):
    """A constraint on a version: all clauses must hold."""

    text: str
    clauses: tuple[Clause, ...]

    def allows(self, have: Version) -> bool:
        """Return whether a version satisfies every clause."""
        for clause in self.clauses:  # noqa: SIM110 - asked for every entry and issue
            if not clause.allows(have):
                return False
        return True

    @property
    def series(self) -> tuple[int, int] | None:
        """Return the only ``major.minor`` that can satisfy this constraint; None for several."""
        for clause in self.clauses:
            if clause.operator in ("==", "==*") and len(clause.version.parts) >= 2:
                return clause.version.major_minor
            if clause.operator == "~=" and len(clause.version.parts) >= 3:
                return clause.version.major_minor
        return None

    @property
    def is_empty(self) -> bool:
        """Return whether two bounds leave nothing between them (``>=536,<535``)."""
        least = [c for c in self.clauses if c.operator in (">=", ">", "==", "~=", "==*")]
        most = [c for c in self.clauses if c.operator in ("<=", "<")]
        return any(
            low.version.key > high.version.key
            or (low.version.key == high.version.key and "=" not in high.operator)
            for low in least
            for high in most
        )

    @property
    def exactness(self) -> int:
        """Rank how narrow it is: 3 one version, 2 one series, 1 a range, 0 open."""
        operators = {clause.operator for clause in self.clauses}
        if "==" in operators:
            return 3
        if operators & {"==*", "~="}:
            return 2
        return 1 if len(self.clauses) > 1 else 0

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=16384)
def parse_constraint(component: str, text: str) -> Constraint:
    """Read a constraint on a component's version.

    Clauses are separated by commas; a bare version means ``==``, ``.*`` any tail.
    """
    scheme = resolve_component(component).component.scheme
    if not text.isascii():
        raise _constraint_error(component, text)
    clauses = []
    for part in text.split(","):
        match = _CLAUSE.fullmatch(part.strip())
        if not match:
            raise _constraint_error(component, text)
        operator, literal = match[1] or "==", match[2]
        version = _read_bound(component, scheme, literal, text)
        wildcard = literal.endswith((".*", ".x"))
        if wildcard and operator not in ("==", "=", "!="):
            raise _constraint_error(component, text)
        if version.local and (wildcard or operator not in ("==", "=", "!=")):
            hint = f"a build label goes with == or !=: =={literal}"
            raise _constraint_error(component, text, hint)
        if version.is_major and not wildcard and operator in ("==", "=", "!=", "~="):
            hint = f"{literal} alone would mean {literal}.0; write {literal}.*"
            raise _constraint_error(component, text, hint)
        if match[1] is None and scheme in ("cuda", "python") and len(version.parts) == 2:
            wildcard = True  # a bare 12.4 names the series, as users and the driver API do
        name = "==" if operator == "=" else operator
        clause = Clause(f"{name}*" if wildcard else name, version)  # type: ignore[arg-type]
        if wildcard and version.whole:
            raise _constraint_error(component, text, f"{literal}: .* follows numbers alone")
        clauses.append(clause)
    return Constraint(text, tuple(clauses))


def _read_bound(component: str, scheme: str, literal: str, text: str) -> Version:
    """Read a bound, which may be shorter than a version: a driver branch, a major alone."""
    stem = literal[:-2] if literal.endswith((".*", ".x")) else literal
    shorter = stem != literal or scheme != "pep440"
    dotted = re.fullmatch(r"\d{1,4}(\.\d{1,4}){0,3}", stem)
    if scheme == "msvc" and stem != "19":
        shorter = False  # 14.38 and 1938 mean 19.38
    if shorter and dotted and (len(stem) < 4 or "." in stem or scheme == "driver"):
        parts = tuple(int(p) for p in stem.split("."))
        return make_version(literal, parts[:3] if scheme in ("cudnn", "nccl") else parts)
    try:
        return parse_version(component, stem)
    except BadInput:
        raise _constraint_error(component, text) from None


def _constraint_error(
    component: str, text: str, hint: str = "like 12.4.*, ~=2.4.0, ==9.1.0 or >=535.104.05,<536"
) -> BadInput:
    return BadInput(f"{text!r} is not a version constraint", field=component, value=text, hint=hint)


def nearest_allowed(constraint: Constraint, have: Version) -> str | None:
    """Return the version of a range that is nearest to another: its last major, or its first.

    A range without an end has only its first.
    """
    least = [c.version for c in constraint.clauses if c.operator == ">="]
    below = [c.version for c in constraint.clauses if c.operator == "<"]
    if below and have >= min(below):
        return _before(min(below))
    return max(least).text if least and have < max(least) else None


def nearest_outside(constraint: Constraint) -> str | None:
    """Return the version just before a range begins; None where it has no beginning."""
    least = [c.version for c in constraint.clauses if c.operator == ">="]
    if least:
        return _before(max(least))
    below = [c.version for c in constraint.clauses if c.operator == "<"]
    return min(below).text if below else None


def describe_range(constraint: Constraint) -> str:
    """Describe a range of compilers as people write it: ``3.3 to 17``, ``up to 13``."""
    least = [c.version.text for c in constraint.clauses if c.operator == ">="]
    below = [_before(c.version) for c in constraint.clauses if c.operator == "<"]
    if least and below:
        return f"{least[0]} to {below[0]}"
    return f"up to {below[0]}" if below else f"{least[0]} and newer" if least else constraint.text


def _before(end: Version) -> str:
    *start, last = end.parts
    return format_parts((*start, last - 1)) if last else format_parts((start[0] - 1,))
