"""Read the output of ``nvidia-smi`` in any of its formats, or explain its error.

The table, ``-q``, ``-q -x``, ``--query-gpu=... --format=csv``, ``-L``, ``vgpu`` and ``vgpu -q``
are recognised by their form, and so is the report of ``torch.utils.collect_env``; a file may hold
several of them, and each supplies values that the others lack.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from compatgate.discovery.nvidia_smi import formats, vgpus
from compatgate.discovery.nvidia_smi.node_parts import find_host_parts
from compatgate.discovery.nvidia_smi.report import Report
from compatgate.errors import BadInput, CompatgateError

_PARSERS = (
    formats.parse_xml,
    formats.parse_report,
    formats.parse_list,
    formats.parse_torch_report,
    formats.parse_csv,
    formats.parse_table,
    vgpus.parse_vgpu_report,
    vgpus.parse_vgpu_table,
)
"""Parsers, the best witness of product names first: the table truncates names."""
LONGEST = 16 * 1024 * 1024
"""Characters of the longest accepted output; a host with 16 GPUs prints 2 MB of XML."""


def parse_nvidia_smi(text: str, *, origin: str = "nvidia-smi") -> Report:
    """Read the output of ``nvidia-smi``, its errors included; ignore surrounding text."""
    if len(text) > LONGEST:
        raise BadInput("is too long to be output of nvidia-smi", field=origin)
    if not text.strip():
        raise BadInput("is empty", field=origin, hint="give the output of nvidia-smi -q")
    text = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    reports = [report for parse in _PARSERS if (report := parse(text)) is not None]
    if not any(report.devices or report.guests for report in reports):
        raise _nothing_found(text, origin, reports)
    joined = Report.joined(reports)
    node = {**joined.node, **find_host_parts(text)}
    return replace(joined, node=node, host=joined.host or bool(vgpus.PROCESS.search(text)))


def _nothing_found(text: str, origin: str, reports: list[Report]) -> CompatgateError:
    if failure := explain_failure(text):
        return failure.at(origin)
    if reports:
        return BadInput(
            f"this output of nvidia-smi ({reports[0].form}) names no GPU",
            field=origin,
            hint="give the output of plain nvidia-smi, or of nvidia-smi -q without -d",
        )
    return BadInput(
        "is not output of nvidia-smi",
        field=origin,
        hint="give the output of nvidia-smi, nvidia-smi -q, nvidia-smi -q -x or nvidia-smi -L",
    )


_RELOAD = "reboot that host, or unload and load the nvidia modules, then run nvidia-smi again"
_FAILURES: tuple[tuple[str, str, str], ...] = (
    (
        r"couldn.?t communicate with the NVIDIA driver",
        "nvidia-smi could not reach the driver: no NVIDIA kernel module is loaded",
        "load or install the driver on that host (modprobe nvidia, dkms status), then try again",
    ),
    (
        r"Driver/library version mismatch",
        "the loaded kernel module and the driver libraries of that host are of different versions",
        _RELOAD,
    ),
    (
        r"couldn.?t find libnvidia-ml\.so",
        "nvidia-smi found no libnvidia-ml.so: the driver's libraries are missing, or not mounted",
        "install the driver, or start the container with its GPUs (--gpus all)",
    ),
    (
        r"GPU access blocked by the operating system",
        "the operating system blocks access to the GPU",
        "under WSL, update the Windows driver and wsl; elsewhere look for another GPU consumer",
    ),
    (
        r"GPU is lost",
        "a GPU of that host has fallen off the bus",
        "reboot that host and look for Xid messages in its kernel log (dmesg)",
    ),
    (
        r"Unable to determine the device handle",
        "nvidia-smi could not open a GPU of that host",
        "look for Xid messages in its kernel log (dmesg), then reset or reboot it",
    ),
    (
        r"Failed to initialize NVML: (?:Insufficient Permissions|GPU access)",
        "nvidia-smi lacks the permission to open the GPU",
        "run it with access to /dev/nvidia*",
    ),
    (
        r"Failed to initialize NVML: Unknown Error",
        "NVML could not be initialised: the container lost its GPU devices",
        "restart the container (systemd reloads drop its device rules), then run nvidia-smi again",
    ),
    (
        r"Failed to initialize NVML",
        "NVML could not be initialised: the driver does not answer",
        _RELOAD,
    ),
    (
        r"No devices (?:were )?found",
        "nvidia-smi found no GPU on that host",
        "check that the GPU is seated and passed through (lspci), and that the driver supports it",
    ),
    (
        r"nvidia-smi\b.{0,40}(?:not found|not recogni[sz]ed|No such file)",
        "nvidia-smi is not installed on that host",
        "install the NVIDIA driver, or describe the pool with --pool driver=..,gpu=..",
    ),
)
_LIBRARY_VERSION = re.compile(r"NVML library version:\s*(\S+)")


def explain_failure(text: str) -> BadInput | None:
    """Return the explanation of a known error in the text; None without one."""
    for pattern, problem, hint in _FAILURES:
        if re.search(pattern, text, re.IGNORECASE):
            if library := _LIBRARY_VERSION.search(text):
                problem += f" (libraries {library[1]})"
            return BadInput(problem, hint=hint)
    return None
