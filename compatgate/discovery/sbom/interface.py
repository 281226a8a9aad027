"""What a bill of materials has to give: its parts, whatever its format."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct

from compatgate.discovery.lockfiles.interface import Origin
from compatgate.discovery.observed import Conflict, Observation


class Part(Struct, frozen=True):
    """One component of a bill of materials.

    Attributes:
        ref: its bom-ref or SPDXID.
        name: as the document writes it.
        purl: its package URL; empty without one.
        marker: the environment marker under which it is installed, where the document says.
    """

    ref: str
    name: str
    version: str = ""
    purl: str = ""
    marker: str = ""


class Bill(Struct, frozen=True):
    """A document's parts.

    Attributes:
        format: ``CycloneDX 1.6``, ``SPDX 2.3``.
        parts: those that may be components; others may have been left out.
        listed: whether the document lists anything at all.
        rest: parts of a stack that are no components, as ``inspect`` writes them.
    """

    format: str
    parts: tuple[Part, ...]
    listed: bool = True
    rest: dict[str, Any] = {}


class Reader(Protocol):
    """One standard in one notation."""

    def recognises(self, text: str) -> bool:
        """Whether the text is of this standard and notation; never raises."""
        ...

    def read(self, text: str, name: str) -> Bill:
        """The parts.

        Raises:
            BadInput: malformed, or the library for it is not installed.
        """
        ...


class SbomReading(Struct, frozen=True):
    """What a bill of materials says of a stack.

    Attributes:
        format: standard and version.
        observations: each with the file and its bom-ref or SPDXID.
        conflicts: contradictions beyond those that `settle` finds.
        open: what the document does not decide; none may be taken for a pass.
        rest: the rest of the stack in the form of requests: ``arch``, ``cuda-compat``, ...
        origins: where the files of each GPU package are, by name.
    """

    format: str
    observations: tuple[Observation, ...]
    conflicts: tuple[Conflict, ...] = ()
    open: tuple[str, ...] = ()
    rest: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
