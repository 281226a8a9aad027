"""Read the GPU parts that a project asks for: of a ``requirements.in`` or a ``pyproject.toml``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct
from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement

from compatgate.core.components import find_component
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts import Facts
from compatgate.core.stack import canonical_key
from compatgate.errors import BadInput, quote_error

_LARGEST = 1024 * 1024
_CUDA_EXTRA = re.compile(r"cuda(\d{2})\b")
_INCLUDE = re.compile(r"(?:-r|--requirement)[ =](.+)")
_GPU_CONTENT = ("code", "runtime", "driver", "libraries", "bindings", "dependencies")
_MAX_INCLUDES = 16


class ProjectFile(Struct, frozen=True):
    """A project's file, the part of it that concerns GPUs, and notes on what was not read."""

    path: Path
    wants: dict[str, str]
    python: str = ""
    names: dict[str, str] = {}
    notes: tuple[str, ...] = ()


def read_project(path: str, facts: Facts, environment: dict[str, str]) -> ProjectFile:
    """Read the parts that have GPU code, by the facts.

    The environment decides markers (PEP 508); a marker that needs more counts as true.
    """
    file = Path(path)
    text = _read_text(file)
    if file.name == "pyproject.toml":
        stated, python = _read_pyproject(text, path)
    else:
        stated, python = list(_read_requirements(text, file, 0)), ""
    wants: dict[str, str] = {}
    names: dict[str, str] = {}
    notes: list[str] = []
    for asked in stated:
        if not _applies(asked, environment):
            continue
        part = canonical_key(asked.name)
        known = part in facts.frameworks or part in facts.recorded
        if not known and facts.packages.carries(part) not in _GPU_CONTENT:
            continue
        if asked.url:
            notes.append(f"{asked.name} is pinned by an address: it is left as it is")
            continue
        names[part] = asked.name
        constraint = str(asked.specifier)
        try:
            constraint = parse_constraint(part, constraint).text if constraint else ""
        except BadInput:
            notes.append(f"{asked.name}{constraint} is left to the resolver")
            constraint = ""
        stated_before = wants.get(part, "*").removeprefix("*")
        wants[part] = ",".join(filter(None, (stated_before, constraint))) or "*"
        if major := _cuda_major(asked):
            wants["cuda"] = f"{major}.*"
    if not names:
        hint = "run uv pip compile itself: the project has no GPU part to choose"
        raise BadInput("names no part with GPU code", field="--in", value=path, hint=hint)
    return ProjectFile(file, wants, python, names, tuple(notes))


def _read_text(file: Path) -> str:
    """Read a project's file."""
    try:
        data = file.read_bytes()
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise BadInput(what, field="--in", value=str(file)) from None
    if len(data) > _LARGEST:
        raise BadInput("is too large", field="--in", value=str(file), hint="at most 1 MiB")
    return data.decode("utf-8", "replace")


def _read_pyproject(text: str, path: str) -> tuple[list[Requirement], str]:
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else quote_error(error)
        raise BadInput(f"is not TOML: {reason}", field="--in", value=path) from None
    project: Any = document.get("project")
    if not isinstance(project, dict):
        hint = "uv resolves the dependencies of [project]"
        raise BadInput("has no table [project]", field="--in", value=path, hint=hint)
    dependencies = project.get("dependencies", [])
    python = project.get("requires-python", "")
    if not isinstance(dependencies, list) or not isinstance(python, str):
        raise BadInput("the table [project] is malformed", field="--in", value=path)
    return [_read_requirement(str(one), path) for one in dependencies], python


def _read_requirements(text: str, file: Path, depth: int) -> Iterator[Requirement]:
    for line in text.replace("\\\n", " ").splitlines():
        stated = re.split(r"(?:^|\s)#", line)[0].strip()
        if (match := _INCLUDE.match(stated)) and depth < _MAX_INCLUDES:
            other = file.parent / match[1].strip()
            yield from _read_requirements(_read_text(other), other, depth + 1)
        elif stated and not stated.startswith("-"):
            yield _read_requirement(stated.partition(" --")[0], str(file))


def _read_requirement(text: str, path: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        what = f"{text!r} is not a requirement: {quote_error(error)}"
        raise BadInput(what, field="--in", value=path, hint="for example torch>=2.6") from None


def _applies(asked: Requirement, environment: dict[str, str]) -> bool:
    try:
        return asked.marker is None or asked.marker.evaluate(environment)
    except UndefinedEnvironmentName:
        return True


def _cuda_major(asked: Requirement) -> str:
    """Return the CUDA that a requirement names: ``jax[cuda12]``, ``cupy-cuda12x``."""
    extras = (match[1] for extra in sorted(asked.extras) if (match := _CUDA_EXTRA.match(extra)))
    component = find_component(asked.name)
    return next(extras, str(component.cuda[0]) if component and component.cuda else "")
