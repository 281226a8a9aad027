"""Train a dictionary for verdicts: ``python scripts/train_verdict_dictionary.py NUMBER``.

Verdicts repeat rules, messages, sources and names, so a Zstandard dictionary halves what a new one
takes in the database, and more. The script evaluates every build of every framework that the facts
know, with packages, on GPUs and drivers of data centers, and trains on the verdicts. What differs
between installations (targets, images, digests) is drawn at random, to leave no room to it.

The file is verdicts_NUMBER.zdict in compatgate/service/gate/questions. A dictionary that verdicts
were packed with is never written again and never removed: take the next number, add its line to
`DICTIONARIES` in verdict_bodies.py there, and measure with bench/decision_size.py.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import zstandard
from msgspec.structs import replace

from compatgate.catalog import load_facts
from compatgate.core.components import FRAMEWORKS, canonical_name
from compatgate.core.constraints import parse_constraint
from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts
from compatgate.core.matrix import Entry, EntryIndex, Matrix
from compatgate.core.performance import sha256
from compatgate.core.request import Policy, Pool, Target, parse_pool
from compatgate.core.stack import parse_stack
from compatgate.resources import matrix_dir
from compatgate.service.gate.questions.verdict_bodies import FIRST_NUMBER, LEVEL, dictionary_path

BYTES = 64 * 1024
VERDICTS_PER_BUILD = 4
GPUS = (
    *("A10", "A100-PCIE-40GB", "A100-SXM4-40GB", "A100-SXM4-80GB", "A30", "A40", "B200"),
    *("GH200-480GB", "GeForce-RTX-3090", "GeForce-RTX-4090", "GeForce-RTX-5090"),
    *("H100-PCIe-80GB", "H100-SXM5-80GB", "H200-SXM-141GB", "L4", "L40", "L40S", "RTX-A6000"),
    *("T4", "V100-SXM2-32GB"),
)
DRIVERS = (
    *("470.256.02", "525.147.05", "535.183.01", "535.247.01", "550.90.07", "550.163.01"),
    *("560.35.05", "565.57.01", "570.172.08", "575.57.08", "580.65.06", "580.95.05", "590.48.01"),
)
PYTHONS = ("3.8", "3.9", "3.10", "3.10.12", "3.11", "3.12", "3.12.3")
OTHERS: dict[str, tuple[Any, ...]] = {
    "cuda": ("11.8", "12.1", "12.4", "12.6", "12.8", "13.0"),
    "cudnn": ("8.9.7", "9.1.0", "9.10.2"),
    "nccl": ("2.20.5", "2.26.2", "2.27.3"),
    "arch": (["sm_80"], ["sm_90"], ["sm_80", "sm_90", "compute_90"]),
}
PLACES = ("dev", "inference", "prod", "serve", "staging", "train")
YEAR_SECONDS = 365 * 86_400


class Drawing:
    """Draw verdicts, the same ones each time."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._random = random.Random(1)  # noqa: S311 - the same verdicts each time
        names = sorted(path.stem for path in (matrix_dir() / "facts" / "packages").glob("*.yaml"))
        self._packages = [
            name for name in names if self._is_other(name) and facts.recorded_versions(name)
        ]

    @staticmethod
    def _is_other(name: str) -> bool:
        """Return whether a package can stand beside every framework."""
        return canonical_name(name) == name and name not in FRAMEWORKS

    def verdicts(self) -> Iterator[bytes]:
        """Yield the JSON of verdicts."""
        for name in sorted(FRAMEWORKS):
            framework = self._facts.framework(name)
            for release in framework.releases if framework else ():
                for build in release.builds:
                    label = f"+{build.label}" if build.label else ""
                    for _ in range(VERDICTS_PER_BUILD):
                        yield self._verdict({name: f"{release.version}{label}"})

    def _verdict(self, stack: dict[str, Any]) -> bytes:
        target = self._target()
        verdict = evaluate(
            parse_stack({**stack, **self._rest()}),
            target,
            facts=self._facts,
            matrix=self._matrix(target.name),
            now=datetime(2026, 1, 1, tzinfo=UTC)
            + timedelta(seconds=self._random.randrange(YEAR_SECONDS)),
        )
        image = f"r{self._random.getrandbits(32)}/app@sha256:{self._digest()}"
        verdict = replace(
            verdict,
            id=f"vd_{self._digest()[:32]}",
            image=image,
            facts=f"sha256:{self._digest()}",
        )
        return msgspec.json.encode(verdict.to_json())

    def _rest(self) -> dict[str, Any]:
        """Draw what else a stack states: Python, CUDA, packages."""
        draw = self._random
        found: dict[str, Any] = {}
        if draw.random() < 0.6:
            found["python"] = draw.choice(PYTHONS)
        for name, some in OTHERS.items():
            if draw.random() < 0.25:
                found[name] = draw.choice(some)
        for name in draw.sample(self._packages, draw.choice((0, 0, 1, 2))):
            versions = sorted(map(str, self._facts.recorded_versions(name)))
            found.setdefault(name, draw.choice(versions))
        return found

    def _target(self) -> Target:
        draw = self._random
        pools = tuple(self._pool(number) for number in range(draw.choice((1, 1, 1, 2))))
        name = f"{draw.choice(PLACES)}-{draw.randrange(1000)}"
        return Target(name, pools, Policy(require_entry=draw.random() < 0.5))

    def _pool(self, number: int) -> Pool:
        draw = self._random
        body = {
            "name": f"p{draw.randrange(1000)}-{number}",
            "gpu": draw.choice(GPUS),
            "driver": draw.choice(DRIVERS),
            "count": draw.randrange(1, 500),
        }
        return parse_pool(body, self._facts.gpus)

    def _matrix(self, target: str) -> Matrix:
        draw = self._random
        wanted = {
            "driver": ">=535.104.05",
            "cuda": f"12.{draw.randrange(9)}.*",
            "torch": f"~=2.{draw.randrange(12)}.0",
        }
        components = {name: parse_constraint(name, text) for name, text in wanted.items()}
        entry = Entry(f"e{draw.randrange(1000)}", (target,), components, status="blessed")
        return Matrix(draw.randrange(1, 500), EntryIndex([entry]))

    def _digest(self) -> str:
        return f"{self._random.getrandbits(256):064x}"


def main(arguments: list[str]) -> int:
    """Write a dictionary, and print its line for `DICTIONARIES`."""
    if len(arguments) != 1 or not arguments[0].isdigit():
        print(__doc__, file=sys.stderr)
        return 2
    number = int(arguments[0])
    path = Path(dictionary_path(number))
    if path.exists():
        print(f"{path} exists: verdicts may be packed with it; take the next number")
        return 1
    samples = list(Drawing(load_facts()).verdicts())
    made = zstandard.train_dictionary(BYTES, samples, dict_id=FIRST_NUMBER + number, level=LEVEL)
    path.write_bytes(made.as_bytes())
    print(f'    {number}: "{sha256(made.as_bytes())}",  # of {len(samples)} verdicts')
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
