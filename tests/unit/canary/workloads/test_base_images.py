"""What the shipped Dockerfiles start from: the image under test, or a tool's image by version."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compatgate.canary.workloads import Library, dockerfile
from compatgate.resources import canary_dir

FILES = sorted(canary_dir().glob("*/Dockerfile"))
VERSIONED = re.compile(r"[a-z0-9./-]+:\d+\.\d+\.\d+[a-z0-9.-]*")
RELEASED = re.compile(r"/archive/(refs/tags/v\d+\.\d+(\.\d+)?|[0-9a-f]{40})\.tar\.gz")


def _of_tools() -> set[str]:
    return {name for name, w in Library.open().workloads.items() if w.adapter != "jsonl"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_programs_of_the_project_assume_no_image_and_tools_name_theirs_by_version(
    file: Path,
) -> None:
    text = file.read_text()
    named = dockerfile.images(text)
    if file.parent.name in _of_tools():
        assert named
        assert all(VERSIONED.fullmatch(image) for image in named), named
    else:
        assert named == []
        assert dockerfile.arguments(text) == {"BASE": None}
    for line in text.splitlines():
        if line.startswith("ADD "):
            assert RELEASED.search(line), line
