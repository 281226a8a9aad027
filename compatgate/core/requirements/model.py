"""Define the language's terms, and the compiled form that both dialects share."""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from compatgate.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Impl = Literal["go", "c"]

VERSION_PROPERTIES = ("cuda", "driver", "arch")
PROPERTIES = (*VERSION_PROPERTIES, "brand")

COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
OPERATOR_CHARACTERS = "<>=!"

_MAX_QUOTED = 100
_HOST_VERSION = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})*")
_FIRST_NUMBER = re.compile(r"[0-9]{1,9}")
_CUDA_DRIVER_API = re.compile(r"[0-9]{4,5}")


class Properties(Struct, frozen=True):
    """The properties of a host; None: not known, or no GPU is visible."""

    # the CUDA version that the driver reports (``12.2``; ``12020`` is the same)
    cuda: str | None = None
    driver: str | None = None  # the kernel driver's version (``535.104.05``)
    arch: str | None = None  # the GPU's compute capability (``8.0``)
    # the GPU's NVML brand. The Go toolkit tells case apart and names brands in lower case, without
    # spaces (``tesla``, ``quadrortx``).
    brand: str | None = None


class RequirementAnswer(Struct, frozen=True):
    """The answer whether the host meets the requirements, and why, in one sentence of ASCII."""

    satisfied: bool
    reason: str


class MalformedRequirement(BadInput):
    """A requirement that the chosen implementation rejects, so that no container starts."""

    slug = "malformed-requirement"

    def __init__(self, requirement: str, factor: str, why: str, hint: str) -> None:
        where = "" if factor == requirement else f" in '{quote_text(requirement)}'"
        super().__init__(
            f"'{quote_text(factor)}'{where} {why}", field="require", value=requirement, hint=hint
        )
        self.factor = factor


class Host(Struct, frozen=True):
    """A host as one dialect sees it."""

    stated: Properties
    values: Mapping[str, Any]  # by property, the value that the dialect compares with its factors
    majors: Mapping[str, int]  # by version property, the first number; 0 where it is not known
    unknown: str  # how the dialect treats a property that is not known, to follow "which"


class Factor(Struct, frozen=True):
    """One condition, ``driver>=470``."""

    text: str
    property: str
    # tells whether it holds on a host; raises `MalformedRequirement` where the dialect notices a
    # mistake only when it reaches the factor
    holds: Callable[[Host], bool]
    major: int = 0  # the first number of a version; ranks near misses
    note: str = ""  # why it can never hold, on any host


class Clause(Struct, frozen=True):
    """One alternative, ``brand=tesla,driver>=470,driver<471``: all its factors must hold."""

    text: str
    factors: tuple[Factor, ...]


class Requirement(Struct, frozen=True):
    """One compiled requirement: some clause must hold; without clauses it asks for nothing.

    Attributes:
        ignored: factors left out because the dialect does not know their property.
    """

    clauses: tuple[Clause, ...]
    ignored: tuple[str, ...] = ()


class Dialect(Struct, frozen=True):
    """One implementation of the language."""

    name: str
    compile: Callable[[str], Requirement]
    host: Callable[[Properties], Host]
    most: int | None = None  # largest number of requirements of a container; None for any number


def quote_text(text: str) -> str:
    """Quote text from outside: cut to fit a sentence, and safe on any terminal."""
    short = text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}..."
    return short if short.isascii() and short.isprintable() else ascii(short)[1:-1]


def first_number(version: str) -> int:
    """Return the first number of a version, up to nine digits; 0 if it starts with no digit."""
    digits = _FIRST_NUMBER.match(version)
    return int(digits[0]) if digits else 0


def host_parts(host: Properties, name: str) -> tuple[int, ...] | None:
    """Return the numbers of a host's version property; None if it is not known."""
    text: str | None = getattr(host, name)
    if text is None:
        return None
    if not _HOST_VERSION.fullmatch(text):
        example = {"cuda": "12.4", "driver": "535.104.05", "arch": "8.0"}[name]
        what = f"'{quote_text(text)}' is not a version"
        hint = f"digits and dots, such as {example}; omit the value if it is unknown"
        raise BadInput(what, field=name, value=text, hint=hint)
    if name == "cuda" and _CUDA_DRIVER_API.fullmatch(text):
        return divmod(int(text) // 10, 100)
    return tuple(int(part) for part in text.split("."))


def host_brand(host: Properties) -> str | None:
    """Return the host's brand; None if it is not known."""
    if host.brand == "":
        raise BadInput("empty", field="brand", value="", hint="omit the value if it is unknown")
    return host.brand
