"""Reading images without the credentials of whoever runs the tests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from compatgate.catalog import read_source
from compatgate.discovery.image import file_reading
from compatgate.discovery.image.read import ImageWork, read_image
from compatgate.discovery.image.reading import ImageReading
from compatgate.discovery.registry.limits import ImageOptions
from compatgate.errors import CompatgateError


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


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Read every image from records of its layers as well, with the same findings.

    The records are of an image with the layers in another order, where other files are hidden.
    """
    monkeypatch.setattr(file_reading, "SMALLEST", 0)
    read = ImageWork.read

    def read_twice(self: ImageWork, config: Any, layers: Any, source: Any) -> Any:
        found = read(self, config, layers, source)
        if not self.options.cache and not self.options.needs:
            options = replace(self.options, cache=str(tmp_path / "records"))
            work = replace(self, options=options)
            with suppress(CompatgateError):
                read(work, config, layers[::-1], source)
            assert read(work, config, layers, source) == found
        return found

    monkeypatch.setattr(ImageWork, "read", read_twice)
