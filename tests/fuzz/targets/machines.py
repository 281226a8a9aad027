"""What a machine says of itself: ``nvidia-smi``, probes, ``version.json``."""

from __future__ import annotations

import io
import json

from compatgate.canary.health import read_log
from compatgate.canary.health.smi import parse_smi
from compatgate.catalog import load_facts
from compatgate.discovery.libraries import parse_version_file
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
    }


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
