"""The list of ``nvidia-smi -L``: the only form that names MIG profiles."""

from __future__ import annotations

import re

from msgspec.structs import replace

from compatgate.discovery.nvidia_smi.report import Device, Report, Slice

_GPU = re.compile(r"\s*GPU (\d+): (.+?) \(UUID:\s*([^)]*)\)?\s*")
_MIG = re.compile(r"\s*MIG (\d+c\.)?(\S+)\s+Device\s+\d+:(?:.*UUID:\s*([^)\s]+))?.*")


def parse(text: str) -> Report | None:
    """Read the list; None when there is none in the text."""
    devices: list[Device] = []
    for line in text.splitlines():
        if match := _GPU.fullmatch(line):
            devices.append(Device(match[2].strip(), bus=match[1], uuid=match[3].strip() or None))
        elif devices and (match := _MIG.fullmatch(line)):
            profile = f"{match[1] or ''}{match[2].lower()}"
            slices = (*devices[-1].slices, Slice(profile=profile, uuid=match[3]))
            devices[-1] = replace(devices[-1], mig=True, slices=slices)
    return Report("-L", devices=tuple(devices)) if devices else None
