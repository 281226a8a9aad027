"""What a machine says of itself: ``nvidia-smi``, probes, ``version.json``."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from compatgate.canary.health import read_log
from compatgate.canary.health.snapshot import parse_smi
from compatgate.catalog import load_facts
from compatgate.discovery.libraries import parse_version_file
from compatgate.discovery.machine import observe_machine
from compatgate.discovery.nvidia_smi import parse_nvidia_smi
from compatgate.discovery.nvidia_smi.report import group_pools
from compatgate.discovery.probe import SCHEMA, probe_output, read_probe
from targets.target import TESTS, Target

HEALTH_LINES = (
    "[1.0] NVRM: Xid (PCI:0000:01:00): 79, pid=7, name=a, GPU has fallen off the bus.\n",
    "NVRM: API mismatch: the client has the version 1.0, but\nNVRM: this kernel module has\n",
    '{"dmesg":[{"time":5.5,"msg":"NVRM: The NVIDIA GPU 0000:02:00.0 (PCI ID: 10de:2c58)"}]}\n',
)
JETSONS = (
    b"# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64\n"
    b"NVIDIA Jetson AGX Orin Developer Kit\0nvidia,p3737-0000+p3701-0000\0nvidia,tegra234\0",
    b"ii  nvidia-l4t-core  39.2.0-20260601141651  arm64\nii nvidia-jetpack 7.2-b184 arm64\n",
    b"RAM 3120/125772MB GR3D_FREQ @[1000,1000,1000] VDD_GPU_SOC 5139mW/5139mW/5139mW\n",
)


def targets() -> dict[str, Target]:
    """Readers of what is known of one machine."""
    probe = {
        "compatgate": SCHEMA,
        "pools": [{"name": "a", "gpu": "L4", "driver": "550.54.15"}],
        "stack": {"cuda": "12.4"},
    }
    facts = load_facts([])
    version = b'{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}'
    return {
        "probe": Target(
            lambda data: read_probe(data.decode("utf-8", "replace")), [json.dumps(probe).encode()]
        ),
        "version.json": Target(
            lambda data: parse_version_file(data.decode("utf-8", "replace"), "version.json"),
            [version],
        ),
        "health log": Target(
            lambda data: read_log(io.BytesIO(data), facts.xid, signatures=facts.error_signatures)[
                0
            ].events(),
            [line.encode() for line in HEALTH_LINES],
        ),
        "nvidia-smi state": Target(
            lambda data: parse_smi(data.decode("utf-8", "replace")),
            [path.read_bytes() for path in (TESTS / "fixtures" / "nvidia_smi").glob("xml-*.xml")],
        ),
        "files of a Jetson": Target(
            lambda data: probe_output(data.decode("utf-8", "replace"), facts), list(JETSONS)
        ),
        **_smi(),
        **_files(),
    }


_DEVICE = "sys/bus/pci/devices/0000:00:01.0"
_FILES = {
    "proc/driver/nvidia/version": b"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  1.2\n",
    "proc/driver/nvidia/gpus/0/information": b"Video BIOS: 96.00.89.00.01\n",
    "proc/sys/kernel/osrelease": b"6.8.0-45-generic\n",
    "etc/os-release": b'ID=ubuntu\nVERSION_ID="24.04"\n',
    "var/lib/dpkg/status": b"Package: nvlsm\nStatus: install ok installed\nVersion: 1:2.0-1\n\n",
    "sys/class/dmi/id/product_name": b"p5.48xlarge\n",
    f"{_DEVICE}/config": bytes(256) + b"\x0d\x00\x01\x10" + bytes(3836),
}


def _files() -> dict[str, Target]:
    """Each file of a machine in turn, below a root folder with the other ones as they are."""
    facts = load_facts([])

    def reader(name: str) -> Callable[[bytes], object]:
        def read(data: bytes) -> object:
            with TemporaryDirectory() as root:
                files = {**_FILES, f"{_DEVICE}/class": b"0x060400\n", name: data}
                for path, content in files.items():
                    (Path(root) / path).parent.mkdir(parents=True, exist_ok=True)
                    (Path(root) / path).write_bytes(content)
                return observe_machine(facts, ["H100-SXM5-80GB"], root=root)

        return read

    return {f"machine {name}": Target(reader(name), [_FILES[name]]) for name in _FILES}


def _smi() -> dict[str, Target]:
    folder = TESTS / "fixtures" / "nvidia_smi"
    gpus = load_facts([]).gpus

    def read(data: bytes) -> object:
        return group_pools(parse_nvidia_smi(data.decode("utf-8", "replace")), gpus)

    forms: dict[str, list[bytes]] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix not in (".md", ".yaml"):
            form = path.name.partition("-")[0]
            forms.setdefault(f"nvidia-smi {form}", []).append(path.read_bytes())
    return {name: Target(read, samples) for name, samples in forms.items()}
