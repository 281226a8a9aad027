"""Where in a lockfile each component stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from known_packages import PACKAGES

from compatgate.check.stack_sources import places_of, stated_place
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.read import read_lockfile
from compatgate.formats.reports import Place

FILES = Path(__file__).parents[1] / "discovery" / "lockfiles" / "files"


def places(path: Path) -> dict[str, Place]:
    reading = read_lockfile(
        path, path.read_bytes(), known=PACKAGES, platform=Platform(python="3.11")
    )
    return places_of(str(path), path.name, path.read_bytes(), reading.observations)


@pytest.mark.parametrize(
    ("lock", "component", "line"),
    [
        ("torch-2.4/uv.lock", "torch", 'name = "torch"'),
        ("torch-2.4/uv.lock", "cudnn", 'name = "nvidia-cudnn-cu12"'),
        ("torch-2.4/pdm.lock", "nccl", 'name = "nvidia-nccl-cu12"'),
        ("torch-2.4/pylock.toml", "torch", 'name = "torch"'),
        ("torch-2.4/requirements.txt", "torch", "torch==2.4.1"),
        ("torch-explicit/poetry.lock", "cublas", 'name = "nvidia-cublas-cu12"'),
        ("conda/environment.yml", "vllm", "vllm"),
        ("conda/conda-lock.yml", "torch", "name: pytorch"),
        ("conda/explicit.txt", "cudnn", "/cudnn-"),
        ("conda/pixi.lock", "torch", "/pytorch-"),
    ],
)
def test_a_component_stands_where_its_package_is_named(
    lock: str, component: str, line: str
) -> None:
    path = FILES / lock
    place = places(path)[component]
    assert place.path == str(path)
    assert line in path.read_text().splitlines()[place.line - 1]


def test_a_component_of_an_included_file_stands_there(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("-r base.txt\n")
    (tmp_path / "base.txt").write_text("# base\ntorch==2.4.1+cu121\n")
    found = places(tmp_path / "requirements.txt")["torch"]
    assert found == Place(str(tmp_path / "base.txt"), 2)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("Dockerfile", Place("Dockerfile")),
        ("Dockerfile:3", Place("Dockerfile", 3)),
        ("a:b", Place("a:b")),
        ("a:0", Place("a:0")),
        (":3", Place(":3")),
    ],
)
def test_a_stated_place_may_name_a_line(text: str, place: Place) -> None:
    assert stated_place(text) == place
