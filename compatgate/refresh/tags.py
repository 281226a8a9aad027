"""What the name of a wheel says: Pythons and platforms (PEP 425)."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from compatgate.discovery.lockfiles import Platform
from compatgate.discovery.wheels import IndexFile, choose


def pythons(wheels: Iterable[IndexFile], platform: Platform) -> list[str]:
    """List the Pythons that have a wheel of their own for a platform: ``3.14``, ``3.14t``.

    A wheel for every Python (``py3``, ``abi3``) names none; its metadata says the range.
    """
    found = {one for w in wheels if is_for(w, platform) for one in _pythons(w.name)}
    return sorted(found, key=lambda text: (Version(text.removesuffix("t")), text))


def _pythons(name: str) -> set[str]:
    tags = parse_wheel_filename(name)[3]
    one = ("cp3", "none")
    exact = (t for t in tags if t.interpreter.startswith("cp3") and t.abi.startswith(one))
    return {f"3.{t.interpreter[3:]}{'t' * t.abi.endswith('t')}" for t in exact}


def is_for(wheel: IndexFile, platform: Platform) -> bool:
    """Tell whether a wheel is for a platform, whatever its Python."""
    return bool(choose([wheel], Platform(platform.os, platform.cpu)))


def python_of(name: str) -> str | None:
    """Return the Python that a wheel is for; None where it serves several."""
    found = _pythons(name)
    return min(found).removesuffix("t") if found else None
