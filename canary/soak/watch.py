"""Observe NVML, memory, and repeatability of results while the GPU works."""

import contextlib
import os
import time

import torch
from canary_nvml import NoNvml, Nvml

_PAUSE = 1.0
"""Seconds between two queries of NVML."""


class Watch(contextlib.ExitStack):
    """Observer that is active during the block.

    Attributes:
        looks: number of queries while the GPU worked; 0 without NVML.
        slowed: NVML's reason to the number of queries that saw the clocks slowed down for it.
        hottest: degrees Celsius; None if not known.
        xids: numbers of critical Xid events; None if they are not available.
        resident, allocated, used: bytes after each window: of the process, of PyTorch's tensors,
            and of the
            whole GPU.
        fingerprints: digests of each window.
    """

    def __init__(self, device):
        super().__init__()
        self._device = device
        self._last = 0.0
        self.looks, self.slowed, self.hottest = 0, {}, None
        self.xids = self._nvml = None
        self.resident, self.allocated, self.used, self.fingerprints = [], [], [], []

    def __enter__(self):
        """Start; NVML's counters count from here."""
        super().__enter__()
        with contextlib.suppress(NoNvml):
            self._nvml = self.enter_context(Nvml())
            self._gpus = self._nvml.devices()
            self._events = self._nvml.watch_xids()
            self.xids = None if self._events is None else []
            self._errors = self._uncorrected()
        return self

    def look(self):
        """Query the GPU, at most once a second."""
        if self._nvml is None or time.monotonic() - self._last < _PAUSE:
            return
        self._last = time.monotonic()
        reasons = [self._nvml.slowdowns(gpu) for gpu in self._gpus]
        if None not in reasons:
            self.looks += 1
            for word in {word for part in reasons for word in part}:
                self.slowed[word] = self.slowed.get(word, 0) + 1
        degrees = [self._nvml.temperature(gpu) for gpu in self._gpus]
        self.hottest = max([d for d in (*degrees, self.hottest) if d is not None], default=None)
        if self.xids is not None:
            self.xids += self._nvml.xids(self._events)

    def window(self, fingerprint):
        """Record the memory in use at the end of a window."""
        self.fingerprints.append(fingerprint)
        with open("/proc/self/statm", encoding="ascii") as file:
            self.resident.append(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
        if self._device.type == "cuda":
            free, total = torch.cuda.mem_get_info(self._device)
            self.allocated.append(torch.cuda.memory_allocated(self._device))
            self.used.append(total - free)

    def new_errors(self):
        """Return the uncorrected ECC errors since the start, by GPU; None without NVML.

        A GPU without ECC counters is left out.
        """
        if self._nvml is None:
            return None
        now = self._uncorrected()
        return {gpu: now.get(gpu, before) - before for gpu, before in self._errors.items()}

    def _uncorrected(self):
        counts = {self._nvml.pci(gpu): self._nvml.uncorrected(gpu) for gpu in self._gpus}
        return {gpu: count for gpu, count in counts.items() if count is not None}
