"""Workloads made for a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

MANIFEST = """
name = "{name}"
description = "Measures something"
command = ["python3", "program.py"]

[image]
inside = true

[metrics.speed]
unit = "GB/s"
better = "higher"

[checks]
right = "the result is right"
"""


@pytest.fixture
def make_workload(tmp_path: Path) -> Callable[..., Path]:
    """Write a workload's folder; ``change`` edits the text of a good manifest."""

    def make(
        name: str = "made", change: Callable[[str], str] = str, folder: Path | None = None
    ) -> Path:
        made = (folder or tmp_path) / name
        made.mkdir(parents=True)
        (made / "workload.toml").write_text(change(MANIFEST.format(name=name)))
        (made / "program.py").write_text("print('hello')\n")
        (made / "README.md").write_text("# made\n")
        return made

    return make
