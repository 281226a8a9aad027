"""Lists the releases that the package index has and the facts do not.

Asks the index that pip is configured for. What a release needs is then read from its metadata and
its wheel (``compatgate inspect``); nothing is written here. Exit status 1 where the
index does not answer.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator

from packaging.version import Version

from compatgate.catalog import source_names
from compatgate.catalog.library import document

LIBRARIES = {
    "cuda_driver": ("cuda-toolkit",),
    "cudnn": ("nvidia-cudnn-cu11", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13"),
    "nccl": ("nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13"),
}
"""Names on the package index; the files of frameworks say theirs themselves."""
PYTHONS = ("3.8", "3.10", "3.12", "3.14")
"""pip leaves out what has no wheel for the Python that it is asked for."""

NUMBER = re.compile(r"\d[\w.+]*")


def distributions() -> dict[str, tuple[str, ...]]:
    """Name what to ask the index for, by fact file."""
    frameworks = [name for name in source_names() if name.startswith("frameworks/")]
    return LIBRARIES | {name: tuple(document(name).get("distributions", ())) for name in frameworks}


def missing(known: Iterable[str], offered: Iterable[str]) -> list[str]:
    """Releases offered of which no record is known, oldest first.

    The first three numbers tell: rebuilds (``9.11.0.98``, ``0.4.0.post1``) have no record of their
    own. Nothing older than the oldest record is listed.
    """
    numbers = {_three(version) for version in known}
    oldest = min(numbers)
    return sorted(
        {o for o in offered if _three(o) not in numbers and _three(o) > oldest}, key=Version
    )


def _three(version: str) -> tuple[int, ...]:
    return (*Version(version).release, 0, 0)[:3]


def recorded(source: str) -> Iterator[str]:
    """Versions that the releases of a fact file are named by; a preview has no number."""
    facts = document(source)
    for record in [*facts["releases"], *facts.get("special_cases", ())]:
        named = str(record["cuda" if source == "cuda_driver" else "version"])
        if NUMBER.fullmatch(named):
            yield named


def offered(distribution: str) -> set[str]:
    """Versions of a distribution that pip finds for any of the Pythons."""
    found: set[str] = set()
    for python in PYTHONS:
        asked = ["index", "versions", distribution, "--json", "--python-version", python]
        answer = subprocess.run(  # noqa: S603 - pip itself, with names from above
            [sys.executable, "-m", "pip", *asked],
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode == 0:
            found.update(json.loads(answer.stdout)["versions"])
    return found


def main() -> int:
    """Print a line for each distribution; 1 where one is not found."""
    status = 0
    for source, named in distributions().items():
        known = set(recorded(source))
        for distribution in named:
            on_index = offered(distribution)
            newer = missing(known, on_index)
            said = ", ".join(newer) or ("nothing missing" if on_index else "not found on the index")
            status |= not on_index
            print(f"{distribution}: {said}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
