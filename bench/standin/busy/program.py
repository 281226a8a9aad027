"""Hashes bytes: work for bench/gpu.py where there is neither a GPU nor PyTorch."""

import argparse
import hashlib
import json
import os
import platform
import time

SIZE = 1 << 18
WORK = int(os.environ.get("BUSY_WORK", "1"))


def main():
    """Hash again and again; the time is the thread's own, which other processes do not lengthen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repetitions", type=int, default=30)
    options = parser.parse_args()
    say(type="env", driver=None, gpus=[], versions={"python": platform.python_version()}, paths={})
    content = bytes([options.seed % 256]) * SIZE
    values, digests = [], set()
    for _ in range(options.repetitions):
        begin = time.thread_time()
        for _ in range(WORK):
            digests.add(hashlib.sha256(content).hexdigest())
        values.append(SIZE / 1e6 / (time.thread_time() - begin))
    say(type="metric", name="hashing", unit="MB/s", values=values)
    say(type="check", name="right", ok=len(digests) == 1, message=f"{len(digests)} digests")


def say(**members):
    """Print a line of the protocol."""
    print(json.dumps(members), flush=True)


if __name__ == "__main__":
    main()
