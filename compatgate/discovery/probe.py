"""Write and read the probe document: a host and its stack in one file.

``compatgate probe -o node.json`` writes it on the host, ``compatgate check --probe node.json``
reads it anywhere. `probe_output` and `probe_labels` make one for remote hosts, from the output of
nvidia-smi or from node labels.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.core.request import CPU_NAMES
from compatgate.discovery.driver import KernelDriver, read_kernel_driver, read_nvml
from compatgate.discovery.findings import select_records
from compatgate.discovery.libraries import find_libraries, note_unused_compat
from compatgate.discovery.machine import Root, observe_machine
from compatgate.discovery.node_labels import group_nodes, read_nodes
from compatgate.discovery.nvidia_smi import parse_nvidia_smi
from compatgate.discovery.nvidia_smi.report import Report, find_disagreements, group_pools
from compatgate.discovery.observations import (
    DRIVER_CUDA,
    Conflict,
    Observation,
    ObservedPool,
    settle,
)
from compatgate.discovery.python_env import ask_python
from compatgate.discovery.stated_stack import attach_remarks
from compatgate.discovery.tegra import (
    add_board,
    explain_tegrastats,
    observe_board,
    parse_board,
    read_board,
)
from compatgate.errors import BadInput, quote_error
from compatgate.strict_json import DECODE_ERRORS

SCHEMA = "probe/v1"
_INSPECTED = {"stack", "observations", "conflicts"}
_TIMEOUT_S = 60
_PATHS = ("nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi", "/usr/bin/nvidia-smi")


class Probe(Struct, frozen=True):
    """The stack and system of a host, and one pool per kind of GPU.

    ``host`` has ``os``, ``cpu``, ``driver``, ``kernel_modules``, ``platform``, ``node``, ``gpus``
    and ``notes``.
    """

    pools: tuple[ObservedPool, ...] = ()
    stack: dict[str, Any] = {}
    observations: tuple[Observation, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    host: dict[str, Any] = {}

    def to_json(self) -> dict[str, Any]:
        """Return the probe document; `read_probe` reads it."""
        return {
            "compatgate": SCHEMA,
            "pools": [pool.to_body() for pool in self.pools],
            "stack": self.stack,
            "observations": msgspec.to_builtins([*self.observations]),
            "conflicts": msgspec.to_builtins([*self.conflicts]),
            "host": self.host,
        }


def probe_machine(facts: Facts, *, python: str | None = None, root: str = "/") -> Probe:
    """Probe this machine."""
    notes: list[str] = []
    report, kernel = probe_gpus(notes)
    environment = ask_python(python, facts.packages, facts.arch) if python else None
    libraries = find_libraries()
    observations = [
        *driver_observations(report, kernel),
        *(environment.observations if environment else ()),
        *libraries,
    ]
    stack, conflicts = settle(observations, environment.arch if environment else None)
    if environment and (measured := select_records(stack, environment.measured)):
        stack["measured"] = {name: record.to_stack() for name, record in measured.items()}
    pools: tuple[ObservedPool, ...] = ()
    if report:
        pools = local_pools(report, kernel, facts, notes)
        conflicts += find_disagreements(report, facts)
    board = read_board(Root(root))
    if board:
        pools = add_board(pools, board, facts)
        observations += observe_board(board)
    machine = observe_machine(facts, [pool.gpu for pool in pools], root=root)
    pools = tuple(pool.on_machine(machine.node, machine.platform) for pool in pools)
    notes += machine.notes
    notes += environment.notes if environment else ()
    notes += note_unused_compat(libraries)
    host = describe_host(pools, kernel, report, notes)
    host |= {"platform": machine.platform, "node": common_parts(pools) or machine.node}
    return Probe(pools, stack, (*observations, *machine.observations), conflicts, host)


def probe_gpus(notes: list[str]) -> tuple[Report | None, KernelDriver | None]:
    """Return this machine's GPUs and kernel driver; add notes on missing answers."""
    report = read_nvml() or _run_nvidia_smi(notes)
    try:
        with open("/proc/version", encoding="utf-8", errors="replace") as file:
            system = "wsl" if "microsoft" in file.read().lower() else ""
    except OSError:
        system = "windows" if os.name == "nt" else ""
    if report and system:
        report = replace(report, os=system)
    return report, read_kernel_driver()


def local_pools(
    report: Report, kernel: KernelDriver | None, facts: Facts, notes: list[str]
) -> tuple[ObservedPool, ...]:
    """Return the pools of a report of this machine; the loaded driver decides."""
    pools = group_pools(
        replace(report, driver=(kernel.version if kernel else report.driver)), facts.gpus
    )
    notes += pools.notes
    return tuple(replace(pool, cpu=_cpu()) for pool in pools.pools)


def _run_nvidia_smi(notes: list[str]) -> Report | None:
    """Return the XML report, and the list, which names MIG profiles."""
    outputs = []
    for arguments in (["-q", "-x"], ["-L"]):
        for command in _PATHS:
            try:
                result = subprocess.run(  # noqa: S603 - fixed names and arguments
                    [command, *arguments], capture_output=True, timeout=_TIMEOUT_S, check=False
                )
            except FileNotFoundError:
                continue
            except (OSError, subprocess.TimeoutExpired) as error:
                notes.append(f"{command} did not answer: {quote_error(error)}")
                return None
            outputs.append((result.stdout + result.stderr).decode("utf-8", "replace"))
            break
    if not outputs:
        notes.append("nvidia-smi is not installed")
        return None
    try:
        return parse_nvidia_smi("\n".join(outputs))
    except BadInput as error:
        notes.append(error.problem)
        return None


def driver_observations(report: Report | None, kernel: KernelDriver | None) -> list[Observation]:
    """Return observations of the driver and of the CUDA version that it reports."""
    found = []
    if kernel:
        found.append(Observation("driver", kernel.version, kernel.origin))
    if report and report.driver:
        found.append(Observation("driver", report.driver, f"nvidia-smi ({report.form})"))
    if report and report.cuda:
        found.append(Observation(DRIVER_CUDA, report.cuda, f"nvidia-smi ({report.form})"))
    return found


def _cpu() -> str:
    machine = platform.machine().lower()
    return CPU_NAMES.get(machine, machine)


def describe_host(
    pools: tuple[ObservedPool, ...],
    kernel: KernelDriver | None,
    report: Report | None,
    notes: list[str],
) -> dict[str, Any]:
    """Return the ``host`` of a probe document."""
    is_open = kernel.open if kernel else None
    return {
        "os": report.os if report else platform.system().lower(),
        "cpu": _cpu(),
        "driver": kernel.version if kernel else (report.driver if report else None),
        "kernel_modules": {None: None, True: "open", False: "proprietary"}[is_open],
        "platform": None,
        "node": common_parts(pools),
        "gpus": describe_gpus(pools),
        "notes": list(dict.fromkeys(notes)),
    }


def common_parts(pools: tuple[ObservedPool, ...]) -> dict[str, str]:
    """Return the parts that all pools of a host state alike."""
    first, *others = [dict(pool.node) for pool in pools] or [{}]
    return {name: v for name, v in first.items() if all(one.get(name) == v for one in others)}


def describe_gpus(pools: tuple[ObservedPool, ...]) -> list[dict[str, Any]]:
    """Return the kinds of GPUs, with their number on a host or the number of nodes."""
    counts = ({"nodes": p.nodes} if p.nodes else {"devices": p.devices} for p in pools)
    return [{"product": p.gpu, **count} for p, count in zip(pools, counts, strict=True)]


def read_probe(text: str, *, origin: str = "probe") -> dict[str, Any]:
    """Read a probe document, or what ``inspect`` prints as JSON, which has no pools.

    In the result ``pools`` (bodies of pools) and ``stack`` exist and have their type.
    """
    if not text.strip():
        raise BadInput(
            "is empty", field=origin, hint="create the file with compatgate probe -o FILE"
        )
    try:
        document = msgspec.json.decode(text)
    except DECODE_ERRORS as error:
        raise BadInput(f"is not JSON: {quote_error(error)}", field=origin) from None
    hint = "write it with compatgate probe --format json"
    if isinstance(document, Mapping) and document.keys() == _INSPECTED:
        return _read_inspected(document, origin)
    if not isinstance(document, Mapping) or document.get("compatgate") != SCHEMA:
        raise BadInput(f"is not a probe document ({SCHEMA})", field=origin, hint=hint)
    pools, stack = document.get("pools"), document.get("stack")
    if not isinstance(pools, list) or not all(isinstance(pool, dict) for pool in pools):
        raise BadInput("must be a list of pools", field=f"{origin}.pools", hint=hint)
    if not isinstance(stack, dict):
        raise BadInput("must be an object", field=f"{origin}.stack", hint=hint)
    return dict(document)


def _read_inspected(document: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Return an inspection as a probe without pools; its doubts count as those of the stack."""
    try:
        stack = msgspec.convert(document["stack"], dict[str, Any])
        doubts = msgspec.convert(document["conflicts"], list[Conflict])
    except msgspec.ValidationError as error:
        raise BadInput(f"is not an inspection: {quote_error(error)}", field=origin) from None
    conflicts = [one for one in doubts if one.component != "open"]
    left = [one.message for one in doubts if one.component == "open"]
    return {"pools": [], "stack": attach_remarks(stack, left, conflicts), "conflicts": []}


def probe_output(text: str, facts: Facts, *, origin: str = "nvidia-smi") -> Probe:
    """Return a probe of a host from the output of nvidia-smi."""
    board = parse_board(text)
    try:
        report = parse_nvidia_smi(text, origin=origin)
    except BadInput as error:
        if board and (pools := add_board((), board, facts)):
            seen = tuple(observe_board(board))
            return Probe(pools, {}, seen, (), _remote_host(pools, "linux", None, ()))
        raise explain_tegrastats(text, origin) or error from None
    found = group_pools(report, facts.gpus)
    if board:
        found = replace(found, pools=add_board(found.pools, board, facts))
    stated = (("driver", report.driver), (DRIVER_CUDA, report.cuda))
    return Probe(
        found.pools,
        {},
        tuple(Observation(name, value, origin) for name, value in stated if value),
        find_disagreements(report, facts),
        _remote_host(found.pools, report.os, report.driver, found.notes),
    )


def probe_labels(text: str, facts: Facts, *, origin: str = "node labels") -> Probe:
    """Return a probe of Kubernetes nodes from their labels, with a pool for each kind of node."""
    grouped = group_nodes(read_nodes(text, origin=origin), facts, origin=origin)
    systems = {pool.os for pool in grouped.pools}
    drivers = {pool.driver for pool in grouped.pools}
    return Probe(
        grouped.pools,
        {},
        tuple(
            Observation("driver", driver, f"{origin}: labels")
            for driver in dict.fromkeys(pool.driver for pool in grouped.pools)
            if driver
        ),
        grouped.conflicts,
        _remote_host(
            grouped.pools,
            systems.pop() if len(systems) == 1 else "several",
            drivers.pop() if len(drivers) == 1 else None,
            grouped.notes,
        ),
    )


def _remote_host(
    pools: tuple[ObservedPool, ...], system: str, driver: str | None, notes: tuple[str, ...]
) -> dict[str, object]:
    cpus, platforms = {pool.cpu for pool in pools}, {pool.platform for pool in pools}
    node = common_parts(pools)
    return {
        "os": system,
        "cpu": cpus.pop() if len(cpus) == 1 else None,
        "driver": driver,
        "kernel_modules": node.get("kernel-modules"),
        "platform": platforms.pop() if len(platforms) == 1 else None,
        "node": node,
        "gpus": describe_gpus(pools),
        "notes": list(notes),
    }
