"""uv.lock: one path through a resolution for every platform."""

from __future__ import annotations

import msgspec
import pytest

from compatgate.errors import BadInput


def test_a_torch_project_gives_torch_and_the_cuda_of_its_wheels(stack):
    assert stack("torch-2.4/uv.lock") == {
        "torch": "2.4.1",
        "cuda": "12.1.105",
        "cudnn": "9.1.0.70+cu12",
        "nccl": "2.20.5+cu12",
        "cublas": "12.1.3.1",
    }


def test_each_observation_says_where_it_stands(read):
    first = read("torch-2.4/uv.lock").observations[0]
    assert msgspec.to_builtins(first) == {
        "component": "torch",
        "version": "2.4.1",
        "origin": "uv.lock: torch",
        "confidence": "metadata",
    }


def test_from_torch_2_11_the_cuda_comes_from_the_metapackage_and_its_extras(stack):
    found = stack("torch-2.11/uv.lock")
    assert found["torch"] == "2.11.0"
    assert found["cuda"] == "13.0.2"
    assert found["cudnn"] == "9.19.0.56+cu13"
    assert found["cublas"].startswith("13.")


def test_an_explicit_index_gives_the_build_of_the_platform(stack):
    assert stack("torch-explicit/uv.lock")["torch"] == "2.4.1+cu121"


def test_on_arm_the_same_lock_has_no_nvidia_packages(read):
    reading = read("torch-2.4/uv.lock", target="linux aarch64 3.11")
    assert [o.component for o in reading.observations] == ["torch"]
    assert reading.open == ()  # the package index's wheel for that platform


def test_a_build_without_a_wheel_for_the_platform_stays_open(read):
    reading = read("torch-explicit/uv.lock", target="linux aarch64 3.11")
    assert reading.observations == ()
    assert "2.4.1+cu121 if a wheel exists for linux aarch64" in reading.open[0]


def test_windows_gets_no_linux_packages(stack):
    assert stack("torch-explicit/uv.lock", target="windows x86_64 3.11") == {"torch": "2.4.1+cu121"}


def test_what_only_an_extra_installs_is_said_and_not_assumed(read):
    reading = read("torch-conflicts/uv.lock")
    assert reading.observations == ()
    assert "extra cpu has torch 2.4.1+cpu" in reading.open[0]
    assert "extra cu124 has torch 2.4.1+cu124" in reading.open[0]


def test_jax_takes_its_cuda_from_its_plugin(stack):
    found = stack("jax/uv.lock")
    assert found["jax"] == "0.5.3+cuda12"
    assert found["cuda"].startswith("12.")


def test_tensorflow_with_cuda_is_read(stack):
    found = stack("tensorflow/uv.lock")
    assert (found["tensorflow"], found["cuda"], found["cudnn"]) == (
        "2.18.0",
        "12.5.82",
        "9.3.0.75+cu12",
    )


def test_vllm_brings_its_torch(stack):
    found = stack("vllm/uv.lock")
    assert (found["vllm"], found["torch"]) == ("0.6.3.post1", "2.4.0")


def test_a_framework_of_another_index_without_any_cuda_leaves_the_cuda_open(read, files):
    text = (files / "onnxruntime" / "uv.lock").read_text()
    assert read("uv.lock", text).open == ()
    elsewhere = text.replace("https://pypi.org/simple", "https://wheels.example/simple")
    reading = read("uv.lock", elsewhere)
    assert reading.observations[0].version == "1.20.2"
    assert "onnxruntime-gpu 1.20.2" in reading.open[0]


_FORKED = """version = 1
requires-python = ">=3.10"

[[package]]
name = "app"
version = "0.1.0"
source = { virtual = "." }
dependencies = [
    { name = "torch", version = "2.4.1", marker = "python_full_version < '3.12'" },
    { name = "torch", version = "2.5.1", marker = "python_full_version >= '3.12'" },
]

[[package]]
name = "torch"
version = "2.4.1"
source = { registry = "https://download.pytorch.org/whl/cu121" }

[[package]]
name = "torch"
version = "2.5.1"
source = { registry = "https://download.pytorch.org/whl/cu124" }
"""


@pytest.mark.parametrize(
    ("python", "version"),
    [("3.11", "2.4.1+cu121"), ("3.12", "2.5.1+cu124"), ("3.13.1", "2.5.1+cu124")],
)
def test_forks_are_settled_by_the_targets_python(stack, python, version):
    assert stack("uv.lock", _FORKED, target=f"linux x86_64 {python}")["torch"] == version


def test_without_a_python_forks_stay_open_with_their_conditions(read):
    reading = read("uv.lock", _FORKED, target="linux x86_64")
    assert reading.observations == ()
    assert reading.open == (
        "torch: 2.4.1 if python_full_version < '3.12' or 2.5.1 if python_full_version >= '3.12'; "
        "name the target's Python",
    )


def test_a_lock_for_another_python_is_a_conflict(read):
    conflict = read("uv.lock", _FORKED, target="linux x86_64 3.9").conflicts[0]
    assert (conflict.component, conflict.decided) == ("python", None)
    assert ">=3.10" in conflict.message


def test_a_newer_format_is_refused(read):
    with pytest.raises(BadInput, match="version 2"):
        read("uv.lock", _FORKED.replace("version = 1", "version = 2", 1))


def test_a_script_lock_is_read_from_its_manifest(stack):
    script = _FORKED.replace(
        _FORKED[_FORKED.index("[[package]]") : _FORKED.index('[[package]]\nname = "torch"')],
        '[manifest]\nrequirements = [{ name = "torch", specifier = "==2.4.1" }]\n\n',
    ).replace('version = "2.5.1"', 'version = "9.9.9"')
    script = script[: script.rindex("[[package]]")]
    assert stack("train.py.lock", script) == {"torch": "2.4.1+cu121"}
