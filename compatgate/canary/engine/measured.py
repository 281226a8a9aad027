"""What a run's containers measured, held against what was to be tested. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from compatgate.canary.report import Env
from compatgate.core.components import in_order, resolve_component
from compatgate.core.facts import Gpus
from compatgate.core.gpus import resolve_gpu
from compatgate.core.stack import Stack
from compatgate.core.versions import Version, parse_version, same_release
from compatgate.errors import BadInput


class Expected(Struct, frozen=True):
    """What a run is to show.

    Attributes:
        stack: under test.
        sku: of the host, MIG profile included.
        driver: of the host, where it is known.
    """

    stack: Stack
    sku: str | None = None
    driver: Version | None = None


class Measured(Struct, frozen=True):
    """What all env lines of a run agree on."""

    components: dict[str, Version]
    sku: str | None
    driver: Version | None


class Mismatch(Exception):
    """The measurements cannot be evidence; the message says what differs from what."""


def measure(envs: Iterable[Env], gpus: Gpus) -> Measured:
    """Bring the env lines of a run's steps together.

    Raises:
        Mismatch: a version cannot be read, a GPU is not known, or two steps disagree.
    """
    components: dict[str, Version] = {}
    skus: set[str] = set()
    drivers: set[Version] = set()
    for env in envs:
        for name, text in env.versions.items():
            component, version = _version(name, text)
            known = components.setdefault(component, version)
            if not same_release(component, known, version):
                raise Mismatch(f"steps measured {component} {known} and {version}")
        if env.driver:
            drivers.add(_version("driver", env.driver)[1])
        skus.update(_sku(device.name, device.mig, gpus) for device in env.gpus)
    for what, found in (("drivers", drivers), ("GPUs", skus)):
        if len(found) > 1:
            raise Mismatch(f"steps saw different {what}: {', '.join(sorted(map(str, found)))}")
    components.pop("driver", None)
    return Measured(components, next(iter(skus), None), next(iter(drivers), None))


def compare(measured: Measured, expected: Expected) -> None:
    """Check that what was measured is what was to be tested.

    Raises:
        Mismatch: it is not.
    """
    for name in in_order(expected.stack.components):
        stated = expected.stack.components[name]
        found = measured.components.get(name)
        if found is None:
            raise Mismatch(f"{name} {stated} is under test, and no workload measured {name}")
        if not same_release(name, found, stated):
            raise Mismatch(f"{name} {stated} is under test, but {found} was loaded")
    if expected.sku is not None and measured.sku != expected.sku:
        seen = measured.sku or "no GPU"
        raise Mismatch(f"the host is declared with {expected.sku}, but the workloads saw {seen}")
    if expected.driver and measured.driver and measured.driver != expected.driver:
        raise Mismatch(
            f"the host has driver {expected.driver}, but the workloads measured {measured.driver}"
        )


def _version(name: str, text: str) -> tuple[str, Version]:
    try:
        component = resolve_component(name).component.name
        return component, parse_version(component, text)
    except BadInput as error:
        raise Mismatch(f"the env line says {name} {text!r}: {error.detail}") from None


def _sku(name: str, mig: str | None, gpus: Gpus) -> str:
    text = f"{name} MIG {mig}" if mig else name
    try:
        return resolve_gpu(text, gpus).sku
    except BadInput as error:
        raise Mismatch(f"the env line names the GPU {text!r}: {error.detail}") from None
