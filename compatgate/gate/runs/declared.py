"""Hosts as workers declare them, as the database keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from compatgate.canary.hosts import CLUSTERS, Host
from compatgate.core.facts import Gpus
from compatgate.core.gpus import resolve_gpu
from compatgate.core.versions import parse_version
from compatgate.errors import BadInput
from compatgate.store.leases import Offer, driver_key


def declare(worker: str, hosts: Sequence[Host], gpus: Gpus) -> list[dict[str, Any]]:
    """What is stored of some hosts; endpoints and credentials are not.

    Raises:
        BadInput: a GPU, a driver or a number of slots that cannot be.
    """
    return [_declare(worker, host, gpus) for host in hosts]


def _declare(worker: str, host: Host, gpus: Gpus) -> dict[str, Any]:
    field = f"hosts.{host.name}"
    if host.slots < 1:
        raise BadInput("a host has at least one slot", field=f"{field}.slots", value=host.slots)
    try:
        gpu = resolve_gpu(host.gpu, gpus) if host.gpu else None
        driver = parse_version("driver", host.driver) if host.driver else None
    except BadInput as error:
        raise error.at(field) from None
    if gpu is not None and not gpu.product:
        hint = "like A100-SXM4-80GB: evidence is about a product"
        what = f"{host.gpu} is a compute capability"
        raise BadInput(what, field=f"{field}.gpu", value=host.gpu, hint=hint)
    return {
        "name": host.name,
        "worker": worker,
        "executor": host.executor,
        "gpu": gpu.sku if gpu else None,
        "driver": driver.text if driver else None,
        "slots": host.slots,
        "health": host.health,
        "quiet": msgspec.to_builtins(list(host.quiet)),
    }


def offer(stored: Any) -> Offer:
    """What a declared or stored host could take."""
    host = stored if isinstance(stored, dict) else msgspec.structs.asdict(stored)
    return Offer(
        host["name"],
        host["gpu"],
        driver_key(host["driver"]),
        host["slots"],
        spans=host["executor"] in CLUSTERS,
    )
