"""Pretends to work: lines for bench/gpu.py where there is neither a GPU nor a clock to rely on."""

import argparse
import json
import os
import platform
import random

WORK = int(os.environ.get("BUSY_WORK", "1"))
SPEED = 400.0
NOISE = 0.01


def main():
    """Draw what a machine would measure that does so much work; nothing is timed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repetitions", type=int, default=30)
    options = parser.parse_args()
    say(type="env", driver=None, gpus=[], versions={"python": platform.python_version()}, paths={})
    draw = random.Random(f"{options.seed} {WORK}")
    values = [SPEED / WORK * draw.gauss(1, NOISE) for _ in range(options.repetitions)]
    say(type="metric", name="pretended", unit="MB/s", values=values)
    say(type="check", name="right", ok=True, message="nothing was computed")


def say(**members):
    """Print a line of the protocol."""
    print(json.dumps(members), flush=True)


if __name__ == "__main__":
    main()
