"""What a reader has found in a tool's output, on its way to a report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from compatgate.canary.protocol.fields import Broken, number
from compatgate.canary.report import Check, Device, Env, Metric, Report
from compatgate.canary.workload import Workload
from compatgate.core.versions import parse_version, same_release
from compatgate.errors import BadInput

_MOST_PROBLEMS = 100
_MESSAGE = 2000


class Found:
    """Collects metrics, checks, versions and problems.

    Metrics that ``workload.toml`` does not declare are left out: tools print more than anyone wants
    to judge. Checks are kept whether declared or not, since one that failed must not be lost.

    Attributes:
        workload: whose output it is; None keeps every metric.
        env: the ``env`` line beside the tool's output, where there is one.
        other: what else is worth keeping with the report.
    """

    def __init__(self, workload: Workload | None) -> None:
        self.workload = workload
        self.env: Env | None = None
        self.other: dict[str, Any] = {}
        self._driver: str | None = None
        self._gpus: list[Device] = []
        self._versions: dict[str, str] = {}
        self._metrics: dict[str, tuple[str, list[float], list[float]]] = {}
        self._checks: dict[str, Check] = {}
        self._problems: list[str] = []
        self._unsaid = 0
        self._own_fault = ""

    @property
    def problems(self) -> int:
        """How many there are so far."""
        return len(self._problems) + self._unsaid

    def problem(self, text: str) -> None:
        """Say that output is damaged, or that something is missing."""
        if len(self._problems) < _MOST_PROBLEMS:
            self._problems.append(text[:_MESSAGE])
        else:
            self._unsaid += 1

    def metric(
        self, name: str, unit: str, values: Iterable[object], warmup: Iterable[object] = ()
    ) -> None:
        """Add values of a metric; repeated calls append.

        A value that is no finite number, or a declared unit that differs, is a problem.
        """
        if not self._wanted(name, unit):
            return
        try:
            kept = [number(name, value) for value in values]
            leading = [number(name, value) for value in warmup]
        except Broken as broken:
            self.problem(str(broken))
            return
        known = self._metrics.setdefault(name, (unit, [], []))
        if known[0] != unit:
            self.problem(f"{name} is printed in {known[0]} and in {unit}")
            return
        known[1].extend(kept)
        known[2].extend(leading)

    def _wanted(self, name: str, unit: str) -> bool:
        if self.workload is None:
            return True
        declared = self.workload.metrics.get(name)
        if declared is not None and declared.unit != unit:
            self.problem(f"the metric {name} is in {unit}, declared is {declared.unit}")
            return False
        return declared is not None

    def check(self, name: str, ok: bool, message: str = "") -> None:
        """Add a check; one that failed once has failed."""
        known = self._checks.get(name)
        if known is None or known.ok:
            self._checks[name] = Check(name, ok, message[:_MESSAGE])

    def own_fault(self, message: str) -> None:
        """The tool fails for a reason of its own, see `own_cuda`; the first is kept."""
        self._own_fault = self._own_fault or message[:_MESSAGE]

    def declares(self, check: str) -> bool:
        """Whether ``workload.toml`` asks for a check that not everyone wants to hold."""
        return self.workload is None or check in self.workload.checks

    def driver(self, version: str) -> None:
        """The tool names the driver."""
        if self._is_version("driver", version):
            self._driver = self._agreed("driver", self._driver, version)

    def version(self, component: str, version: str) -> None:
        """The tool names a library's version, as loaded in its own process."""
        if self._is_version(component, version):
            known = self._versions.get(component)
            self._versions[component] = self._agreed(component, known, version)

    def gpu(self, device: Device) -> None:
        """The tool names a GPU; the same one again is the same one."""
        if device not in self._gpus:
            self._gpus.append(device)

    def _is_version(self, component: str, text: str) -> bool:
        try:
            parse_version(component, text)
        except BadInput:
            self.problem(f"{text[:80]!r} is not a version of {component}")
            return False
        return True

    def _agreed(self, component: str, known: str | None, text: str) -> str:
        if known is None:
            return text
        one, other = parse_version(component, known), parse_version(component, text)
        if not same_release(component, one, other):
            self.problem(f"{component} is both {known} and {text}")
        return known

    def report(self, *, lines: int, dropped: int) -> Report:
        """Everything, as the engine wants it."""
        env = self._whole_env()
        problems = list(self._problems)
        if self._unsaid:
            problems.append(f"and {self._unsaid} more")
        return Report(
            env=env,
            metrics=tuple(
                Metric(name, unit, tuple(values), tuple(warmup))
                for name, (unit, values, warmup) in self._metrics.items()
                if values or warmup
            ),
            checks=tuple(self._checks.values()),
            problems=tuple(problems),
            lines=lines,
            dropped_bytes=dropped,
            own_fault=self._own_fault,
        )

    def _whole_env(self) -> Env | None:
        """The env line, with what the tool itself said; where they differ, a problem."""
        said = Env(self._driver, tuple(self._gpus), dict(self._versions), {}, dict(self.other))
        if self.env is None:
            return said if said.driver or said.gpus or said.versions else None
        versions = dict(self.env.versions)
        for component, text in said.versions.items():
            versions[component] = self._agreed(component, versions.get(component), text)
        driver = self.env.driver
        if said.driver:
            driver = self._agreed("driver", driver, said.driver)
        return replace(
            self.env,
            driver=driver,
            gpus=self.env.gpus or said.gpus,
            versions=versions,
            other={**self.env.other, **said.other},
        )
