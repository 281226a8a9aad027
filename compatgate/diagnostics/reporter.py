"""Report on this process: driver, visible GPUs, loaded CUDA libraries and frameworks."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from msgspec.structs import replace

from compatgate.catalog import load_facts
from compatgate.core.facts import Facts
from compatgate.diagnostics.document import (
    Process,
    describe_unknown_versions,
    find_user_driver,
    major_conflicts,
    observations_of,
    reported_variables,
    stack_body,
    visible_devices,
)
from compatgate.diagnostics.imported import gpu_code, imported_frameworks
from compatgate.diagnostics.loaded import loaded_libraries
from compatgate.diagnostics.mapped import Files, package_observations, packages_of
from compatgate.discovery.driver import KernelDriver, read_kernel_driver
from compatgate.discovery.findings import Inspection
from compatgate.discovery.nvidia_smi.report import Device, Report
from compatgate.discovery.observations import DRIVER_CUDA, Observation, ObservedPool, settle
from compatgate.discovery.probe import (
    Probe,
    describe_host,
    driver_observations,
    local_pools,
    probe_nvml,
)
from compatgate.errors import CompatgateError


def reporter() -> Callable[[], dict[str, Any]]:
    """Return the function that makes reports; calling it imports no more modules.

    Without NVML's Python package the GPUs are unknown: a service does not start nvidia-smi.
    """
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return partial(report_process, None, None)
    try:
        facts = load_facts()
        _ = facts.gpus, facts.driver_branches
    except CompatgateError:  # a malformed overlay must not stop a service
        return partial(report_process, nvml, None)
    return partial(report_process, nvml, facts)


def report_process(nvml: Any, facts: Facts | None) -> dict[str, Any]:
    """Return the probe document of this process; `compatgate.diagnostics.report` describes it."""
    notes: list[str] = []
    report = probe_nvml(nvml) if nvml else None
    kernel = read_kernel_driver()
    libraries = loaded_libraries()
    driver = find_user_driver(libraries, kernel.version if kernel else None)
    observations = observations_of(libraries)
    known = {seen.component for seen in observations}
    paths = [lib.path for lib in libraries if lib.component not in known]
    observations += package_observations(packages_of(paths, Files()))
    imported = (s for s in imported_frameworks() if not s.built)
    observations = [
        *(Observation(s.component, s.version, s.origin) for s in imported),
        *observations,
    ]
    silent = {lib.component for lib in libraries} - {o.component for o in observations}
    built = (s for s in imported_frameworks() if s.built and "." in s.version)
    observations = [
        *driver_observations(report, kernel),
        *observations,
        *([driver.compat] if driver.compat else []),
        *[
            Observation(s.component, s.version, s.origin, "metadata")
            for s in built
            if s.component not in silent
        ],
    ]
    stack, disagreements = settle(observations, gpu_code())
    conflicts = (
        *[conflict for conflict in disagreements if conflict.component != DRIVER_CUDA],
        *major_conflicts(libraries, stack),
        *driver.conflicts,
    )
    left = (*describe_unknown_versions(libraries, stack), *driver.open)
    pools, devices = _pools(report, kernel, facts, notes)
    process = Process(
        os.getpid(),
        sys.executable or "",
        platform.python_version(),
        container=False,
        libraries=tuple(libraries),
        environment=reported_variables(os.environ),
        devices=devices,
    )
    document = Probe(
        pools,
        stack_body(Inspection(stack, (), conflicts, left)),
        tuple(observations),
        conflicts,
        describe_host(pools, kernel, report, notes),
    ).to_json()
    return {**document, "process": process.to_json()}


def _pools(
    report: Report | None, kernel: KernelDriver | None, facts: Facts | None, notes: list[str]
) -> tuple[tuple[ObservedPool, ...], tuple[dict[str, Any], ...] | None]:
    """Return the visible GPUs as pools and as a list."""
    if report is None:
        notes.append("NVML does not answer (it needs the extra nvml): GPUs are unknown")
        return (), None
    visible = visible_devices(report.devices, os.environ)
    notes += visible.notes
    left = replace(report, devices=visible.devices, attached=None)
    devices = tuple(map(describe_gpu, visible.devices))
    if facts is None:
        notes.append("the facts cannot be read: pools are unknown")
        return (), devices
    try:
        return local_pools(left, kernel, facts, notes), devices
    except CompatgateError as error:
        notes.append(f"pools are unknown: {error.detail}")
        return (), devices


def describe_gpu(device: Device) -> dict[str, Any]:
    """Return a visible GPU in JSON form."""
    return {
        "name": device.name,
        "uuid": device.uuid,
        "bus": device.bus or None,
        "memory_mib": device.memory_mib,
        "compute_capability": device.capability,
        "mig": [{"profile": s.profile, "uuid": s.uuid} for s in device.slices],
    }
