"""From a process or container that was looked at from outside to a probe document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.diagnostics.compose import left_open, stack_body
from compatgate.diagnostics.own import describe
from compatgate.diagnostics.process import View, read_process
from compatgate.diagnostics.user_driver import judge
from compatgate.diagnostics.visible import visible_devices
from compatgate.discovery.driver import KernelDriver
from compatgate.discovery.nvidia_smi import Report
from compatgate.discovery.observed import ObservedPool
from compatgate.discovery.probe import (
    Probe,
    describe_host,
    driver_observations,
    look_at_gpus,
    pools_here,
)
from compatgate.discovery.stack import Inspection


class Host(Struct, frozen=True):
    """The machine that a process runs on."""

    report: Report | None
    kernel: KernelDriver | None
    notes: list[str]

    @staticmethod
    def here() -> Host:
        """This machine."""
        notes: list[str] = []
        return Host(*look_at_gpus(notes), notes)

    def left_to(self, environment: Mapping[str, str], *, container: bool) -> Report | None:
        """The report with the GPUs that are left to a process."""
        if self.report is None:
            return None
        visible = visible_devices(self.report.devices, environment, container=container)
        self.notes.extend(visible.notes)
        return replace(self.report, devices=visible.devices, attached=None)

    def pools(self, report: Report | None, facts: Facts) -> tuple[ObservedPool, ...]:
        """The pools of a report of this machine."""
        return pools_here(report, self.kernel, facts, self.notes) if report else ()

    def document(self, seen: Inspection, pools: tuple[ObservedPool, ...]) -> dict[str, Any]:
        """The probe document of what was seen here."""
        drivers = driver_observations(self.report, self.kernel)
        return Probe(
            pools,
            stack_body(seen),
            tuple(dict.fromkeys([*drivers, *seen.observations])),
            tuple(dict.fromkeys(seen.conflicts)),
            describe_host(pools, self.kernel, self.report, self.notes),
        ).to_json()


def probe_process(pid: int, facts: Facts) -> dict[str, Any]:
    """The probe document of a process: its stack, and the GPUs that it may use.

    Raises:
        NotFound, BadInput: as `read_process`.
    """
    view = read_process(pid, facts.arch)
    process, host = view.process, Host.here()
    seen = with_driver(view, host)
    seen = replace(seen, open=(*left_open(process.libraries, seen.stack), *seen.open))
    report = host.left_to(process.environment, container=process.container)
    devices = None if report is None else tuple(map(describe, report.devices))
    host.notes.extend(view.notes)
    document = host.document(seen, host.pools(report, facts))
    return {**document, "process": replace(process, devices=devices).to_json()}


def with_driver(view: View, host: Host) -> Inspection:
    """What was seen of a process, with what its libcuda means for the stack."""
    kernel = host.kernel.version if host.kernel else None
    driver = judge(list(view.process.libraries), kernel)
    stack, observations = dict(view.seen.stack), view.seen.observations
    if driver.compat:
        stack["cuda-compat"] = driver.compat.version
        observations = (*observations, driver.compat)
    return Inspection(
        stack,
        tuple(dict.fromkeys(observations)),
        (*view.seen.conflicts, *driver.conflicts),
        (*view.seen.open, *driver.open),
    )
