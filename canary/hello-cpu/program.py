"""Compute and check hashes on the CPU: the whole path of a canary run without a GPU."""

import argparse
import hashlib
import os
import platform
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_lines as say  # noqa: E402

# FIPS 180-2, appendix B.1: the digest of "abc".
KNOWN = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
BLOCK = 4 << 20
WARMUP, REPETITIONS = 3, 30


def main():
    """Report the environment, then measure and check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed

    say.env(versions={"python": platform.python_version()}, paths={"python": sys.executable})
    say.check("digest", hashlib.sha256(b"abc").hexdigest() == KNOWN, "SHA-256 of abc")
    block = hashlib.shake_128(str(seed).encode()).digest(BLOCK)
    times, digests = [], set()
    for done in range(WARMUP + REPETITIONS):
        begin = time.perf_counter()
        digests.add(hashlib.sha256(block).hexdigest())
        times.append((time.perf_counter() - begin) * 1000)
        say.progress((done + 1) / (WARMUP + REPETITIONS))
    say.metric("hash-time", "ms", times[WARMUP:], warmup=times[:WARMUP])
    say.check("repeatable", len(digests) == 1, f"{len(digests)} different digests")
    say.check("scratch", *_scratch(block))


def _scratch(block):
    try:
        with tempfile.TemporaryFile() as file:
            file.write(block)
            file.seek(0)
            return file.read() == block, "4 MiB written and read"
    except OSError as error:
        return False, str(error)


if __name__ == "__main__":
    main()
