"""A machine is observed below an injected root; what is not seen stays unstated."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from compatgate.catalog import load_facts
from compatgate.core.facts import Facts
from compatgate.discovery.machine import ObservedMachine, Root, observe_machine
from compatgate.discovery.observations import ObservedPool

OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  "
    "(dvs-builder@host)  Tue Sep 23 10:11:16 UTC 2025\nGCC version:  gcc version 13.3.0\n"
)
PROPRIETARY = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC\n"
)
EFIVAR = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
PCI = "sys/bus/pci/devices"
GPU, OTHER_GPU, BRIDGE = f"{PCI}/0000:01:00.0", f"{PCI}/0000:02:00.0", f"{PCI}/0000:00:01.0"
DISPLAY = {"vendor": "0x10de\n", "class": "0x030200\n"}
DPKG = """\
Package: nvidia-fabricmanager-580
Status: install ok installed
Version: 580.95.05-1

Package: nvidia-container-toolkit
Status: install ok installed
Version: 1.17.8-1

Package: datacenter-gpu-manager-4-core
Status: install ok installed
Version: 1:4.2.3-1

Package: nvlsm
Status: deinstall ok config-files
Version: 2025.03.1-1
"""


@pytest.fixture(scope="module")
def facts() -> Facts:
    return load_facts([])


def folder(device: str, files: dict[str, str | bytes]) -> dict[str, str | bytes]:
    return {f"{device}/{name}": content for name, content in files.items()}


def config(control: int | None) -> bytes:
    """Return the configuration space of a bridge, with Access Control Services or without."""
    head = 0x0001 | 1 << 16 | (0x148 if control is not None else 0) << 20
    space = bytearray(4096)
    space[0x100:0x104] = head.to_bytes(4, "little")
    if control is not None:
        space[0x148:0x14C] = (0x000D | 1 << 16).to_bytes(4, "little")
        space[0x14E:0x150] = control.to_bytes(2, "little")
    return bytes(space)


BRIDGE_FILES: dict[str, str | bytes] = {"class": "0x060400\n"}
CASES: dict[str, tuple[dict[str, str | bytes], dict[str, str], dict[str, str], str]] = {
    # name: (files, printed by programs, node, words of a note)
    "nothing": ({}, {}, {}, ""),
    "open modules": ({"proc/driver/nvidia/version": OPEN}, {}, {"kernel-modules": "open"}, ""),
    "proprietary modules": (
        {"proc/driver/nvidia/version": PROPRIETARY},
        {},
        {"kernel-modules": "proprietary"},
        "",
    ),
    "nouveau": ({"sys/module/nouveau/refcnt": "1"}, {}, {"kernel-modules": "nouveau"}, ""),
    "nouveau besides nvidia": (
        {"proc/driver/nvidia/version": OPEN, "sys/module/nouveau/refcnt": "1"},
        {},
        {"kernel-modules": "open"},
        "has loaded nouveau in addition to",
    ),
    "a loaded module decides over the installed one": (
        {"proc/driver/nvidia/version": PROPRIETARY},
        {"modinfo": "Dual MIT/GPL\n"},
        {"kernel-modules": "proprietary"},
        "the first decides",
    ),
    "the installed module": ({}, {"modinfo": "NVIDIA\n"}, {"kernel-modules": "proprietary"}, ""),
    "Jetson prints no version": (
        {
            "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for "
            "aarch64  TempVersion  Release Build\n"
        },
        {},
        {},
        "",
    ),
    "kernel and distribution": (
        {
            "proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
            "etc/os-release": 'NAME="Ubuntu"\nVERSION_ID="24.04"\nID=ubuntu\nODD="\n',
        },
        {},
        {"kernel": "6.8.0-45-generic", "distribution": "ubuntu-24.04"},
        "",
    ),
    "a rolling distribution": (
        {"usr/lib/os-release": "ID=arch\nBUILD_ID=rolling\n"},
        {},
        {"distribution": "arch"},
        "",
    ),
    "a container's distribution is not the node's": (
        {
            ".dockerenv": "",
            "etc/os-release": "ID=debian\nVERSION_ID=12\n",
            "var/lib/dpkg/status": DPKG,
            "proc/sys/kernel/osrelease": "6.1.58+\n",
        },
        {},
        {"kernel": "6.1.58+"},
        "not the node's",
    ),
    "Secure Boot": ({EFIVAR: b"\x06\0\0\0\x01"}, {}, {"secure-boot": "on"}, ""),
    "no Secure Boot": ({EFIVAR: b"\x06\0\0\0\x00"}, {}, {"secure-boot": "off"}, ""),
    "a damaged variable": ({EFIVAR: b"\x06\0\0"}, {}, {}, ""),
    "peer memory": (
        {"sys/module/nvidia_peermem/version": "580.95.05"},
        {},
        {"peer-memory": "nvidia-peermem"},
        "",
    ),
    "versions in files": (
        {
            "opt/amazon/efa_installed_packages": "# EFA installer version: 1.38.0\n# Debug: no\n",
            "sys/module/mlx5_core/version": "24.10-0.7.0\n",
            "etc/nvidia-container-runtime/config.toml": '#mode = "csv"\nmode = "cdi"\n',
        },
        {},
        {"container-mode": "cdi", "ofed": "24.10-0.7.0", "efa": "1.38.0"},
        "",
    ),
    "the kernel's own mlx5 and mode auto": (
        {
            "sys/module/mlx5_core/version": "6.8.0-45-generic\n",
            "etc/nvidia-container-runtime/config.toml": 'mode = "auto"\n',
        },
        {},
        {},
        "",
    ),
    "one VBIOS": (
        {
            f"proc/driver/nvidia/gpus/{bus}/information": "Model: \t X\nVideo BIOS: \t "
            "96.00.89.00.01\nGPU Firmware: \t N/A\n"
            for bus in ("0000:01:00.0", "0000:02:00.0")
        },
        {},
        {"vbios": "96.00.89.00.01"},
        "",
    ),
    "two VBIOS": (
        {
            "proc/driver/nvidia/gpus/0000:01:00.0/information": "Video BIOS: 96.00.89.00.01\n",
            "proc/driver/nvidia/gpus/0000:02:00.0/information": "Video BIOS: 96.00.74.00.0D\n",
            "proc/driver/nvidia/gpus/0000:03:00.0/information": "Video BIOS: ??.??.??.??.??\n",
        },
        {},
        {},
        "VBIOS differs",
    ),
    "IOMMU on": (
        folder(GPU, {**DISPLAY, "iommu_group/type": "DMA-FQ\n"}),
        {},
        {"iommu": "on"},
        "",
    ),
    "IOMMU passes through": (
        {
            **folder(GPU, {**DISPLAY, "iommu_group/type": "identity\n"}),
            **folder(BRIDGE, {**BRIDGE_FILES, "iommu_group/type": "DMA\n", "config": b"x" * 64}),
        },
        {},
        {"iommu": "passthrough"},
        "",
    ),
    "no IOMMU": (
        {**folder(GPU, {**DISPLAY}), "sys/class/iommu/.keep": "", "sys/class/iommu": ""},
        {},
        {"iommu": "off"},
        "",
    ),
    "two modes of the IOMMU": (
        {
            **folder(GPU, {**DISPLAY, "iommu_group/type": "DMA\n"}),
            **folder(OTHER_GPU, {**DISPLAY, "iommu_group/type": "identity\n"}),
        },
        {},
        {},
        "in different ways",
    ),
    "ACS redirects": (
        folder(BRIDGE, {**BRIDGE_FILES, "config": config(0x1D)}),
        {},
        {"acs": "on"},
        "",
    ),
    "ACS off": (folder(BRIDGE, {**BRIDGE_FILES, "config": config(0)}), {}, {"acs": "off"}, ""),
    "no bridge has ACS": (folder(BRIDGE, {**BRIDGE_FILES, "config": config(None)}), {}, {}, ""),
    "ACS is for root to read": (
        folder(BRIDGE, {**BRIDGE_FILES, "config": b"\x86\x80" * 32}),
        {},
        {},
        "",
    ),
    "packages": (
        {"var/lib/dpkg/status": DPKG},
        {},
        {"fabric-manager": "580.95.05", "container-toolkit": "1.17.8", "dcgm": "4.2.3"},
        "",
    ),
    "two versions of a package": (
        {
            "var/lib/dpkg/status": DPKG + "\nPackage: nvidia-fabricmanager-570\n"
            "Status: install ok installed\nVersion: 570.172.08-1\n"
        },
        {},
        {"container-toolkit": "1.17.8", "dcgm": "4.2.3"},
        "several versions of fabric-manager",
    ),
    "programs": (
        {},
        {
            "nv-fabricmanager": "Fabric Manager version is : 580.95.05\n",
            "nvidia-imex": "IMEX version is: 580.95.05\n",
            "nvidia-ctk": "NVIDIA Container Toolkit CLI version 1.17.8\ncommit: f202b80a9b9d\n",
            "dcgmi": "\ndcgmi  version: 4.2.3\n\n",
            "ofed_info": "MLNX_OFED_LINUX-24.10-0.7.0.0:\n",
        },
        {
            "fabric-manager": "580.95.05",
            "imex": "580.95.05",
            "container-toolkit": "1.17.8",
            "dcgm": "4.2.3",
            "ofed": "24.10-0.7.0.0",
        },
        "",
    ),
    "an early toolkit": (
        {},
        {"nvidia-ctk": "NVIDIA Container Toolkit CLI version 1.18.0-rc.1\n"},
        {"container-toolkit": "1.18.0-rc.1"},
        "",
    ),
    "a program that prints something else": (
        {},
        {"dcgmi": "error while loading shared libraries: libdcgm.so.4\n"},
        {},
        "dcgmi --version prints no version",
    ),
    "a program and a package disagree": (
        {"var/lib/dpkg/status": DPKG},
        {"nv-fabricmanager": "Fabric Manager version is : 570.172.08\n"},
        {"fabric-manager": "570.172.08", "container-toolkit": "1.17.8", "dcgm": "4.2.3"},
        "the first decides",
    ),
    "a kernel that is none": (
        {"proc/sys/kernel/osrelease": "\x1b[31mred\n"},
        {},
        {},
        "no value of it",
    ),
}


def build(root: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        if any(other.startswith(f"{name}/") for other in files):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        if path.name == ".keep":
            path.unlink()


def observe(root: Path, facts: Facts, printed: dict[str, str]) -> ObservedMachine:
    def run(arguments: Sequence[str]) -> str | None:
        return printed.get(arguments[0])

    return observe_machine(facts, [], root=str(root), run=run)


def test_each_part_is_read_where_the_machine_keeps_it(tmp_path: Path, facts: Facts) -> None:
    for number, (name, (files, printed, node, note)) in enumerate(CASES.items()):
        root = tmp_path / str(number)
        root.mkdir()
        build(root, files)
        found = observe(root, facts, printed)
        assert found.node == node, name
        assert bool(found.notes) is bool(note), (name, found.notes)
        assert note in "; ".join(found.notes), name
        assert {o.component for o in found.observations} >= set(node), name


def test_a_database_of_rpm_names_packages_and_a_damaged_one_is_noted(
    tmp_path: Path, facts: Facts
) -> None:
    place = tmp_path / "var/lib/rpm"
    place.mkdir(parents=True)
    (place / "rpmdb.sqlite").write_bytes(b"no database")
    assert any("cannot be read" in note for note in observe(tmp_path, facts, {}).notes)
    (place / "rpmdb.sqlite").unlink()
    with sqlite3.connect(place / "rpmdb.sqlite") as database:
        database.execute("create table Packages (hnum integer primary key, blob blob not null)")
    assert observe(tmp_path, facts, {}).notes == ()


def test_dmi_and_the_device_tree_tell_the_platform(tmp_path: Path, facts: Facts) -> None:
    dmi = "sys/class/dmi/id"
    tree = "proc/device-tree/model"
    for number, (files, gpus, platform) in enumerate(
        (
            ({f"{dmi}/sys_vendor": "Amazon EC2\n", f"{dmi}/product_name": "p5.48xlarge\n"}, [],
             "aws/p5"),
            ({f"{dmi}/sys_vendor": "NVIDIA\n", f"{dmi}/product_name": "DGXH100\n"}, [], "dgx/h100"),
            ({f"{dmi}/sys_vendor": "Google\n", f"{dmi}/product_name": "Google Compute Engine\n"},
             ["GB200"], "gcp/a4x"),
            ({f"{dmi}/sys_vendor": "Google\n", f"{dmi}/product_name": "Google Compute Engine\n"},
             ["H100-SXM5-80GB"], "gcp"),
            ({f"{dmi}/sys_vendor": "Microsoft Corporation\n",
              f"{dmi}/product_name": "Virtual Machine\n",
              f"{dmi}/chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77\n"}, ["GB200"],
             "azure/ndgb200"),
            ({f"{dmi}/sys_vendor": "QEMU\n", f"{dmi}/product_name": "Standard PC\n"}, [], None),
            ({tree: "NVIDIA Jetson AGX Orin Developer Kit\0"}, [], "jetson/orin"),
            ({}, ["GB200"], None),
        )
    ):  # fmt: skip
        root = tmp_path / str(number)
        root.mkdir()
        build(root, dict(files))
        found = observe_machine(facts, gpus, root=str(root), run=lambda _: None)
        assert found.platform == platform, files


def test_no_program_of_another_root_is_run(tmp_path: Path, facts: Facts) -> None:
    assert observe_machine(facts, [], root=str(tmp_path)) == ObservedMachine()
    assert Root("/").is_here
    assert not Root(str(tmp_path)).is_here


def test_what_a_pool_states_of_its_gpus_decides_over_the_machine() -> None:
    pool = ObservedPool("l4", "L4", node=(("vbios", "95.04.29.00.06"),))
    seen = pool.on_machine({"vbios": "95.04.29.00.01", "kernel": "6.8.0"}, "aws/g6")
    assert seen.node == (("kernel", "6.8.0"), ("vbios", "95.04.29.00.06"))
    assert seen.platform == "aws/g6"
