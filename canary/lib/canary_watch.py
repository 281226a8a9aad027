"""Watch a host's GPUs through NVML while they work: Xid events, ECC errors, slowed clocks.

All three are the host's fault: a workload declares their checks in ``host_checks``. What NVML does
not tell is not reported, so that the step is inconclusive. Needs only Python 3.8.
"""

import contextlib
import time

import canary_lines as say
from canary_nvml import NoNvml, Nvml

_PAUSE = 1.0
"""Seconds between two queries of NVML."""


class HostWatch(contextlib.ExitStack):
    """Observer that is active during the block.

    Attributes:
        looks: number of queries while the GPUs worked; 0 without NVML.
        slowed: NVML's reason to the number of queries that saw the clocks slowed down for it.
        hottest: degrees Celsius; None if not known.
        xids: numbers of critical Xid events; None if they are not available.
    """

    def __init__(self):
        super().__init__()
        self._last = 0.0
        self.looks, self.slowed, self.hottest = 0, {}, None
        self.xids = self._nvml = None

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
        """Query the GPUs, at most once a second."""
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


def report(watching):
    """Print the checks ``xid``, ``ecc`` and ``throttling`` of what was seen."""
    if watching.xids is not None:
        numbers = ", ".join(map(str, sorted(set(watching.xids))))
        say.check("xid", not watching.xids, f"Xid {numbers}" if numbers else "none")
    errors = watching.new_errors()
    if errors is not None:
        said = f"{sum(errors.values())} uncorrected errors" if errors else "this GPU has no ECC"
        say.check("ecc", not any(errors.values()), said)
    if watching.looks:
        seen = ", ".join(f"{word} {count} times" for word, count in watching.slowed.items())
        heat = "" if watching.hottest is None else f", at most {watching.hottest} C"
        said = f"{seen or 'no slowdown'} in {watching.looks} looks{heat}"
        say.check("throttling", not watching.slowed, said)
