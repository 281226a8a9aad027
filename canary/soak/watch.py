"""Observe memory, repeatability of results and the host while the GPU works."""

import os

import torch
from canary_watch import HostWatch


class Watch(HostWatch):
    """Observer that is active during the block.

    Attributes:
        resident, allocated, used: bytes after each window: of the process, of PyTorch's tensors,
            and of the whole GPU.
        fingerprints: digests of each window.
    """

    def __init__(self, device):
        super().__init__()
        self._device = device
        self.resident, self.allocated, self.used, self.fingerprints = [], [], [], []

    def window(self, fingerprint):
        """Record the memory in use at the end of a window."""
        self.fingerprints.append(fingerprint)
        with open("/proc/self/statm", encoding="ascii") as file:
            self.resident.append(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
        if self._device.type == "cuda":
            free, total = torch.cuda.mem_get_info(self._device)
            self.allocated.append(torch.cuda.memory_allocated(self._device))
            self.used.append(total - free)
