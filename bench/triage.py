"""How long triage takes for a text, in turns with the code of another folder.

``python bench/triage.py [--before FOLDER] [--rounds 3]``. FOLDER is a check-out of the state
before; its own facts are used. Seconds of processor time for: the first text (signatures are
prepared), a quarter of the texts of ``tests/conformance`` one by one, and one megabyte each of
such texts, of prose and of a training log.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
KINDS = ("first", "texts", "errors", "prose", "log")
PROGRAM = """
import json, sys, time, yaml
from pathlib import Path
from compatgate.catalog import load_facts
from compatgate.core.triage import find_causes

tests = Path(sys.argv[1], "tests", "conformance")
files = [*sorted(tests.glob("triage/*.yaml")), *sorted(tests.glob("blind/texts*.yaml"))]
texts = [one["text"] for path in files for one in yaml.load(path.read_bytes(), yaml.CSafeLoader)]
prose = Path(sys.argv[1], "docs", "explanation", "truth.md").read_text(encoding="utf-8")
line = "2026-03-01 12:{0:02} INFO step {0} loss 0.{0:05} gpu memory {0} of 80 GB cuda:0"
log = "\\n".join(line.format(number) for number in range(15000))
table = load_facts(overlays=[]).error_signatures
texts = [["x"], texts[::4], ["\\n".join(texts * 4)[:1_000_000]], [(prose * 40)[:1_000_000]]]
took = []
for kind in [*texts, [log[:1_000_000]]]:
    began = time.process_time()
    for text in kind:
        find_causes(text, table)
    took.append(time.process_time() - began)
print(json.dumps(took))
"""


def measure(folder: Path) -> list[float]:
    """Return the seconds of each kind with the code and the facts of a folder."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ROOT)],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    return list(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    folders = [arguments.before.resolve(), ROOT] if arguments.before else [ROOT]
    rounds = [[measure(folder) for folder in folders] for _ in range(arguments.rounds)]
    for number, kind in enumerate(KINDS):
        sides = [
            statistics.median(turn[side][number] for turn in rounds) for side in range(len(folders))
        ]
        ratio = f"  ratio {sides[-1] / sides[0]:.2f}" if len(sides) > 1 else ""
        print(f"{kind:7}" + "".join(f"{seconds:8.3f} s" for seconds in sides) + ratio)


if __name__ == "__main__":
    main()
