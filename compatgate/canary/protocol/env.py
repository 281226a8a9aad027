"""The ``env`` line: driver, GPUs, and what is loaded in the process."""

from __future__ import annotations

from typing import Any

from compatgate.canary.protocol.fields import Broken, text
from compatgate.canary.report import Device, Env
from compatgate.core.components import COMPONENTS, find_component
from compatgate.core.versions import parse_version
from compatgate.errors import CompatgateError

_MOST_GPUS = 256
_OWN = ("driver", "gpus", "versions", "paths")
_DEVICE = ("uuid", "pci", "compute_capability", "mig")


def read_env(body: dict[str, Any]) -> Env:
    """Read the members of the line.

    Components stand under ``versions``, by any name that a stack may call them; ``cuda``,
    ``cudnn``, ``nccl``, ``torch`` and the others may stand beside it as well.

    Raises:
        Broken: a wrong type, a version that is none, a component stated twice differently.
    """
    stated = {k: v for k, v in body.items() if k in COMPONENTS and k not in _OWN}
    versions: dict[str, str] = {}
    for name, value in [*_mapping(body, "versions").items(), *stated.items()]:
        _add(versions, name, value)
    paths = _mapping(body, "paths")
    return Env(
        driver=_driver(body, versions),
        gpus=_gpus(body.get("gpus", [])),
        versions=versions,
        paths={_canonical(name): text(paths, name) for name in paths},
        other={k: v for k, v in body.items() if k not in _OWN and k not in stated},
    )


def _driver(body: dict[str, Any], versions: dict[str, str]) -> str | None:
    found: dict[str, str] = {}
    if stated := versions.pop("driver", None):
        found["driver"] = stated
    _add(found, "driver", body.get("driver"))
    return found.get("driver")


def _add(versions: dict[str, str], name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise Broken(f"the version of {name} must be text")
    component = _canonical(name)
    _check(component, value)
    if versions.setdefault(component, value) != value:
        raise Broken(f"{component} is both {versions[component]} and {value}")


def _canonical(name: str) -> str:
    found = find_component(name)
    if found is None:
        raise Broken(f"{name[:80]!r} is not a component")
    return found.component.name


def _check(component: str, value: str) -> None:
    try:
        parse_version(component, value)
    except CompatgateError:
        raise Broken(f"{value[:80]!r} is not a version of {component}") from None


def _gpus(value: object) -> tuple[Device, ...]:
    if not isinstance(value, list):
        raise Broken("gpus must be a list")
    if len(value) > _MOST_GPUS:
        raise Broken(f"more than {_MOST_GPUS} gpus")
    return tuple(_device(index, item) for index, item in enumerate(value))


def _device(index: int, item: object) -> Device:
    if isinstance(item, str):
        return Device(item)
    if not isinstance(item, dict):
        raise Broken(f"gpus[{index}] must be an object with a name")
    memory = item.get("memory_bytes")
    if memory is not None and (isinstance(memory, bool) or not isinstance(memory, int)):
        raise Broken(f"gpus[{index}].memory_bytes must be a whole number")
    try:
        known = {k: text(item, k) for k in _DEVICE if item.get(k) is not None}
        return Device(name=text(item, "name"), memory_bytes=memory, **known)
    except Broken as problem:
        raise Broken(f"gpus[{index}].{problem}") from None


def _mapping(body: dict[str, Any], field: str) -> dict[str, Any]:
    value = body.get(field, {})
    if not isinstance(value, dict):
        raise Broken(f"{field} must be an object")
    return value
