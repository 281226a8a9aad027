"""Compose a probe document from the observations of a process.

The loaded user-mode driver (libcuda) is the host's, or comes from a forward-compatibility package.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from compatgate.core.stack import parse_stack
from compatgate.core.versions import parse_version
from compatgate.diagnostics.loaded import DRIVER_CUDA, Library
from compatgate.discovery.findings import Inspection
from compatgate.discovery.libraries import library_observation
from compatgate.discovery.observations import Conflict, Observation
from compatgate.errors import BadInput, CompatgateError


class Process(Struct, frozen=True):
    """The ``process`` of a probe document.

    Attributes:
        executable: path of the program; arguments are omitted, since they may hold secrets.
        container: whether it has another root or mount namespace than the observer.
        environment: variables that are set and listed in `compatgate.diagnostics.environment`.
        devices: GPUs that the process may use; None: unknown.
    """

    pid: int
    executable: str
    python: str | None
    container: bool
    libraries: tuple[Library, ...]
    environment: dict[str, str]
    devices: tuple[dict[str, Any], ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "pid": self.pid,
            "executable": printable(self.executable),
            "python": self.python,
            "container": self.container,
            "devices": None if self.devices is None else list(self.devices),
            "libraries": [_library(library) for library in self.libraries],
            "environment": {k: printable(v) for k, v in self.environment.items()},
        }


def _library(library: Library) -> dict[str, Any]:
    members = {**library._asdict(), "path": printable(library.path)}
    return {key: value for key, value in members.items() if value not in (None, "")}


def printable(text: str) -> str:
    """Return a file or variable name as valid text for JSON."""
    return text.encode("utf-8", "backslashreplace").decode()


def observations_of(libraries: Iterable[Library]) -> list[Observation]:
    """Return the versions that loaded libraries report and that their file names state."""
    found = []
    for library in libraries:
        path = printable(library.path)
        if library.reported:
            label = f"+cu{library.built_for.partition('.')[0]}" if library.built_for else ""
            origin = f"{path}: {library.asked}()"
            found.append(Observation(library.component, library.reported + label, origin))
        if library.name_version and library.component != DRIVER_CUDA:
            version = library.name_version
            found.append(Observation(library.component, version, path, "metadata"))
    return found


def left_open(libraries: Iterable[Library], stack: dict[str, Any]) -> tuple[str, ...]:
    """Describe loaded libraries of unknown version: they never pass."""
    found: dict[str, str] = {}
    for library in libraries:
        if library.component not in stack and library.component != DRIVER_CUDA:
            known = f"except its major, {library.major}" if library.major else ""
            path = printable(library.path)
            sentence = f"{library.component}: {path} is loaded; its version is unknown"
            sentence = f"{sentence}, {known}" if known else sentence
            found.setdefault(library.component, sentence)
    return tuple(found.values())


def other_majors(libraries: Iterable[Library], stack: dict[str, Any]) -> list[Conflict]:
    """Return libraries whose file name states another major version than the stack."""
    return [
        Conflict(
            library.component,
            f"the stack has {library.component} {stack[library.component]}, "
            f"{printable(library.path)} is loaded",
            stack[library.component],
        )
        for library in libraries
        if library.component in stack
        and library.major
        and not library.name_version
        and not library.reported
        and stack[library.component].partition(".")[0] != library.major
    ]


def stack_body(seen: Inspection) -> dict[str, Any]:
    """Return the stack in request form, with unknown versions and conflicts between sources.

    A malformed version counts as unknown, so that the rest can still be checked.
    """
    body: dict[str, Any] = {}
    open_items = list(seen.open)
    for name, value in seen.stack.items():
        try:
            parse_stack({name: value})
        except CompatgateError as error:
            open_items.append(f"{name}: {error.problem}")
        else:
            body[name] = value
    said = [conflict.message for conflict in seen.conflicts]
    return {
        **body,
        **({"open": list(dict.fromkeys(open_items))} if open_items else {}),
        **({"conflicts": list(dict.fromkeys(said))} if said else {}),
    }


_DRIVER = re.compile(r"\d{3,4}\.\d+(?:\.\d+)?")


class UserDriver(Struct, frozen=True):
    """Consequences of the loaded libcuda for the stack.

    Attributes:
        compat: forward-compatibility package; None when the host's libcuda is loaded.
        conflicts: mismatches between libcuda and the kernel driver.
        open: unknowns: forward compatibility is in use, but its CUDA is unknown.
    """

    compat: Observation | None = None
    conflicts: tuple[Conflict, ...] = ()
    open: tuple[str, ...] = ()


def find_user_driver(libraries: list[Library], kernel: str | None) -> UserDriver:
    """Compare the loaded libcuda with the kernel driver.

    Args:
        libraries: libraries of the process.
        kernel: version of the kernel driver; None: unknown.
    """
    library = next((lib for lib in libraries if lib.component == DRIVER_CUDA), None)
    if library is None:
        return UserDriver()
    named = library_observation(library.path)
    own = library.name_version
    order = _compare(own, kernel)
    if order is not None and order < 0:
        message = f"{library.path} of driver {own} is loaded: older than kernel driver {kernel}"
        return UserDriver(conflicts=(Conflict("driver", message, kernel),))
    if named is None and not order:
        return UserDriver()
    if library.reported:
        how = f"{library.path}: {library.asked}()"
        return UserDriver(Observation("cuda-compat", library.reported, how))
    if named:
        return UserDriver(named)
    sentence = (
        f"cuda-compat: {library.path} of driver {own} is loaded over driver {kernel}; its CUDA "
        "version is unknown"
    )
    return UserDriver(open=(sentence,))


def _compare(own: str | None, kernel: str | None) -> int | None:
    """Return above 0 when libcuda is newer than the kernel driver; None: unknown."""
    if not own or not kernel or not _DRIVER.fullmatch(own):
        return None
    try:
        one, other = parse_version("driver", own), parse_version("driver", kernel)
    except BadInput:
        return None
    return (one > other) - (one < other)
