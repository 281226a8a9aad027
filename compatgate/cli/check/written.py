"""The stack that is written down in a lockfile or a bill of materials."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, get_args

from compatgate.cli.check.observed import read_bytes
from compatgate.core.target import Os

if TYPE_CHECKING:
    import argparse

    from compatgate.discovery.lockfiles import Platform
    from compatgate.discovery.observed import Conflict, Observation

Body = dict[str, Any]


class _Reading(Protocol):
    @property
    def observations(self) -> tuple[Observation, ...]: ...
    @property
    def conflicts(self) -> tuple[Conflict, ...]: ...
    @property
    def open(self) -> tuple[str, ...]: ...


def read_written(args: argparse.Namespace, pools: list[Body], stated: Body) -> Body:
    """The stack of ``--lock`` and ``--sbom``, in the form of requests.

    What a file leaves open and where its witnesses disagree is part of the stack, so that no
    answer passes over it. What the options state is not open.

    Args:
        args: of ``compatgate check``.
        pools: described pools; the first says for which platform a lock is read.
        stated: the stack of the options.

    Raises:
        BadInput: a file cannot be read, or is not what it should be.
        Inconclusive: it says nothing (empty, a template).
    """
    platform = _platform(pools, stated)
    body: Body = {}
    if args.sbom:
        from compatgate.catalog import read_source
        from compatgate.discovery.sbom import read_sbom

        data = read_bytes(args.sbom, "--sbom")
        signals = read_source("image_signals")
        body = _body(read_sbom(_name(args.sbom), data, signals=signals, platform=platform))
        body |= _compat_use(body)
    if args.lock:
        from compatgate.discovery.lockfiles import read_lockfile

        name = _name(args.lock) if args.lock == "-" else Path(args.lock)
        reading = read_lockfile(name, read_bytes(args.lock, "--lock"), platform=platform)
        locked = _body(reading, reading.arch)
        body = {**body, **locked, **_joined(body, locked)}
    return body


def _platform(pools: list[Body], stated: Body) -> Platform:
    from compatgate.discovery.lockfiles import Platform

    pool = pools[0] if pools else {}
    os: Os = pool["os"] if pool.get("os") in get_args(Os) else "linux"
    return Platform(os=os, cpu=pool.get("cpu") or "x86_64", python=stated.get("python"))


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


def _joined(one: Body, other: Body) -> Body:
    """Remarks of both files."""
    remarks = {key: [*one.get(key, ()), *other.get(key, ())] for key in ("open", "conflicts")}
    return {key: value for key, value in remarks.items() if value}


def _name(path: str) -> str:
    return "standard input" if path == "-" else path
