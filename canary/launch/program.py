"""Launch small kernels: cost on the host, round trip, gaps on the GPU, and a small copy."""

import ctypes
import os
import statistics
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_cuda  # noqa: E402
import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_program as program  # noqa: E402
import canary_timing as timing  # noqa: E402
import kernels  # noqa: E402

IN_A_ROW = 500
"""Launches that the driver queues without a wait; queues hold about a thousand."""
LONG_ROUNDS, LONG_LAUNCHES = 5_000, 50
ROUND_TRIPS = 5


def main():
    """Count that every launch ran, check that launches are asynchronous, then time them."""
    options = program.parser(__doc__, devices=("cuda",)).parse_args()
    settings = {name: os.environ[name] for name in kernels.SETTINGS if name in os.environ}
    canary_env.bare(options, settings=settings)
    gpu = canary_cuda.Gpu()
    counter = Counter(gpu)
    launches = {
        "launch": (Unsettled(gpu), counter.several),
        "round-trip": (timing.WallClock(gpu.settle), counter.round_trips),
        "back-to-back": (canary_cuda.EventClock(gpu), counter.several),
        "small-copy": (timing.WallClock(gpu.settle), Copies(gpu)),
    }
    progress = program.Steps(len(launches) + 1)
    _asynchronous(gpu)
    progress.done()
    for name, (clock, call) in launches.items():
        times = timing.repeat(call, clock, options)
        each = IN_A_ROW if call == counter.several else ROUND_TRIPS
        timing.report(name, "us", times, lambda seconds, each=each: seconds / each * 1e6)
        progress.done()
    ran, launched = counter.ran(), counter.launched
    say.check("all-ran", ran == launched % 2**32, f"{ran} of {launched} launches ran")


class Counter:
    """Kernel that adds one to a counter in the GPU's memory.

    Attributes:
        launched: number of launches so far.
    """

    def __init__(self, gpu):
        self._gpu, self.launched = gpu, 0
        self._memory = gpu.allocate(4)
        gpu.upload(self._memory, bytes(4))
        module = gpu.load(kernels.counting().encode())
        kernel = gpu.function(module, kernels.ENTRY)
        self._launch = gpu.prepared(kernel, 1, 1, ctypes.c_uint64(self._memory.value))

    def several(self):
        """Launch many times, without a wait."""
        launch = self._launch
        for _ in range(IN_A_ROW):
            launch()
        self.launched += IN_A_ROW

    def round_trips(self):
        """Launch and wait, a few times."""
        for _ in range(ROUND_TRIPS):
            self._launch()
            self._gpu.settle()
        self.launched += ROUND_TRIPS

    def ran(self):
        """Return the counter."""
        self._gpu.settle()
        return struct.unpack("<I", self._gpu.download(self._memory, 4))[0]


class Copies:
    """Copies of eight bytes from page-locked memory to the GPU, each with a wait."""

    def __init__(self, gpu):
        self._gpu, self._to, self._from = gpu, gpu.allocate(8), gpu.allocate_host(8)

    def __call__(self):
        """Copy and wait, a few times."""
        for _ in range(ROUND_TRIPS):
            self._gpu.call(
                "cuMemcpyHtoDAsync_v2", self._to, self._from, ctypes.c_size_t(8), self._gpu.stream
            )
            self._gpu.settle()


class Unsettled(timing.WallClock):
    """Clock of the host's part alone: it waits for the GPU between calls, untimed."""

    def __init__(self, gpu):
        super().__init__()
        self._gpu = gpu

    def seconds(self, call, look=None):
        """Time calls one by one, each from an empty queue."""
        self._gpu.settle()
        seconds = super().seconds(call, look)
        self._gpu.settle()
        return seconds


def _asynchronous(gpu):
    """Check that long kernels are queued: the host is done long before the GPU."""
    memory = gpu.allocate(4)
    module = gpu.load(kernels.counting(LONG_ROUNDS).encode())
    kernel = gpu.function(module, kernels.ENTRY)
    launch = gpu.prepared(kernel, 1, 1, ctypes.c_uint64(memory.value))
    launch()  # the first launch may load the module
    shares = []
    for _ in range(5):
        host, whole = timing.WallClock(), timing.WallClock(gpu.settle)
        queued = []

        def queue(host=host, queued=queued):
            queued.append(host.seconds(lambda: [launch() for _ in range(LONG_LAUNCHES)]))

        total = whole.seconds(queue)
        shares.append(queued[0] / total)
    share = statistics.median(shares)
    message = f"the host is done after {100 * share:.0f} % of the time that the GPU needs"
    say.check("asynchronous", share < 0.5, message)


if __name__ == "__main__":
    program.start(main)
