"""Find out how two processes share the GPU here. Python 3.8 or newer."""

import os
import stat
from collections import namedtuple

from canary_nvml import NoNvml, Nvml

Mode = namedtuple("Mode", "kind slice")
"""Fields: ``mig``, ``mps``, ``time slices`` or ``cpu``; UUID of the neighbour's MIG slice, or None.

``mig`` is said only where the neighbour has a slice of its own.
"""
_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_USUAL_PIPES = "/tmp/nvidia-mps"  # noqa: S108


def find_mode(device):
    """Return how a neighbour of this program would share the GPU.

    A second MIG slice of the same GPU that this container may use becomes the neighbour's.
    """
    if device == "cpu":
        return Mode("cpu", None)
    slices = _slices()
    if len(slices) > 1:
        return Mode("mig", slices[1])
    return Mode("mps" if _has_mps() else "time slices", None)


def _slices():
    """Return the UUIDs of the visible MIG slices of the first GPU that has any.

    CUDA gives a process the first of them.
    """
    try:
        with Nvml() as nvml:
            for gpu in nvml.devices():
                found = [nvml.describe(part)["uuid"] for part in nvml.slices(gpu)]
                if found:
                    return [uuid for uuid in found if uuid]
    except NoNvml:
        pass
    return []


def _has_mps():
    """Return whether an MPS control daemon listens: CUDA finds it by its pipe."""
    pipe = os.path.join(os.environ.get(_PIPES) or _USUAL_PIPES, "control")
    try:
        return stat.S_ISFIFO(os.stat(pipe).st_mode) or stat.S_ISSOCK(os.stat(pipe).st_mode)
    except OSError:
        return False
