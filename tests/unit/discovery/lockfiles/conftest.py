"""Reading a lockfile of this folder, or one that a test writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from known_packages import PACKAGES

from compatgate.core.components import COMPONENTS
from compatgate.discovery.lockfiles.interface import LockReading
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.read import read_lockfile

FILES = Path(__file__).parent / "files"


def _platform(target: str) -> Platform:
    """``linux x86_64 3.11``; what is left out is the default."""
    os, cpu, python = (*target.split(), "", "", "")[:3]
    return Platform(os or "linux", cpu or "x86_64", python or None)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def files() -> Path:
    """The folder of lockfiles."""
    return FILES


@pytest.fixture(scope="session")
def read() -> Callable[..., LockReading]:
    """Read a lockfile of the folder by its path, or a text under a name."""

    def reading(
        name: str, text: str | None = None, target: str = "linux x86_64 3.11", **selection: Any
    ) -> LockReading:
        path = FILES / name
        given = Path(name).name if text is not None else path
        data = text.encode() if text is not None else path.read_bytes()
        return read_lockfile(given, data, known=PACKAGES, platform=_platform(target), **selection)

    return reading


@pytest.fixture(scope="session")
def stack(read: Callable[..., LockReading]) -> Callable[..., dict[str, str]]:
    """The first version of each component that a lockfile says, without its packages."""

    def components(*arguments: Any, **keywords: Any) -> dict[str, str]:
        found: dict[str, str] = {}
        for observation in read(*arguments, **keywords).observations:
            if observation.component in (*COMPONENTS, "cuda-compat"):
                found.setdefault(observation.component, observation.version)
        return found

    return components
