"""Reading a bill of materials of this folder, or one that a test writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from known_packages import PACKAGES

from compatgate.catalog import read_source
from compatgate.discovery.sbom.formats import SbomReading
from compatgate.discovery.sbom.read import read_sbom

SIGNALS = read_source("image_signals", overlays=[])
FILES = Path(__file__).parent / "files"


@pytest.fixture(scope="session")
def files() -> Path:
    """The folder of documents."""
    return FILES


@pytest.fixture(scope="session")
def read() -> Callable[..., SbomReading]:
    """Read a document of the folder by its name, or a text under a name."""

    def reading(name: str, text: str | None = None, **options: Any) -> SbomReading:
        data = text.encode() if text is not None else (FILES / name).read_bytes()
        return read_sbom(name, data, known=PACKAGES, signals=SIGNALS, **options)

    return reading
