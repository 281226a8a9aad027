"""Read the language as nvidia-container-toolkit does (Go; CSV mode, with ``image.go`` CDI mode).

Versions compare as golang.org/x/mod/semver compares them, without the leading ``v``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from compatgate.core.requirements.model import (
    COMPARISONS,
    OPERATOR_CHARACTERS,
    PROPERTIES,
    VERSION_PROPERTIES,
    Clause,
    Dialect,
    Factor,
    Host,
    MalformedRequirement,
    Properties,
    Requirement,
    first_number,
    host_brand,
    host_parts,
    quote_text,
)
from compatgate.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable

    Check = Callable[[Host], bool]

SemverKey = tuple[object, ...]
_SEMVER_NUMBER = r"(0|[1-9][0-9]*)"
_IDENTIFIERS = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_SEMVER = re.compile(
    rf"{_SEMVER_NUMBER}(?:\.{_SEMVER_NUMBER}(?:\.{_SEMVER_NUMBER}(?:-({_IDENTIFIERS}))?(?:\+{_IDENTIFIERS})?)?)?"
)
BELOW_EVERY_VERSION: SemverKey = ()
"""The key of an invalid version: less than every valid version, equal to other invalid ones."""


def semver_key(version: str) -> SemverKey | None:
    """Return a key that sorts as `semver.Compare` does; None if the version is not valid.

    ``12`` and ``12.4`` stand for ``12.0.0`` and ``12.4.0``; numbers have no leading zeros; a
    pre-release (``12.4.0-rc1``) sorts before its release; build metadata does not count.
    """
    match = _SEMVER.fullmatch(version)
    if match is None:
        return None
    major, minor, patch, prerelease = match.groups()
    if prerelease is None:
        return (
            _identifier_key(major),
            _identifier_key(minor or "0"),
            _identifier_key(patch or "0"),
            1,
        )
    identifiers = prerelease.split(".")
    if any(i.isdigit() and i[0] == "0" and i != "0" for i in identifiers):
        return None
    ranked = tuple((0, *_identifier_key(i)) if i.isdigit() else (1, i) for i in identifiers)
    return (_identifier_key(major), _identifier_key(minor), _identifier_key(patch), 0, ranked)


def _identifier_key(digits: str) -> tuple[int, str]:
    # Of two numbers without leading zeros the longer is the larger: exact at any length, where
    # int() would refuse thousands of digits.
    return len(digits), digits


_OPERATORS = ("!=", "<=", ">=", "=", "<", ">")
_FIRST_OPERATOR_CHARACTER = re.compile(f"[{OPERATOR_CHARACTERS}]")
# unicode.IsSpace, which strings.TrimSpace uses; str.strip() would take U+001C to U+001F as well.
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def compile_requirement(text: str) -> Requirement:
    """Read a whole requirement."""
    clauses: list[Clause] = []
    ignored: list[str] = []
    for clause in text.split(" "):
        factors: list[Factor] = []
        for part in clause.split(","):
            if not part.strip(_SPACE):
                continue
            factor = _read_factor(text, part)
            if factor is None:
                ignored.append(part)
            else:
                factors.append(factor)
        if factors:
            clauses.append(Clause(clause, tuple(factors)))
    return Requirement(tuple(clauses), tuple(ignored))


def _read_factor(requirement: str, text: str) -> Factor | None:
    found = _FIRST_OPERATOR_CHARACTER.search(text)
    if found is None:
        hint = "property, operator, value, as in cuda>=12.4"
        raise MalformedRequirement(requirement, text, "has no operator", hint)
    name, rest = text[: found.start()], text[found.start() :]
    if name not in PROPERTIES:
        return None
    operator = next((o for o in _OPERATORS if rest.startswith(o)), "")
    value = rest.removeprefix(operator)
    if name == "brand" and not operator:
        # parse() keeps it and eval() then fails on the operator "", whatever the host.
        note = "it has no operator that the Go toolkit knows and so never holds"
        return Factor(text, name, lambda _: False, note=note)
    if name == "brand":
        return Factor(text, name, _make_comparison(name, operator, value))
    version = value.removeprefix("v")
    key = semver_key(version)
    if key is None:
        raise MalformedRequirement(requirement, text, *_explain_version_mistake(rest, version))
    return Factor(text, name, _make_comparison(name, operator, key), first_number(version))


def _make_comparison(name: str, operator: str, value: object) -> Check:
    compare = COMPARISONS[operator]
    return lambda host: compare(host.values[name], value)


def _explain_version_mistake(rest: str, version: str) -> tuple[str, str]:
    operator = rest[: len(rest) - len(rest.lstrip(OPERATOR_CHARACTERS))]
    if operator not in COMPARISONS:
        return f"has the operator '{quote_text(operator)}'", f"one of {' '.join(COMPARISONS)}"
    if not version:
        return "has no value", "a version, as in cuda>=12.4"
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)*", version):
        return f"requires '{quote_text(version)}', which is not a semantic version", "as in 12.4"
    numbers = [part.lstrip("0") or "0" for part in version.split(".")[:3]]
    write = f"write {operator}{quote_text('.'.join(numbers))}"
    if version.count(".") > 2:
        return "has more than the three numbers of a semantic version", write
    return "has a number with a leading zero, unlike a semantic version", write


@lru_cache(maxsize=1024)
def host(stated: Properties) -> Host:
    """Return the host as ``image.go`` hands it to the comparison."""
    values: dict[str, object] = {"brand": host_brand(stated) or ""}
    majors: dict[str, int] = {}
    for name in VERSION_PROPERTIES:
        parts = host_parts(stated, name) or ()
        if len(parts) > 3:
            text, hint = getattr(stated, name), "the Go toolkit compares at most three, such as "
            what = f"'{quote_text(text)}' has more than three numbers"
            raise BadInput(what, field=name, value=text, hint=f"{hint}535.104.05")
        values[name] = semver_key(".".join(map(str, parts))) or BELOW_EVERY_VERSION
        majors[name] = parts[0] if parts else 0
    return Host(stated, values, majors, "the Go toolkit ranks below every value")


DIALECT = Dialect("the Go toolkit", compile_requirement, host)
