"""vLLM releases, from ``vllm.yaml``: compiled against exactly one torch."""

from __future__ import annotations

import re
from typing import Any

from compatgate.catalog.build import pins
from compatgate.catalog.build.read import Record, ascending, of, pair, source, version
from compatgate.core.facts import Build, Framework, Release


def vllm(document: Record) -> Framework:
    """The default wheel of each release, and the wheels beside it."""
    releases = ascending(_release(record) for record in document["releases"])
    return Framework("vllm", releases, os=("linux",))


def _release(record: Record) -> Release:
    beside = [_beside(record, wheel) for wheel in record.get("other_wheels", ())]
    return Release(
        version=version("vllm", record["version"]),
        builds=(_default(record), *beside),
        source=of(record),
        python_range=_python(record["python"]),
        python_source=source(
            f"Requires-Python of vllm=={record['version']}", confidence=record["confidence"]
        ),
        pins={"torch": pins.exact("torch", record["torch_pin"], of(record))},
    )


def _default(record: Record) -> Build:
    wheel = record["default_wheel_cuda"]
    minimum = record["min_compute_capability"]
    return Build(
        cuda=_cuda(wheel["value"]),
        cuda_major=wheel["major"],
        accepts=f"{wheel['major']}.*",
        source=of(wheel),
        default=True,
        minimum_capability=pair(minimum["value"]),
        arch_source=of(minimum),
        note=wheel.get("note") or "",
    )


def _beside(record: Record, wheel: Record) -> Build:
    minimum = record["min_compute_capability"]
    return Build(
        cuda=pair(wheel["cuda"]),
        cuda_major=pair(wheel["cuda"])[0],
        accepts=f"{pair(wheel['cuda'])[0]}.*",
        source=of(wheel),
        label=wheel["label"],
        listed=wheel["listed"],
        minimum_capability=pair(minimum["value"]),
        arch_source=of(minimum),
    )


def _cuda(value: Any) -> tuple[int, int] | None:
    """``13.x`` names a major only."""
    return pair(value) if value and not str(value).endswith(".x") else None


def _python(python: Record) -> tuple[str | None, str | None]:
    """The metadata's range; where it has no end, that of the page of this release."""
    stated = python["requires_python"]
    low = re.search(r">=\s*(\d+\.\d+)", stated)
    below = re.search(r"<\s*3\.(\d+)", stated)
    high = f"3.{int(below[1]) - 1}" if below else None
    page = re.fullmatch(r"(\d+\.\d+)-(\d+\.\d+)", python["docs"] or "")
    return (low[1] if low else None, high or (page[2] if page else None))
