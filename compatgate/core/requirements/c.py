"""Read the language as libnvidia-container does (C; ``nvidia-container-cli configure --require``).

Source: NVIDIA/libnvidia-container ``src/cli/dsl.c`` (grammar, comparison), ``src/cli/configure.c``
(properties, unknown values), ``src/driver.c`` (properties of the host).

- Clauses are scanned from the left and scanning stops at the first that holds; within a clause it
  stops at the first factor that does not. A mistake counts when the scan gets there, not before.
- Property names and brands compare without regard to case; an unknown property is a mistake.
- A version is any number of numbers; leading zeros and a tail of zeros do not count.
- ``brand`` knows ``=`` and ``!=`` only. A bare ``!`` is ``!=``.
- A comparison with a property that is not known is true.
- Empty clauses and factors are skipped; a clause of commas alone ends the scan there.

The library asks once for every visible GPU, and every one must pass.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial
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

if TYPE_CHECKING:
    from collections.abc import Callable

    Check = Callable[[Host], bool]
    Refuse = Callable[[str, str], Check]  # from what is wrong and what would be right

_MAX_REQUIREMENTS = 32
"""``reqs`` in ``src/cli/cli.h``; one more is an input error."""
_MAX_FALSE_FACTOR = 127
"""``EXPR_MAX`` in dsl.c: the copy of a false factor for an error message must fit."""
_LARGEST_NUMBER = 2**64 - 2
"""``strtoumax`` returns 2**64 - 1 for every larger number, which dsl.c treats as a failure."""

_OPERATORS = {"!": "!=", **{operator: operator for operator in COMPARISONS}}
_OPERATOR_CHARACTER = re.compile(f"[{OPERATOR_CHARACTERS}]")
_VERSION = re.compile(r"[0-9][0-9.]*")

_FORM = "property, operator, value, as in cuda>=12.4"
_VERSION_FORM = "digits and dots, as in 12.4"
_KNOWN_PROPERTIES = f"one of {' '.join(PROPERTIES)}"
_KNOWN_OPERATORS = f"one of {' '.join(COMPARISONS)}"


def compile_requirement(text: str) -> Requirement:
    """Read a requirement up to the end of every scan; a mistake counts when a scan reaches it."""
    clauses: list[Clause] = []
    for clause in text.split(" "):
        if not clause:
            continue
        factors = tuple(_read_factor(text, part) for part in clause.split(",") if part)
        if not factors:
            # Commas alone: dsl_evaluate() stops with the result so far. That is true before
            # the first clause, and false after one, or the scan would have stopped there.
            break
        clauses.append(Clause(clause, factors))
    return Requirement(tuple(clauses))


def _read_factor(requirement: str, text: str) -> Factor:
    written_name = _OPERATOR_CHARACTER.split(text, maxsplit=1)[0]
    rest = text[len(written_name) :]
    value = rest.lstrip(OPERATOR_CHARACTERS)
    operator = rest[: len(rest) - len(value)]
    refuse = partial(_refuse, requirement, text)
    mistake = _find_mistake(written_name, operator, value)
    if mistake:
        return Factor(text, "", refuse(*mistake))

    name, operator = written_name.lower(), _OPERATORS[operator]
    if name == "brand":
        check = _brand_check(operator, value, refuse)
    else:
        check = _version_check(name, operator, value, refuse)
    copied = f"{written_name} {operator} {value}".encode("utf-8", "surrogatepass")
    if len(copied) > _MAX_FALSE_FACTOR:
        why = f"is false and takes over {_MAX_FALSE_FACTOR} bytes"
        check = _hold_any(check, refuse(why, "a shorter value"))
    return Factor(
        text, name, lambda host: host.values[name] is None or check(host), first_number(value)
    )


def _find_mistake(name: str, operator: str, value: str) -> tuple[str, str] | None:
    """Return a factor's mistake (``evaluate_rule``) and a correct form; None if it is valid."""
    if not name:
        return "names no property", _KNOWN_PROPERTIES
    if not operator:
        return "has no operator", _FORM
    if operator not in _OPERATORS:
        return f"has the operator '{quote_text(operator)}'", _KNOWN_OPERATORS
    if not value:
        return "has no value", _FORM
    if name.lower() not in PROPERTIES:
        return f"asks about '{quote_text(name)}'", _KNOWN_PROPERTIES
    return None


def _brand_check(operator: str, value: str, refuse: Refuse) -> Check:
    """Compare as ``dsl_compare_string``."""
    if operator not in ("=", "!="):
        return refuse("orders brands", "= or !=")
    return _make_comparison("brand", operator, _brand_key(value))


def _version_check(name: str, operator: str, value: str, refuse: Refuse) -> Check:
    """Compare as ``dsl_compare_version``."""
    if not _VERSION.fullmatch(value):
        return refuse(f"requires '{quote_text(value)}', which is not a version", _VERSION_FORM)
    numbers = tuple(_read_number(part) for part in value.split(".") if part)
    check = _make_comparison(name, operator, _version_key(numbers))
    if max(numbers) > _LARGEST_NUMBER:
        return _refuse_if_reached(
            name, numbers, check, refuse("has a number of over 64 bits", _VERSION_FORM)
        )
    return check


def _refuse_if_reached(name: str, numbers: tuple[int, ...], check: Check, refused: Check) -> Check:
    """Refuse a number that is too large, if no earlier number decides."""
    at = next(i for i, number in enumerate(numbers) if number > _LARGEST_NUMBER)

    def holds(host: Host) -> bool:
        have = host_parts(host.stated, name) or ()
        reached = have[:at] == numbers[:at] and len(have) > at
        return refused(host) if reached else check(host)

    return holds


def _make_comparison(name: str, operator: str, key: object) -> Check:
    compare = COMPARISONS[operator]
    return lambda host: compare(host.values[name], key)


def _hold_any(first: Check, second: Check) -> Check:
    return lambda host: first(host) or second(host)


def _refuse(requirement: str, factor: str, why: str, hint: str) -> Check:
    def refused(_: Host) -> bool:
        raise MalformedRequirement(requirement, factor, why, hint)

    return refused


def _read_number(digits: str) -> int:
    significant = digits.lstrip("0") or "0"
    # int() refuses thousands of digits; twenty hold every number of 64 bits.
    return int(significant) if len(significant) <= 20 else _LARGEST_NUMBER + 1


def _version_key(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """Return a key that sorts as ``dsl_compare_version`` does: a tail of zeros does not count."""
    end = len(numbers)
    while end and numbers[end - 1] == 0:
        end -= 1
    return numbers[:end]


def _brand_key(brand: str) -> bytes:
    # strcasecmp() in the C locale folds ASCII alone, as bytes.lower() does and str.lower() not.
    return brand.encode("utf-8", "surrogatepass").lower()


@lru_cache(maxsize=1024)
def host(stated: Properties) -> Host:
    """Return the host as ``configure.c`` hands it to the comparison."""
    brand = host_brand(stated)
    values: dict[str, object] = {"brand": None if brand is None else _brand_key(brand)}
    majors: dict[str, int] = {}
    for name in VERSION_PROPERTIES:
        parts = host_parts(stated, name)
        values[name] = None if parts is None else _version_key(parts)
        majors[name] = parts[0] if parts else 0
    return Host(stated, values, majors, "the C library takes as met")


DIALECT = Dialect("the C library", compile_requirement, host, _MAX_REQUIREMENTS)
