"""Run one rank: a process with one GPU, as in production.

It exchanges lines of JSON with `program`. It reads one line, ``{"id": hex or null, "rank": 0,
"ranks": 2, ...}``. Rank 0 gets no id and creates it. Each rank writes the id, which shows that it
has started, and later its sums. A second line, ``{"time": true}``, asks for times.
Python 3.8 or newer.
"""

import hashlib
import json
import os
import struct
import sys
import time
from types import SimpleNamespace

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib"), HERE]

import canary_conditions as conditions  # noqa: E402
import canary_cuda  # noqa: E402
import canary_timing as timing  # noqa: E402
import nccl  # noqa: E402

ELEMENT = 4
SHIFT = 1000


def main():
    """Join the other ranks, check sums, and time."""
    order = json.loads(sys.stdin.readline())
    conditions.bind([order["gpu"]])
    conditions.watch([order["gpu"]])
    library = nccl.load()
    gpu = canary_cuda.Gpu(order["rank"])
    where = bytes.fromhex(order["id"]) if order["id"] else library.unique_id()
    _write(id=where.hex())
    group = library.join(where, order["rank"], order["ranks"])
    rank = Rank(library, gpu, group, order)
    _write(
        wrong=rank.check(),
        digests=[rank.digest() for _ in range(order["rounds"])],
    )
    wanted = order["sizes"] if json.loads(sys.stdin.readline())["time"] else []
    _write(
        times={str(size): rank.times(size) for size in wanted},
        problem=library.problem(group),
    )
    library.leave(group)


class Rank:
    """Steps of one rank, in the same order on all ranks."""

    def __init__(self, library, gpu, group, order):
        self._library, self._gpu, self._group, self._order = library, gpu, group, order
        most = max([*order["sizes"], order["checked"]])
        self._source, self._target = gpu.allocate(most), gpu.allocate(most)
        self._clock = canary_cuda.EventClock(gpu)

    def check(self):
        """Return the number of wrong sums of small whole numbers, which are exact in any order."""
        count = self._order["checked"] // ELEMENT
        ranks = self._order["ranks"]
        mine = [float((i + self._order["rank"] * SHIFT) % 65536) for i in range(count)]
        self._gpu.upload(self._source, struct.pack(f"<{count}f", *mine))
        self._reduce(self._order["checked"])
        found = struct.unpack(f"<{count}f", self._result())
        right = (sum((i + r * SHIFT) % 65536 for r in range(ranks)) for i in range(count))
        return sum(a != b for a, b in zip(found, right))

    def digest(self):
        """Return the digest of a sum of fractions, which depends on the order of summing."""
        count = self._order["checked"] // ELEMENT
        source = hashlib.shake_128(str((self._order["seed"], self._order["rank"])).encode())
        raw = struct.unpack(f"<{count}H", source.digest(2 * count))
        mine = struct.pack(f"<{count}f", *[n / 65536.0 - 0.5 for n in raw])
        self._gpu.upload(self._source, mine)
        self._reduce(self._order["checked"])
        return hashlib.sha256(self._result()).hexdigest()

    def times(self, size):
        """Return the members of `canary_timing.Times`; all ranks do the same number of calls."""
        options = SimpleNamespace(**self._order["options"])
        first = self._seconds(size, 1)
        at_least = timing.value_seconds(options)
        calls = timing.calls_for(self._mean(self._seconds(size, 1)), at_least)
        longest = timing.SETTLE_SECONDS[options.device] if options.warmup else 0.0
        end, warmup, clocks, rows = time.monotonic() + longest, [], [], []
        while self._mean(
            len(warmup) < options.warmup
            or (longest > 0 and not timing.is_steady(warmup, clocks) and time.monotonic() < end)
        ):
            warmup.append(self._seconds(size, calls))
            now = conditions.read()
            clocks.append(now and now["sm_mhz"])
        values = [
            self._seconds(size, calls, lambda: rows.append(conditions.read()))
            for _ in range(options.repetitions)
        ]
        settled = timing.is_steady(warmup, clocks) if longest else None
        return timing.Times(values, [first, *warmup], conditions.columns(rows), settled)

    def _seconds(self, size, calls, look=None):
        def batch():
            for _ in range(calls):
                self._reduce(size)

        return self._clock.seconds(batch, look) / calls

    def _mean(self, value):
        """Return the mean of the ranks' values, in the same bits on each."""
        self._gpu.upload(self._source, struct.pack("<f", value))
        self._reduce(ELEMENT)
        self._gpu.settle()
        total = struct.unpack("<f", self._gpu.download(self._target, ELEMENT))[0]
        return total / self._order["ranks"]

    def _reduce(self, size):
        count, stream = size // ELEMENT, self._gpu.stream
        self._library.all_reduce(self._group, self._source, self._target, count, stream)

    def _result(self):
        self._gpu.settle()
        return self._gpu.download(self._target, self._order["checked"])


def _write(**members):
    sys.stdout.write(json.dumps(members) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
