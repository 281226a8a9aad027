"""Reading images without the credentials of whoever runs the tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compatgate.catalog import read_source
from compatgate.discovery.image.read import read_image
from compatgate.discovery.image.reading import ImageReading
from compatgate.discovery.registry.limits import ImageOptions


@pytest.fixture(scope="session")
def signals() -> dict[str, Any]:
    """The published signals."""
    return read_source("image_signals", overlays=[])


@pytest.fixture
def read(signals: dict[str, Any], tmp_path: Path) -> Callable[..., ImageReading]:
    """Read an image, without the credentials of whoever runs the tests."""
    (tmp_path / "docker").mkdir()

    def call(reference: str, *, deadline_s: float = 30, **more: Any) -> ImageReading:
        platform = {"platform": more.pop("platform")} if "platform" in more else {}
        options = ImageOptions(**{"docker_config": str(tmp_path / "docker"), **more})
        return read_image(
            reference, signals=signals, deadline_s=deadline_s, options=options, **platform
        )

    return call
