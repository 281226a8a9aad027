"""poetry.lock and pdm.lock: packages with groups and markers."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatgate.errors import BadInput


def test_poetry_with_an_explicit_source_gives_the_build_of_that_source(stack):
    assert stack("torch-explicit/poetry.lock") == {
        "torch": "2.4.1+cu121",
        "cuda": "12.1.105",
        "cudnn": "9.1.0.70+cu12",
        "nccl": "2.20.5+cu12",
        "cublas": "12.1.3.1",
    }


def test_poetrys_source_names_the_build_where_the_version_does_not(files: Path, stack):
    text = (files / "torch-explicit/poetry.lock").read_text()
    text = text.replace('version = "2.4.1+cu121"', 'version = "2.4.1"')
    assert stack("poetry.lock", text)["torch"] == "2.4.1+cu121"


def test_poetrys_markers_hold_for_the_target(stack):
    found = stack("torch-explicit/poetry.lock", target="linux aarch64 3.11")
    assert found == {"torch": "2.4.1+cu121"}


_OLD_POETRY = """
[[package]]
name = "nvidia-cudnn-cu12"
version = "9.1.0.70"
optional = false
python-versions = ">=3"
files = []

[[package]]
name = "torch"
version = "2.4.1"
optional = false
python-versions = ">=3.8"
files = []

[package.dependencies]
nvidia-cudnn-cu12 = {version = "9.1.0.70", markers = "platform_machine == \\"x86_64\\""}

[metadata]
lock-version = "2.0"
python-versions = "^3.10"
content-hash = "00"
"""


def test_a_poetry_lock_without_markers_takes_them_from_the_dependents(stack):
    assert stack("poetry.lock", _OLD_POETRY)["cudnn"] == "9.1.0.70+cu12"


def test_where_a_dependent_asks_for_another_platform_an_old_poetry_lock_stays_open(read):
    reading = read("poetry.lock", _OLD_POETRY, target="linux aarch64 3.11")
    assert [o.component for o in reading.observations] == ["torch"]
    assert any("cudnn" in item and "Poetry 2" in item for item in reading.open)


def test_poetrys_other_groups_are_named(files: Path, read):
    text = (files / "torch-explicit/poetry.lock").read_text()
    text = text.replace('groups = ["main"]', 'groups = ["train"]')
    assert "group train has torch 2.4.1+cu121" in read("poetry.lock", text).open[0]


def test_pdm_gives_the_default_group(stack):
    found = stack("torch-2.4/pdm.lock")
    assert (found["torch"], found["cuda"], found["cudnn"]) == (
        "2.4.1",
        "12.1.105",
        "9.1.0.70+cu12",
    )
    assert "onnxruntime-gpu" not in found


def test_pdms_markers_hold_for_the_target(stack):
    assert stack("torch-2.4/pdm.lock", target="windows x86_64 3.11") == {"torch": "2.4.1"}


def test_a_pdm_lock_for_another_platform_is_a_conflict(files: Path, read):
    text = (files / "torch-2.4/pdm.lock").read_text()
    text = text.replace(
        'requires_python = ">=3.11,<3.13"',
        'requires_python = ">=3.11,<3.13"\nplatform = "manylinux_2_17_x86_64"',
        1,
    )
    assert read("pdm.lock", text).conflicts == ()
    conflict = read("pdm.lock", text, target="windows x86_64 3.11").conflicts[0]
    assert (conflict.component, conflict.decided) == ("platform", None)


@pytest.mark.parametrize("name", ["poetry.lock", "pdm.lock", "uv.lock", "pylock.toml"])
def test_a_syntax_error_is_named_with_its_line(read, name):
    with pytest.raises(BadInput, match="not valid TOML") as caught:
        read(name, '[[package]]\nname = "torch"\nversion = 2.4.1\n')
    assert caught.value.field == f"{name}:3"
