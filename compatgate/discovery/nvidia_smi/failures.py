"""What the errors that ``nvidia-smi`` prints mean, and what to do on that host."""

from __future__ import annotations

import re

from compatgate.errors import BadInput

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
_LIBRARY = re.compile(r"NVML library version:\s*(\S+)")


def explain_failure(text: str) -> BadInput | None:
    """The error that was printed, in words; None when none is known in the text."""
    for pattern, problem, hint in _FAILURES:
        if re.search(pattern, text, re.IGNORECASE):
            if library := _LIBRARY.search(text):
                problem += f" (libraries {library[1]})"
            return BadInput(problem, hint=hint)
    return None
