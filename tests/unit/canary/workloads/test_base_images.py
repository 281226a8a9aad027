"""What the shipped Dockerfiles start from: images by version, never the image under test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compatgate.canary.workloads import Library, contents
from compatgate.resources import canary_dir

FILES = sorted(canary_dir().glob("*/Dockerfile"))
VERSIONED = re.compile(r"[a-z0-9./-]+:\d+\.\d+\.\d+[a-z0-9.-]*")
RELEASED = re.compile(r"/archive/(refs/tags/v\d+\.\d+(\.\d+)?|[0-9a-f]{40})\.tar\.gz")


def _of_tools() -> set[str]:
    return {name for name, w in Library.open().workloads.items() if w.adapter != "jsonl"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_tools_alone_are_built_and_name_their_images_by_version(file: Path) -> None:
    text = file.read_text()
    named = contents.find_base_images(text)
    assert file.parent.name in _of_tools()
    assert named
    assert all(VERSIONED.fullmatch(image) for image in named), named
    assert contents.is_self_contained(text)
    assert contents.BASE_ARGUMENT not in contents.find_arguments(text)
    for line in text.splitlines():
        if line.startswith("ADD "):
            assert RELEASED.search(line), line


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ADD https://a.example/b.tar.gz /tmp/", ["https://a.example/b.tar.gz"]),
        ('add --chmod=644 ["http://a.example/b", "/tmp/"]', ["http://a.example/b"]),
        ("ADD \\\n  git@github.com:a/b.git \\\n  /tmp/", ["git@github.com:a/b.git"]),
        ("ADD local.tar.gz /tmp/\nCOPY a b\nRUN curl https://a.example", []),
    ],
)
def test_what_the_engine_would_download_for_a_build_is_found(text: str, found: list[str]) -> None:
    assert contents.find_downloads(f"FROM x\n{text}\n") == found
