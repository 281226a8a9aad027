"""Probe documents of hosts that were not looked at: from what they printed, or their labels."""

from __future__ import annotations

from compatgate.core.facts import Facts
from compatgate.discovery.node_labels import pools_of_nodes, read_nodes
from compatgate.discovery.nvidia_smi import parse_nvidia_smi
from compatgate.discovery.nvidia_smi.pools import disagreements, observed_pools
from compatgate.discovery.observed import DRIVER_CUDA, Observation, ObservedPool
from compatgate.discovery.probe import Probe, describe_gpus


def probe_output(text: str, facts: Facts, *, origin: str = "nvidia-smi") -> Probe:
    """What nvidia-smi printed on a host, as a probe of it.

    Raises:
        BadInput: as `parse_nvidia_smi`.
    """
    report = parse_nvidia_smi(text, origin=origin)
    found = observed_pools(report, facts.gpus)
    stated = (("driver", report.driver), (DRIVER_CUDA, report.cuda))
    return Probe(
        found.pools,
        {},
        tuple(Observation(name, value, origin) for name, value in stated if value),
        disagreements(report, facts),
        _host(found.pools, report.os, report.driver, found.notes),
    )


def probe_labels(text: str, facts: Facts, *, origin: str = "node labels") -> Probe:
    """Kubernetes nodes by their labels, as a probe; a pool for each kind of node.

    Raises:
        BadInput: the text holds no nodes, or none with a GPU.
    """
    found = pools_of_nodes(read_nodes(text, origin=origin), facts, origin=origin)
    systems = {pool.os for pool in found.pools}
    drivers = {pool.driver for pool in found.pools}
    return Probe(
        found.pools,
        {},
        tuple(
            Observation("driver", driver, f"{origin}: labels")
            for driver in dict.fromkeys(pool.driver for pool in found.pools)
            if driver
        ),
        found.conflicts,
        _host(
            found.pools,
            systems.pop() if len(systems) == 1 else "several",
            drivers.pop() if len(drivers) == 1 else None,
            found.notes,
        ),
    )


def _host(
    pools: tuple[ObservedPool, ...], system: str, driver: str | None, notes: tuple[str, ...]
) -> dict[str, object]:
    cpus = {pool.cpu for pool in pools}
    return {
        "os": system,
        "cpu": cpus.pop() if len(cpus) == 1 else None,
        "driver": driver,
        "kernel_modules": None,
        "gpus": describe_gpus(pools),
        "notes": list(notes),
    }
