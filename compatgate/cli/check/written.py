"""The stack that is written down in a lockfile or a bill of materials."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from compatgate.cli.check.observed import read_bytes
from compatgate.core.stack import canonical_key

if TYPE_CHECKING:
    import argparse

    from compatgate.cli.check.platforms import Platforms
    from compatgate.discovery.observed import Conflict, Observation

Body = dict[str, Any]


class _Reading(Protocol):
    @property
    def observations(self) -> tuple[Observation, ...]: ...
    @property
    def conflicts(self) -> tuple[Conflict, ...]: ...
    @property
    def open(self) -> tuple[str, ...]: ...


def read_written(args: argparse.Namespace, platforms: Platforms, stated: Body) -> Body:
    """The stack of ``--lock`` and ``--sbom`` under the one that is stated, in the form of requests.

    What a file leaves open and where witnesses disagree is part of the stack, so that no answer
    passes over it. What the options state wins, is a finding where a file has something else, and
    is not open.

    Args:
        args: of ``compatgate check``.
        platforms: the first says for which platform a lock is read.
        stated: the stack of the options.

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
    if args.sbom:
        from compatgate.catalog import read_source
        from compatgate.discovery.sbom import read_sbom

        data = read_bytes(args.sbom, "--sbom")
        signals = read_source("image_signals")
        names.append(_name(args.sbom))
        body = _body(read_sbom(names[-1], data, signals=signals, platform=platform))
        body |= _compat_use(body)
    if args.lock:
        from compatgate.discovery.lockfiles import read_lockfile

        names.append(_name(args.lock))
        path = Path(args.lock) if args.lock != "-" else names[-1]
        reading = read_lockfile(path, read_bytes(args.lock, "--lock"), platform=platform)
        locked = beside(_body(reading, reading.arch), platforms.remarks(names[-1]))
        body = beside(locked, body)
    return stated_wins(body, stated, " and ".join(names))


def _body(reading: _Reading, arch: Iterable[str] = ()) -> Body:
    from compatgate.discovery.stack.settle import settle
    from compatgate.discovery.stack.stated import with_remarks

    stack, disagreements = settle(reading.observations, arch)
    return with_remarks(stack, reading.open, (*reading.conflicts, *disagreements))


def _compat_use(body: Body) -> Body:
    """A bill of materials lists the forward-compatibility package, and not who loads it."""
    if "cuda-compat" not in body:
        return {}
    what = "whether the library path leads to cuda-compat is not in a bill of materials"
    return {"cuda-compat-use": "newer", "unread": [what]}


def _name(path: str) -> str:
    return "standard input" if path == "-" else path
