"""Evaluate environment markers for the target's platform, never for this machine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct
from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from compatgate.core.request import Cpu, Os
from compatgate.core.versions import parse_version
from compatgate.discovery.observations import Conflict
from compatgate.errors import BadInput

_PYTHONS = tuple(f"3.{minor}" for minor in range(7, 16))
"""Possible Pythons of a target that does not state one."""
_PATCH_RELEASES = (0, 99)
"""``3.11`` stands for its first and its last patch release."""
_TRUE, _FALSE = "os_name != ''", "os_name == ''"
_EXTRA = re.compile(r"""\bextra\s*(==|!=)\s*(["'])([^"']*)\2""")
_EXTRA_RIGHT = re.compile(r"""(["'])([^"']*)\1\s*(==|!=)\s*extra\b(?!s)""")
_LONGEST_MARKER = 20_000
_MAX_SELECTIONS = 100
Subdir = Literal["linux-64", "linux-aarch64", "win-64", "win-arm64"]


class Platform(Struct, frozen=True):
    """The platform of an installation; ``wsl`` installs the same files as Linux.

    Python is ``3.11`` or ``3.11.7``; not stated, it leaves the markers that depend on it open.
    """

    os: Os = "linux"
    cpu: Cpu = "x86_64"
    python: str | None = None

    @property
    def conda(self) -> Subdir:
        """Return conda's name of this platform."""
        if self.os == "windows":
            return "win-arm64" if self.cpu == "aarch64" else "win-64"
        return "linux-aarch64" if self.cpu == "aarch64" else "linux-64"

    def __str__(self) -> str:
        python = f", Python {self.python}" if self.python else ""
        return f"{self.os} {self.cpu}{python}"

    def pythons(self) -> tuple[str, ...]:
        """Return the possible full versions of this platform's Python."""
        if self.python is None:
            return tuple(f"{minor}.{patch}" for minor in _PYTHONS for patch in _PATCH_RELEASES)
        parts = parse_version("python", self.python).parts
        if len(parts) >= 3:
            return (".".join(map(str, parts[:3])),)
        return tuple(f"{parts[0]}.{parts[1]}.{patch}" for patch in _PATCH_RELEASES)


def _environment(platform: Platform, python: str) -> dict[str, Any]:
    """Return PEP 508's variables on this platform, except unknown releases of the system."""
    windows = platform.os == "windows"
    machine = {"x86_64": "AMD64", "aarch64": "ARM64"}[platform.cpu] if windows else platform.cpu
    return {
        "os_name": "nt" if windows else "posix",
        "sys_platform": "win32" if windows else "linux",
        "platform_system": "Windows" if windows else "Linux",
        "platform_machine": machine,
        "platform_release": "",
        "platform_version": "",
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "implementation_version": python,
        "python_full_version": python,
        "python_version": ".".join(python.split(".")[:2]),
        "extra": "",
    }


class Markers:
    """Decides markers for one platform; the lock's constraint on Python narrows an unknown one."""

    def __init__(
        self,
        platform: Platform,
        *,
        file: str,
        requires_python: str = "",
        extras: Iterable[str] = (),
        groups: Iterable[str] = (),
    ) -> None:
        self._file = file
        self.platform = platform
        self._made_for = (platform, requires_python)
        self._extras, self._groups = frozenset(extras), frozenset(groups)
        self._others: dict[tuple[str, str], Markers] = {}
        self._known: dict[str, bool | None] = {}
        possible = platform.pythons()
        try:
            wanted = SpecifierSet(requires_python)
        except InvalidSpecifier:
            problem = f"{requires_python[:100]!r} is not a requirement on Python"
            raise BadInput(problem, field=file, value=requires_python[:100]) from None
        allowed = tuple(python for python in possible if python in wanted)
        self.conflicts: tuple[Conflict, ...] = ()
        """A conflict where the lock excludes the target's Python."""
        if not allowed:
            have = f"the target has {platform.python}" if platform.python else "no known Python is"
            message = f"{file} is for Python {requires_python}, {have}"
            self.conflicts = (Conflict("python", message, None),)
        sets = {"extras": self._extras, "dependency_groups": self._groups}
        self._environments = [{**_environment(platform, p), **sets} for p in allowed or possible]

    def decide(self, marker: str) -> bool | None:
        """Return whether a marker holds; None where it depends on an unknown value."""
        text = marker.strip()
        if not text:
            return True
        if text not in self._known:
            self._known[text] = self._evaluate(text)
        return self._known[text]

    def selected_by(self, marker: str, extras: Iterable[str], groups: Iterable[str] = ()) -> str:
        """Return ``extra gpu`` when selecting it makes a marker hold; else ``""``."""
        if "extra" not in marker and "dependency_groups" not in marker:
            return ""
        wanted = [("extra", name) for name in extras] + [("group", name) for name in groups]
        for kind, name in wanted[:_MAX_SELECTIONS]:
            if (kind, name) not in self._others:
                platform, requires = self._made_for
                self._others[kind, name] = Markers(
                    platform,
                    file=self._file,
                    requires_python=requires,
                    extras=self._extras | ({name} if kind == "extra" else set()),
                    groups=self._groups | ({name} if kind == "group" else set()),
                )
            if self._others[kind, name].decide(marker) is not False:
                return f"{kind} {name}"
        return ""

    def _evaluate(self, text: str) -> bool | None:
        if "variant_" in text:
            return None  # PEP 817's markers are decided when the wheel is chosen

        def settle(operator: str, name: str) -> str:
            return _TRUE if (name in self._extras) == (operator == "==") else _FALSE

        # Comparisons of extras are decided here, since `packaging` supports a single extra.
        settled = _EXTRA.sub(lambda m: settle(m[1], m[3]), text[:_LONGEST_MARKER])
        settled = _EXTRA_RIGHT.sub(lambda m: settle(m[3], m[2]), settled)
        try:
            parsed = Marker(settled)
            answers = {parsed.evaluate(e, context="lock_file") for e in self._environments}
        except (UndefinedComparison, UndefinedEnvironmentName):
            return None
        except (InvalidMarker, RecursionError, AssertionError, ValueError):
            problem = f"{text[:200]!r} is not an environment marker"
            raise BadInput(problem, field=self._file, value=text[:200]) from None
        return answers.pop() if len(answers) == 1 else None
