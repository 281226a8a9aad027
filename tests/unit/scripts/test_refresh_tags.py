"""Pythons and platforms, from the names of wheels."""

import pytest
from refresh.index import Bounds, is_for, is_later, python_of, pythons

from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.wheels.index import IndexFile

X86, ARM = Platform(), Platform(cpu="aarch64")


def wheels(*tags):
    return [IndexFile(f"pkg-1.0-{tag}.whl", "") for tag in tags]


def test_each_python_with_a_wheel_of_its_own_is_listed_in_order():
    found = wheels(
        "cp310-cp310-manylinux_2_28_x86_64",
        "cp39-cp39-manylinux_2_28_x86_64",
        "cp314-cp314t-manylinux_2_28_x86_64",
        "cp314-cp314-manylinux_2_28_x86_64",
        "cp315-cp315-manylinux_2_28_aarch64",
        "cp311-cp311-win_amd64",
        "cp312-none-manylinux_2_28_x86_64",
    )
    assert pythons(found, X86) == ["3.9", "3.10", "3.12", "3.14", "3.14t"]
    assert pythons(found, ARM) == ["3.15"]


def test_a_wheel_for_many_pythons_names_none():
    found = wheels("cp38-abi3-manylinux1_x86_64", "py3-none-manylinux_2_28_x86_64")
    assert pythons(found, X86) == []
    assert [python_of(wheel.name) for wheel in found] == [None, None]


def test_a_wheel_for_any_platform_is_for_each():
    (wheel,) = wheels("py3-none-any")
    assert is_for(wheel, X86)
    assert is_for(wheel, ARM)
    assert is_for(wheel, Platform("windows"))


@pytest.mark.parametrize(
    ("uploaded", "before", "expected"),
    [
        ("2026-05-03T10:00:00Z", "2026-05-01T10:00:00Z", True),
        ("2026-05-01T23:00:00Z", "2026-05-01T10:00:00Z", False),
        ("2026-05-03T10:00:00.123456Z", "2026-05-01T10:00:00", True),
        ("", "2026-05-01T10:00:00Z", False),
        ("yesterday", "2026-05-01T10:00:00Z", False),
        ("2026-05-03T10:00:00Z", "", False),
    ],
)
def test_later_is_more_than_the_time_that_one_upload_takes(uploaded, before, expected):
    assert is_later(uploaded, before) is expected


def test_a_release_is_asked_for_whatever_its_spelling():
    from packaging.version import Version

    bounds = Bounds(named={"pkg": frozenset({"1.0.0"})})
    assert bounds.names("pkg", Version("1.0"))
    assert not bounds.names("pkg", Version("1.1"))
    assert not bounds.names("other", Version("1.0"))
