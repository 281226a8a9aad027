"""GPU products, from ``gpus.yaml``."""

from __future__ import annotations

from compatgate.catalog.build.read import Record, driver, of, pair
from compatgate.core.facts import Gpu, Gpus


def gpus(document: Record) -> Gpus:
    """Products by canonical name, and every spelling that names one of them."""
    brands = document["brand_facts"]["by_segment"]
    found = {record["name"]: _gpu(record, brands) for record in document["gpus"]}
    return Gpus(found, _aliases(document["gpus"]))


def _gpu(record: Record, brands: Record) -> Gpu:
    segment = record["segment"]
    stated = record.get("brands") or brands.get(segment, {}).get("requirement_strings", ())
    minimum = record.get("mig_min_driver")
    return Gpu(
        name=record["name"],
        capability=pair(record["compute_capability"]),
        architecture=record["architecture"],
        segment=segment,
        cpu=record.get("cpu"),
        brands=tuple(stated),
        memory_gb=record["memory_gb"],
        first_branch=record["first_driver_branch"],
        last_branch=record["last_driver_branch"],
        mig_capable=record["mig_capable"],
        mig_driver=driver(minimum) if minimum else None,
        source=of(record),
    )


def _aliases(records: list[Record]) -> dict[str, str]:
    from compatgate.core.gpus import normalise

    spellings = {normalise(alias): r["name"] for r in records for alias in r.get("aliases", ())}
    return spellings | {normalise(record["name"]): record["name"] for record in records}
