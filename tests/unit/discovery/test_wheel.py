"""Wheels are read in place, and refused where they contradict themselves."""

from __future__ import annotations

import zipfile
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compatgate.discovery.local import inspect_path
from compatgate.errors import BadInput, CompatgateError, DamagedContent

_METADATA = "Metadata-Version: 2.1\nName: {}\nVersion: {}\n{}\nText: not a header\n"


@pytest.fixture
def make(tmp_path):
    def make(name="flash_attn", version="2.6.3", requires=(), **members: bytes):
        path = tmp_path / f"{name}-{version}-cp311-cp311-linux_x86_64.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
            folder = f"{name}-{version}.dist-info"
            pins = "".join(f"Requires-Dist: {text}\n" for text in requires)
            wheel.writestr(f"{folder}/METADATA", _METADATA.format(name, version, pins))
            for member, data in members.items():
                wheel.writestr(member.replace("__", "/").replace("DOT", "."), data)
        return path

    return make


def test_a_wheel_names_its_distribution_and_its_code(make, library):
    path = make(flash__codeDOTso=library(80, 90), flash__textDOTpy=b"x = 1")
    inspection = inspect_path(str(path))
    assert inspection.stack == {"flash-attn": "2.6.3", "arch": ["sm_80", "sm_90"]}
    assert inspection.observations[-1].origin == f"{path.name}: flash/code.so"


def test_a_wheel_of_nvidia_names_its_component_with_the_cuda_of_its_name(make):
    path = make("nvidia_cudnn_cu12", "9.1.0.70", nvidia__cudnn__lib__libcudnnDOTsoDOT9=b"\x7fELF")
    with pytest.raises(BadInput, match=r"libcudnn\.so\.9"):
        inspect_path(str(path))
    path = make("nvidia_cudnn_cu12", "9.1.0.70", nvidia__cudnn__lib__libcudnnDOTsoDOT9=b"")
    inspection = inspect_path(str(path))
    assert inspection.stack == {"cudnn": "9.1.0.70+cu12"}
    assert inspection.conflicts == ()


@pytest.mark.parametrize(
    ("requirement", "cuda"),
    [
        ('nvidia-cuda-runtime-cu12==12.8.90; platform_system == "Linux"', "12.8.90"),
        ('cuda-toolkit[cublas,cudart]==13.2.2; platform_system == "Linux"', "13.2.2"),
        ("nvidia-cuda-runtime (==13.0.96)", "13.0.96"),
        ("nvidia-cuda-runtime-cu12>=12.1", None),
        ('nvidia-cuda-runtime-cu12==12.8.90; extra == "cuda"', None),
        ("nvidia-cuda-runtime-numba==1.0", None),
    ],
)
def test_the_runtime_that_a_wheel_pins_is_its_cuda(make, requirement, cuda):
    inspection = inspect_path(str(make("torch", "2.15.0", requires=[requirement])))
    assert inspection.stack.get("cuda") == cuda


def test_the_runtime_that_a_wheel_pins_decides_over_the_compiler_of_some_code(make, library):
    path = make("torch", "2.15.0", ["cuda-toolkit==13.2.2"], torch__codeDOTso=library(90))
    assert inspect_path(str(path)).stack["cuda"] == "13.2.2"


def test_another_distribution_has_only_its_code(make, library):
    assert inspect_path(str(make("some_kernels", "1.0", xDOTso=library(75)))).stack == {
        "arch": ["sm_75"]
    }


def test_a_library_that_is_none_is_passed_over(make):
    assert inspect_path(str(make(xDOTso=b"GROUP ( libx.so.1 )"))).stack == {"flash-attn": "2.6.3"}


def test_damaged_code_names_the_member(make, library):
    with pytest.raises(BadInput, match=r"x\.so: damaged or truncated at byte"):
        inspect_path(str(make(xDOTso=library(80)[:-64])))


def test_a_member_whose_checksum_is_wrong_is_damage(make, library):
    path = make(xDOTso=library(80) * 3)
    data = bytearray(path.read_bytes())
    place = data.rindex(b"PK\x01\x02") + 16
    data[place : place + 4] = b"\1\2\3\4"
    path.write_bytes(data)
    with pytest.raises(BadInput):
        inspect_path(str(path))


def test_a_library_that_is_not_the_one_in_the_record_is_refused(make, library):
    wrong = b"x.so,sha256=" + b"A" * 43 + b",1\n"
    path = make(xDOTso=library(80), **{"flash_attn-2DOT6DOT3DOTdist-info__RECORD": wrong})
    with pytest.raises(DamagedContent, match="RECORD"):
        inspect_path(str(path))


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"no zip file", bytes(1000)])
def test_something_else_called_a_wheel_is_refused(data, tmp_path):
    path = tmp_path / "x-1-py3-none-any.whl"
    path.write_bytes(data)
    with pytest.raises(BadInput, match="is not a wheel"):
        inspect_path(str(path))


def test_a_zip_file_without_metadata_is_no_wheel(tmp_path):
    path = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("x.py", "x = 1")
    with pytest.raises(BadInput, match="not a wheel"):
        inspect_path(str(path))


@given(damage=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_wheel_gives_an_answer_or_an_error_that_explains_itself(make, library, damage):
    path = make(xDOTso=library(80))
    data = bytearray(path.read_bytes())
    for place, value in damage:
        data[place % len(data)] = value
    path.write_bytes(data)
    with suppress(CompatgateError):
        assert inspect_path(str(path)).stack


def test_a_name_that_is_no_text_is_damage(make):
    path = make()
    data = path.read_bytes().replace(b"METADATA", b"M\xff\xffADATA")
    flags = data.rindex(b"PK\x01\x02") + 8
    path.write_bytes(data[:flags] + b"\x00\x08" + data[flags + 2 :])
    with pytest.raises(BadInput, match="damaged"):
        inspect_path(str(path))


def test_every_truncation_of_a_wheel_is_refused(make, library, tmp_path):
    whole = make(xDOTso=library(80)).read_bytes()
    path = tmp_path / "y-1-py3-none-any.whl"
    for length in range(len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(BadInput):
            inspect_path(str(path))
