"""What a machine says of itself: ``nvidia-smi``, probes, ``version.json``."""

from __future__ import annotations

import json

from compatgate.catalog import load_facts
from compatgate.discovery.libraries import parse_version_file
from compatgate.discovery.nvidia_smi import parse_nvidia_smi
from compatgate.discovery.nvidia_smi.report import group_pools
from compatgate.discovery.probe import SCHEMA, read_probe
from targets.target import TESTS, Target


def targets() -> dict[str, Target]:
    """Readers of what is known of one machine."""
    probe = {
        "compatgate": SCHEMA,
        "pools": [{"name": "a", "gpu": "L4", "driver": "550.54.15"}],
        "stack": {"cuda": "12.4"},
    }
    version = b'{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}'
    return {
        "probe": Target(
            lambda data: read_probe(data.decode("utf-8", "replace")), [json.dumps(probe).encode()]
        ),
        "version.json": Target(
            lambda data: parse_version_file(data.decode("utf-8", "replace"), "version.json"),
            [version],
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
