"""The stack that is written down in a lockfile or a bill of materials."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from compatgate.cli.check.observed import read_bytes
from compatgate.cli.formats import Place
from compatgate.core.stack import canonical_key
from compatgate.errors import CompatgateError

if TYPE_CHECKING:
    from compatgate.cli.check.platforms import Platforms
    from compatgate.core.facts.packages import Packages
    from compatgate.discovery.lockfiles import Platform
    from compatgate.discovery.lockfiles.interface import Origin
    from compatgate.discovery.observed import Conflict, Observation

Body = dict[str, Any]


class _Reading(Protocol):
    @property
    def observations(self) -> tuple[Observation, ...]: ...
    @property
    def conflicts(self) -> tuple[Conflict, ...]: ...
    @property
    def open(self) -> tuple[str, ...]: ...


class Written(Struct, frozen=True):
    """What a lockfile and a bill of materials say.

    Attributes:
        stack: in the form of requests.
        places: component to where it is locked.
        unrelated: the lockfile holds no component of a GPU stack.
        origins: where the files of its GPU packages are, by name.
    """

    stack: Body
    places: dict[str, Place] = {}
    unrelated: bool = False
    origins: dict[str, Origin] = {}


def read_written(
    lock: str | None, sbom: str | None, platforms: Platforms, stated: Body, known: Packages
) -> Written:
    """The stack of a lockfile and an SBOM under the one that is stated.

    What a file leaves open and where witnesses disagree is part of the stack, so that no answer
    passes over it. What the options state wins, is a finding where a file has something else, and
    is not open.

    Args:
        lock: of ``--lock``; ``-``: standard input.
        sbom: of ``--sbom``, likewise.
        platforms: the first says for which platform a lock is read.
        stated: the stack of the options.
        known: which packages carry GPU code.

    Raises:
        BadInput: a file cannot be read, or is not what it should be.
        Inconclusive: it says nothing (empty, a template).
    """
    from compatgate.discovery.lockfiles import Platform
    from compatgate.discovery.stack.stated import beside, stated_wins

    python = next((v for k, v in stated.items() if canonical_key(k) == "python"), None)
    platform = Platform(os=platforms.os, cpu=platforms.cpu, python=python)
    body: Body = {}
    names = []
    written = Written({})
    origins: dict[str, Origin] = {}
    if sbom:
        from compatgate.catalog import read_source
        from compatgate.discovery.sbom import read_sbom

        data = read_bytes(sbom, "--sbom")
        signals = read_source("image_signals")
        names.append(_name(sbom))
        bill = read_sbom(names[-1], data, known=known, signals=signals, platform=platform)
        body = beside(_body(bill), bill.rest)
        body |= _compat_use(body)
        origins = bill.origins
    if lock:
        names.append(_name(lock))
        written = _read_lock(lock, platform, known)
        body = beside(beside(written.stack, platforms.remarks(names[-1])), body)
    stack = stated_wins(body, stated, " and ".join(names))
    return replace(written, stack=stack, origins={**origins, **written.origins})


def _read_lock(lock: str, platform: Platform, known: Packages) -> Written:
    from compatgate.cli.check.places import places_of
    from compatgate.discovery.lockfiles import read_lockfile
    from compatgate.discovery.stack.stated import with_wheels

    data = read_bytes(lock, "--lock")
    path: Path | str = Path(lock) if lock != "-" else _name(lock)
    try:
        reading = read_lockfile(path, data, known=known, platform=platform)
    except CompatgateError as error:
        name = Path(lock).name
        if error.field and error.field.startswith(name):  # others may have the same name
            error.field = lock + error.field.removeprefix(name)
        raise
    return Written(
        with_wheels(_body(reading, reading.arch), reading.wheels),
        places_of(lock, os.path.basename(path), data, reading.observations),
        reading.unrelated,
        reading.origins,
    )


def _body(reading: _Reading, arch: Iterable[str] = ()) -> Body:
    from compatgate.discovery.stack.settle import settle
    from compatgate.discovery.stack.stated import with_remarks

    stack, disagreements = settle(reading.observations, arch)
    return with_remarks(stack, reading.open, (*reading.conflicts, *disagreements))


def _compat_use(body: Body) -> Body:
    """A bill of materials lists the forward-compatibility package, and not who loads it."""
    if "cuda-compat" not in body or "cuda-compat-use" in body:
        return {}
    what = "whether the library path leads to cuda-compat is not in a bill of materials"
    return {"cuda-compat-use": "newer", "unread": [what]}


def _name(path: str) -> str:
    return "standard input" if path == "-" else path
