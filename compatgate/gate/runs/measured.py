"""What a run's containers measured beside what was asked for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from compatgate.canary.report import Env, Report
from compatgate.core.components import COMPONENTS, in_order, resolve_component
from compatgate.core.facts import Gpus
from compatgate.core.gpus import resolve_gpu
from compatgate.core.versions import parse_version, same_release
from compatgate.errors import BadInput
from compatgate.store.run_rows import RunRow

State = Literal["same", "differs", "not measured", "not asked"]


class Beside(Struct, frozen=True):
    """One part of a stack.

    Attributes:
        name: of the component, or ``gpu``.
        asked: as the run asks for it.
        measured: by its steps; more than one where they disagree.
    """

    name: str
    asked: str | None
    measured: tuple[str, ...]
    state: State


def envs_of(steps: Iterable[dict[str, Any]]) -> list[Env]:
    """The env lines of a run's steps, from their results as plain data."""
    reports = [step["report"] for step in steps if step.get("report")]
    return [env for report in reports if (env := msgspec.convert(report, Report).env)]


def beside(run: RunRow, envs: Sequence[Env], gpus: Gpus) -> list[Beside]:
    """Every part that was asked for or measured; the GPU and driver first."""
    asked = {name: value for name, value in _asked(run).items() if value}
    found: dict[str, dict[str, None]] = {}
    for env in envs:
        for name, text in env.versions.items():
            found.setdefault(_component(name), {})[text] = None
        if env.driver:
            found.setdefault("driver", {})[env.driver] = None
        for device in env.gpus:
            name = f"{device.name} MIG {device.mig}" if device.mig else device.name
            found.setdefault("gpu", {})[_sku(name, gpus)] = None
    names = {*asked, *found}
    order = [*in_order([name for name in names if name in COMPONENTS])]
    rest = sorted(names - {*order, "gpu"})
    return [
        _beside(name, asked.get(name), tuple(found.get(name, ())))
        for name in (*(["gpu"] if "gpu" in names else []), *order, *rest)
    ]


def _asked(run: RunRow) -> dict[str, str | None]:
    stack = {name: value for name, value in run.stack.items() if isinstance(value, str)}
    versions = {_component(name): value for name, value in stack.items()}
    return {
        **{name: value for name, value in versions.items() if name in COMPONENTS},
        "gpu": run.gpu,
        "driver": run.driver,
    }


def _beside(name: str, asked: str | None, measured: tuple[str, ...]) -> Beside:
    if asked is None:
        return Beside(name, asked, measured, "not asked" if len(measured) < 2 else "differs")
    if not measured:
        return Beside(name, asked, measured, "not measured")
    same = all(_same(name, asked, text) for text in measured)
    return Beside(name, asked, measured, "same" if same else "differs")


def _same(name: str, asked: str, measured: str) -> bool:
    if asked == measured:
        return True
    try:
        return same_release(name, parse_version(name, asked), parse_version(name, measured))
    except BadInput:
        return False


def _component(name: str) -> str:
    try:
        return resolve_component(name).component.name
    except BadInput:
        return name


def _sku(name: str, gpus: Gpus) -> str:
    try:
        return resolve_gpu(name, gpus).sku
    except BadInput:
        return name
