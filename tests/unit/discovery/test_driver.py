"""The loaded kernel driver, from /proc and /sys."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatgate.discovery.driver import (
    PROC,
    KernelDriver,
    parse_proc_version,
    parse_sys_version,
    read_kernel_driver,
)

PROPRIETARY = """\
NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024
GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)
"""
OPEN = """\
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.144.03  Release Build  \
(dvs-builder@U16-I3-D08-1-2)  Mon Dec 30 17:26:13 UTC 2024
GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)
"""
OLD = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  375.74  Wed Jun 14 01:39:39 PDT 2017\n"
JETSON = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  TempVersion  Release Build  "
    "(bugfix_main)  (buildbrain@x)  Tue Dec 30 15:54:35 PST 2025\n"
)


@pytest.mark.parametrize(
    ("text", "version", "is_open"),
    [(PROPRIETARY, "535.183.01", False), (OPEN, "550.144.03", True), (OLD, "375.74", False)],
)
def test_the_version_and_the_kind_of_module_are_read(
    text: str, version: str, is_open: bool
) -> None:
    assert parse_proc_version(text) == KernelDriver(version, is_open, PROC)


@pytest.mark.parametrize("text", ["", JETSON, "NVRM version: something else\n"])
def test_a_file_without_a_version_gives_none(text: str) -> None:
    assert parse_proc_version(text) is None


def test_the_module_version_in_sys_is_read() -> None:
    found = parse_sys_version("570.124.06\n")
    assert found is not None
    assert (found.version, found.open) == ("570.124.06", None)
    assert parse_sys_version("not loaded\n") is None


def test_sys_is_the_witness_where_proc_is_silent(tmp_path: Path) -> None:
    proc, sys = tmp_path / "version", tmp_path / "module"
    proc.write_text(JETSON)
    sys.write_text("540.4.0\n")
    found = read_kernel_driver(proc=str(proc), sys=str(sys))
    assert found is not None
    assert found.version == "540.4.0"


def test_without_a_module_there_is_no_driver(tmp_path: Path) -> None:
    assert read_kernel_driver(proc=str(tmp_path / "a"), sys=str(tmp_path / "b")) is None
