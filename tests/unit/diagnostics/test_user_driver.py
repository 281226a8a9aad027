"""What a loaded libcuda means: the host's own driver, or forward compatibility."""

from __future__ import annotations

from compatgate.diagnostics.document import find_user_driver
from compatgate.diagnostics.loaded import Library


def libcuda(path: str, version: str | None = None, reported: str | None = None) -> list[Library]:
    asked = "cuDriverGetVersion" if reported else ""
    return [Library("driver-cuda", path, version, None, reported, asked)]


def test_the_hosts_own_libcuda_says_nothing_new() -> None:
    found = find_user_driver(
        libcuda("/usr/lib/libcuda.so.550.54.15", "550.54.15", "12.4"), "550.54.15"
    )
    assert (found.compat, found.conflicts, found.open) == (None, (), ())


def test_a_newer_libcuda_is_forward_compatibility() -> None:
    found = find_user_driver(
        libcuda("/usr/lib/libcuda.so.555.42.06", "555.42.06", "12.5"), "535.104.05"
    )
    assert found.compat
    assert (found.compat.component, found.compat.version) == ("cuda-compat", "12.5")


def test_a_libcuda_from_the_package_is_forward_compatibility() -> None:
    path = "/usr/local/cuda-12.5/compat/libcuda.so.555.42.06"
    found = find_user_driver(libcuda(path, "555.42.06"), None)
    assert found.compat
    assert found.compat.version == "12.5"


def test_which_cuda_a_newer_libcuda_brings_may_be_open() -> None:
    found = find_user_driver(libcuda("/x/libcuda.so.555.42.06", "555.42.06"), "535.104.05")
    assert found.compat is None
    assert "is loaded over driver 535.104.05" in found.open[0]


def test_an_older_libcuda_contradicts_the_kernel_driver() -> None:
    found = find_user_driver(libcuda("/x/libcuda.so.470.42.01", "470.42.01", "11.4"), "535.104.05")
    assert "older than kernel driver 535.104.05" in found.conflicts[0].message


def test_without_libcuda_or_with_an_unnumbered_one_nothing_is_concluded() -> None:
    assert find_user_driver([], "535.104.05").compat is None
    assert find_user_driver(libcuda("/x/libcuda.so.1"), "535.104.05").compat is None
