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
from compatgate.discovery.probe import SCHEMA, read_probe
from targets.target import TESTS, Target

HEALTH_LINES = (
    "[1.0] NVRM: Xid (PCI:0000:01:00): 79, pid=7, name=a, GPU has fallen off the bus.\n",
    "NVRM: API mismatch: the client has the version 1.0, but\nNVRM: this kernel module has\n",
    '{"dmesg":[{"time":5.5,"msg":"NVRM: The NVIDIA GPU 0000:02:00.0 (PCI ID: 10de:2c58)"}]}\n',
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
