"""Readings that are kept, platforms, options and the deadline."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from compatgate.core.facts import Facts
from compatgate.core.gpu_code import parse_arch
from compatgate.discovery import cache
from compatgate.discovery.findings import CodeFile
from compatgate.discovery.image.config import ConfigReading
from compatgate.discovery.image.layers import LayerFindings
from compatgate.discovery.image.read import conclude_image
from compatgate.discovery.image.reading import ImageReading
from compatgate.discovery.observations import Conflict, Observation
from compatgate.discovery.registry.image_spec import parse_manifest, parse_platform
from compatgate.discovery.registry.limits import Deadline, parse_mirrors, read_options
from compatgate.errors import BadInput, DamagedContent, Unavailable


def test_a_reading_is_the_same_after_it_was_kept(tmp_path: Path) -> None:
    reading = ImageReading(
        "a/b:1", "sha256:1", "linux/amd64", {"cuda": "12.4", "require": ["cuda>=12.4"]},
        (Observation("cuda", "12.4", "env", "metadata"),), (Conflict("cuda", "x"),), ("open",),
    )  # fmt: skip
    name = cache.entry_key("sha256:1", {"platform": "linux/amd64"})
    assert cache.write_entry(str(tmp_path), name, reading)
    assert cache.read_struct(str(tmp_path), name, ImageReading) == reading


def test_a_damaged_file_is_no_reading(tmp_path: Path) -> None:
    cache.write_entry(str(tmp_path), "ab12", {"x": 1})
    path = next(p for p in tmp_path.rglob("*.json"))
    path.write_bytes(path.read_bytes()[:-1] + b"0")
    assert cache.read_struct(str(tmp_path), "ab12", dict) is None
    cache.write_entry(str(tmp_path), "cd34", {"digest": 1})
    assert cache.read_struct(str(tmp_path), "cd34", ImageReading) is None


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not cache.write_entry(str(tmp_path / "file"), "ab12", {})
    assert cache.read_struct(str(tmp_path / "file"), "ab12", dict) is None


def test_a_key_depends_on_everything() -> None:
    keys = {
        cache.entry_key("a", {"x": 1}),
        cache.entry_key("b", {"x": 1}),
        cache.entry_key("a", {"x": 2}),
    }
    assert len(keys) == 3
    assert cache.entry_key("a", {"x": 1, "y": 2}) == cache.entry_key("a", {"y": 2, "x": 1})


@pytest.mark.parametrize(
    ("text", "platform"),
    [
        ("linux/amd64", "linux/amd64"),
        ("Linux/x86_64", "linux/amd64"),
        ("linux/aarch64", "linux/arm64"),
        ("linux/arm64/v8", "linux/arm64"),
        ("linux/arm/v6", "linux/arm/v6"),
    ],
)
def test_platforms_have_one_spelling(text: str, platform: str) -> None:
    assert str(parse_platform(text)) == platform


@pytest.mark.parametrize("text", ["", "linux", "linux/", "a/b/c/d", "linux/am d"])
def test_what_is_no_platform_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is not a platform"):
        parse_platform(text)


@pytest.mark.parametrize(
    ("data", "kind", "problem"),
    [
        (b'{"schemaVersion": 1}', BadInput, "schema 1"),
        (b'{"schemaVersion": 2, "mediaType": "x/y"}', BadInput, "x/y"),
        (b'{"manifests": [], "layers": []}', DamagedContent, "both an index and a manifest"),
        (b'{"config": {"digest": "md5:1", "size": 1}, "layers": []}', DamagedContent,
         "not a valid blob"),
        (b'{"config": {"digest": "sha256:%s", "size": -1}, "layers": []}' % (b"0" * 64),
         DamagedContent,
         "not a valid blob"),
        (b'{"config": {"digest": "sha256:%s", "size": 1, "mediaType": "application/helm"},'
         b'"layers": []}' % (b"0" * 64), BadInput, "application/helm"),
        (b"[]", DamagedContent, "cannot be read"),
        (b"\xff", DamagedContent, "cannot be read"),
    ],
)  # fmt: skip
def test_what_is_no_manifest_of_an_image_is_refused(data, kind, problem) -> None:
    with pytest.raises(kind, match=problem):
        parse_manifest(data, "", "app:1")


def test_mirrors_are_read_from_the_environment() -> None:
    text = (
        "docker.io=https://one.example/, docker.io=http://localhost:1 ghcr.io=https://two.example/x"
    )
    assert read_options({"COMPATGATE_REGISTRY_MIRRORS": text}).mirrors == {
        "docker.io": ("https://one.example", "http://localhost:1"),
        "ghcr.io": ("https://two.example/x",),
    }
    for wrong in ("docker.io", "docker.io=one.example", "=https://x"):
        with pytest.raises(BadInput, match="is not REGISTRY=URL"):
            parse_mirrors(wrong)


def test_a_deadline_ends_who_waits_for_a_socket() -> None:
    mine, theirs = socket.socketpair()
    start = time.monotonic()
    with Deadline(0.2) as deadline, mine, theirs:
        deadline.watch(mine)
        assert mine.recv(1) == b""
        assert time.monotonic() - start < 2
        with pytest.raises(Unavailable, match=r"longer than the allowed 0\.2 seconds"):
            deadline.check("reading")


def test_the_code_of_several_packages_is_what_runs_with_all_of_them(facts: Facts) -> None:
    seen = LayerFindings()
    for owner, names in (("torch", "sm_80 sm_90 compute_90"), ("flash-attn", "sm_80")):
        arch = tuple(a for name in names.split() for a in parse_arch(name))
        seen.codes.append(CodeFile(f"layer 1: {owner}.so", owner, arch))
    found = conclude_image(ConfigReading((), (), False, None), seen, facts.arch)
    assert found.stack["arch"] == ["sm_80"]
    assert "flash-attn has nothing for sm_90 compute_90" in found.conflicts[0].message
    assert [o.confidence for o in found.observations] == ["measured", "measured"]
