"""Copy and fill memory of the GPU and across the bus: bandwidth, and whether bytes arrive."""

import ctypes
import hashlib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_program as program  # noqa: E402
import canary_timing as timing  # noqa: E402
import places  # noqa: E402

SIZES = {"cuda": 256 << 20, "cpu": 8 << 20}
"""Bytes of one copy: several times any GPU's cache, and small enough for a small MIG slice."""
TRANSFERS = (
    ("device-copy", "copy", 2),
    ("device-fill", "fill", 1),
    ("host-to-device", "upload", 1),
    ("device-to-host", "download", 1),
)
"""Metric, operation, and how often each byte passes the measured memory."""


def main():
    """Check that bytes arrive, then time every direction."""
    options = program.options(__doc__)
    size = SIZES[options.device]
    canary_env.bare(options, bytes=size)
    place = places.Gpu(size) if options.device == "cuda" else places.Host(size)
    say.check("right", *_arrives(place, size, options.seed))
    say.check("filled", *_filled(place, size))
    progress = program.Steps(len(TRANSFERS))
    for name, operation, passes in TRANSFERS:
        times = timing.repeat(getattr(place, operation), place.clock, options)
        timing.report(name, "GB/s", times, timing.per_second(passes * size / 1e9))
        progress.done()
    # The timed buffers must still be right.
    say.check("right", *_arrives(place, size, options.seed + 1))
    say.check("filled", *_filled(place, size))


def _arrives(place, size, seed):
    """Copy from the host to both buffers and back, and compare the bytes."""
    block = hashlib.shake_128(str(seed).encode()).digest(1 << 20)
    # A counter in each block reveals two blocks that changed places.
    sent = b"".join(n.to_bytes(8, "little") + block[8:] for n in range(size >> 20))
    ctypes.memmove(place.outgoing, sent, size)
    ctypes.memset(place.incoming, 0, size)
    for step in (place.upload, place.copy, place.download):
        step()
    place.settle()
    came = ctypes.string_at(place.incoming, size)
    if came == sent:
        return True, f"{size >> 20} MiB arrived and returned unchanged"
    wrong = sum(came[at : at + 4096] != sent[at : at + 4096] for at in range(0, size, 4096))
    return False, f"{wrong} of {size >> 12} pages returned different"


def _filled(place, size):
    place.fill()
    place.download()
    place.settle()
    found = ctypes.string_at(place.incoming, size)
    right = found == places.FILL.to_bytes(4, "little") * (size >> 2)
    return right, "all words have the value" if right else "words have another value"


if __name__ == "__main__":
    program.start(main)
