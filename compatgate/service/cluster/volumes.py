"""Find what a pod spec shows that replaces parts of its image.

The gate judges what images hold. A volume over an image's packages, a variable that leads the
interpreter or the linker to a volume, and a command that installs packages run something else.
A volume certainly hides what it covers: the stack is then not known. The others may run the
image's own stack as well: they are remarks.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from compatgate.discovery.image.reading import INTERPRETER
from compatgate.kit.kubernetes import read_list, read_mapping, read_text

_PACKAGES = re.compile(r"/(?:site|dist)-packages(?:/|$)|^/usr/local/cuda[^/]*(?:/|$)")
"""Folders of packages and toolkits, whatever the image."""
_WITHOUT_PACKAGES = ("/dev/", "/proc/", "/sys/", "/var/run/", "/run/secrets/")
_LEADING = (
    "PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "LD_PRELOAD", "LD_AUDIT",
)  # fmt: skip
"""Variables that lead to programs, packages and libraries; ``LD_LIBRARY_PATH`` is one anyway."""
_SEPARATORS = re.compile(r"[:\s]+")
_INSTALLS = re.compile(
    r"\b(?:(?:pip3?|uv|conda|mamba|micromamba|poetry)(?:[\d.]*)\s(?:[^;&|\n]*\s)?"
    r"(?:install|add|sync|update)|(?:apt|apt-get|dnf|yum|microdnf)\s(?:[^;&|\n]*\s)?install)\b"
)


_SHELL = re.compile(r"[\s;&|()<>=`'\"]+")
"""What separates the words of a shell's script."""
_PROGRAM = re.compile(rf"/(?:{INTERPRETER.pattern}|(?<=bin/)[^/.]+)$")
_MOST_PROGRAMS = 256


def clean_path(path: str) -> str:
    """Return an absolute path in its shortest form; empty text stays."""
    return "/" + posixpath.normpath(path).lstrip("/") if path else ""


def read_mounts(container: Mapping[str, Any]) -> tuple[str, ...]:
    """Return where volumes are mounted, but for places that never have packages."""
    places = (
        clean_path(read_text(read_mapping(mount).get("mountPath")))
        for mount in read_list(container.get("volumeMounts"))
    )
    kept = (one for one in places if one and not f"{one}/".startswith(_WITHOUT_PACKAGES))
    return tuple(dict.fromkeys(kept))


def is_on_volume(path: str, mounts: Sequence[str]) -> bool:
    """Return whether a path is a volume, or on one."""
    return any(f"{path}/".startswith(f"{mount.rstrip('/')}/") for mount in mounts)


def programs_on_volumes(
    container: Mapping[str, Any], mounts: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return sentences about interpreters on a volume that a command names, and other programs.

    Those in the script of a shell and after ``env`` count as well; other programs where they are in
    a folder ``bin``, as those of a virtual environment are.
    """
    folder = read_text(container.get("workingDir"))
    words = [*read_list(container.get("command")), *read_list(container.get("args"))]
    parts: set[str] = set()
    for word in words if mounts else ():
        if isinstance(word, str) and "/" in word:
            parts.update(part for part in _SHELL.split(word) if _PROGRAM.search(part))
    if len(parts) > _MOST_PROGRAMS:
        return [f"its command names {len(parts)} programs, which may be on a volume"], []
    interpreters, others = [], []
    for part in sorted(parts):
        program = clean_path(posixpath.join(folder, part))
        if (folder or part.startswith("/")) and is_on_volume(program, mounts):
            if INTERPRETER.fullmatch(posixpath.basename(program)):
                interpreters.append(f"{program} is an interpreter on a volume, which was not read")
            else:
                others.append(f"{program} is a program on a volume, which was not read")
    return interpreters, others


def hidden_packages(mounts: Sequence[str]) -> Iterator[str]:
    """Yield a sentence about each volume within packages."""
    for mount in mounts:
        if _PACKAGES.search(mount):
            yield f"a volume is mounted at {mount}, over packages of the image, and was not read"


def replaced_parts(container: Mapping[str, Any], mounts: Sequence[str]) -> Iterator[str]:
    """Yield a sentence about each variable and command that may run other packages."""
    env = {
        item["name"]: item
        for item in read_list(container.get("env"))
        if isinstance(item, dict) and item.get("name") in _LEADING
    }
    for name, item in env.items() if mounts else ():
        value = read_text(item.get("value"))
        if "valueFrom" in item or "$(" in value:
            yield f"{name} has an unknown value and may lead to a volume, which was not read"
        for place in filter(lambda one: one.startswith("/"), _SEPARATORS.split(value)):
            if is_on_volume(clean_path(place), mounts):
                yield f"{name} leads to {place}, on a volume, which was not read"
    started = read_mapping(read_mapping(container.get("lifecycle")).get("postStart"))
    words = [
        *read_list(container.get("command")),
        *read_list(container.get("args")),
        *read_list(read_mapping(started.get("exec")).get("command")),
    ]
    if found := _INSTALLS.search(" ".join(word for word in words if isinstance(word, str))):
        yield f"its command installs packages ({found[0][:60]}), which were not read"
