"""Read the GPU parts that a project asks for, and hand a stack to uv, which makes the lock."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement

from compatgate.core.components import COMPONENTS, find_component, is_framework
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts import Facts
from compatgate.core.package_requirements import Platform
from compatgate.core.request import Cpu, Os
from compatgate.core.stack import canonical_key
from compatgate.core.vocabulary import NOT_ON_INDEX
from compatgate.errors import BadInput, Unavailable, quote_error
from compatgate.resources import install_hint

LOCK_NAME = "pylock.toml"
TORCH_INDEX = "https://download.pytorch.org/whl/{label}"
_MAJOR = re.compile(r"cu(\d\d)")
"""Label of a build whose distribution names its CUDA: ``cupy-cuda12x``."""
_PYTHON = re.compile(rb'^requires-python = "[^"]*"', re.MULTILINE)
_PATIENCE_S = 600
_MAX_LINES = 24
_PLATFORMS = {
    ("linux", "x86_64"): "x86_64-manylinux_2_28",
    ("linux", "aarch64"): "aarch64-manylinux_2_28",
    ("windows", "x86_64"): "x86_64-pc-windows-msvc",
    ("windows", "aarch64"): "aarch64-pc-windows-msvc",
}
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
        with suppress(UndefinedEnvironmentName):
            if asked.marker and not asked.marker.evaluate(environment):
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
        named = (_CUDA_EXTRA.match(extra) for extra in sorted(asked.extras))  # jax[cuda12]
        component = find_component(asked.name)  # cupy-cuda12x
        own = str(component.cuda[0]) if component and component.cuda else ""
        if major := next((match[1] for match in named if match), own):
            wants["cuda"] = f"{major}.*"
    if not names:
        hint = "run uv pip compile itself: the project has no GPU part to choose"
        raise BadInput("names no part with GPU code", field="--in", value=path, hint=hint)
    return ProjectFile(file, wants, python, names, tuple(notes))


def _read_text(file: Path) -> str:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", field="--in", value=str(file)) from None
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


class Pins(Struct, frozen=True):
    """The part of a stack that a resolver is told; ``left`` says what no distribution states."""

    versions: dict[str, str]
    indexes: dict[str, str]
    left: tuple[str, ...] = ()

    @property
    def sources(self) -> dict[str, str]:
        """Return the name of the index of each distribution that has an index of its own."""
        labels = {name: text.partition("+")[2] for name, text in self.versions.items()}
        return {name: f"builds-{one}" for name, one in labels.items() if one in self.indexes}

    def constraints(self) -> list[str]:
        """Return the pins as requirements."""
        return [f"{name}=={version}" for name, version in self.versions.items()]

    def edit(self) -> str:
        """Return the part of a ``pyproject.toml`` that makes ``uv lock`` choose the same versions.

        An explicit index serves only the packages that name it.
        """
        pins = [f'    "{one}",' for one in self.constraints()]
        lines = ["[tool.uv]", "constraint-dependencies = [", *pins, "]"]
        return "\n".join([*lines, *self._index_tables()])

    def companion(self) -> str:
        """Return a project that names the distributions of other indexes, for ``uv pip compile``.

        A constraint alone names no index.
        """
        named = ", ".join(f'"{name}=={self.versions[name]}"' for name in self.sources)
        lines = ["[project]", 'name = "builds-for-this-target"', 'version = "0"']
        return "\n".join([*lines, f"dependencies = [{named}]", *self._index_tables()])

    def _index_tables(self) -> list[str]:
        if not self.sources:
            return []
        lines = ["", "[tool.uv.sources]"]
        lines += [f'{name} = {{ index = "{index}" }}' for name, index in self.sources.items()]
        used = set(self.sources.values())
        for label, url in self.indexes.items():
            if f"builds-{label}" in used:
                lines += ["", "[[tool.uv.index]]", f'name = "builds-{label}"']
                lines += [f'url = "{url}"', "explicit = true"]
        return lines


def find_uv() -> str:
    """Return the path of uv."""
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        program = shutil.which("uv")
    if program is None:
        hint = install_hint("lock")
        raise Unavailable("the resolver uv is not installed", field="uv", hint=hint)
    return program


def pins_of(stack: Mapping[str, str], names: Mapping[str, str], indexes: Mapping[str, str]) -> Pins:
    """Return what a resolver is told of a stack.

    ``indexes`` has an index for each label; the empty one is a template with ``{label}``.
    """
    versions: dict[str, str] = {}
    used: dict[str, str] = {}
    left = []
    for part, text in stack.items():
        version, bracket, _ = text.partition("[")
        if part not in names:
            continue
        if bracket:
            left.append(f"{part} {text}: a lock does not state the GPU code that it is built for")
        public, _, label = version.partition("+")
        if _MAJOR.fullmatch(label):
            version, label = public, ""
        url = indexes.get(label) or (indexes.get("", "").replace("{label}", label) if label else "")
        if label and not url:
            version = public
        elif label:
            used[label] = url
        versions[names[part]] = version
    return Pins(versions, used, tuple(left))


def name_distributions(stack: Mapping[str, Any], facts: Facts) -> dict[str, str]:
    """Return part to distribution, of the parts of a stack that the package index has.

    The distribution of a part may name the CUDA that its build is for.
    """
    cuda = str(stack.get("cuda", "")).partition(".")[0]
    names = {}
    for part, text in stack.items():
        table = facts.framework(part) if part in facts.framework_names else None
        on_index = table or part not in COMPONENTS or is_framework(part)
        if part in NOT_ON_INDEX or not on_index or not isinstance(text, str):
            continue
        label = _MAJOR.fullmatch(text.partition("+")[2])
        by_cuda = table is not None and not any(b.default for r in table.releases for b in r.builds)
        major = label[1] if label else cuda if by_cuda else ""
        recorded = facts.recorded_name(part, (int(major),) if major else None)
        names[part] = f"{part}-cu{major}" if major and recorded == part else recorded
    return names


class UvProject:
    """A project that uv locks for one system and processor."""

    def __init__(self, args: argparse.Namespace, facts: Facts, platform: tuple[Os, Cpu]) -> None:
        self._args, self._facts, self._platform = args, facts, platform
        environment = Platform(*platform, None).environment
        self.project: ProjectFile = read_project(args.source, facts, environment)
        self._indexes = {"": TORCH_INDEX}  # the empty label is the template of all others
        for text in args.build_index:
            label, equals, url = text.partition("=")
            if not equals or "/" in label:
                label, url = "", text
            if url != "none" and not url.startswith(("https://", "http://", "file://")):
                hint = "cu126=https://..., or none"
                raise BadInput("names no URL", field="--build-index", value=text, hint=hint)
            self._indexes[label] = "" if url == "none" else url

    def labels(self) -> list[str] | None:
        """Return the labels of builds that an index of builds has; None: any."""
        if self._indexes[""]:
            return None
        return [label for label, url in self._indexes.items() if url]

    def pins(self, stack: Mapping[str, Any]) -> Pins:
        """Return the pins of a stack: the project's parts, and packages that the stack brings."""
        names = name_distributions(stack, self._facts)
        return pins_of(
            {part: text for part, text in stack.items() if isinstance(text, str)},
            {**names, **self.project.names},
            self._indexes,
        )

    def resolve(self, pins: Pins, python: str) -> tuple[bytes, str]:
        """Return the lock of ``uv pip compile`` with the pins as constraints, else its words."""
        with tempfile.TemporaryDirectory(prefix="compatgate-lock-") as folder:
            here = Path(folder)
            constraints, lock = here / "constraints.txt", here / LOCK_NAME
            constraints.write_text("".join(f"{one}\n" for one in pins.constraints()))
            sources = [str(self.project.path)]
            if pins.sources:
                companion = here / "pyproject.toml"
                companion.write_text(pins.companion())
                sources.append(str(companion))
            overrides = self._args.overrides
            command = [
                *(find_uv(), "pip", "compile", *sources, "-c", str(constraints)),
                *(("--overrides", overrides) if overrides else ()),
                *("--python-version", python, "--python-platform", _PLATFORMS[self._platform]),
                *("--format", "pylock.toml", "-o", str(lock), "--no-header", "--no-progress"),
                *("--color", "never", "--quiet", *self._args.options),
            ]
            try:
                done = subprocess.run(  # noqa: S603 - a fixed program, without a shell
                    command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
                )
            except subprocess.TimeoutExpired:
                raise Unavailable(f"uv did not end within {_PATIENCE_S} s", field="uv") from None
            if not done.returncode and lock.exists():
                # uv writes the one Python that the lock is for as the lowest
                stated = b'requires-python = "==%s.*"' % python.encode()
                return _PYTHON.sub(stated, lock.read_bytes(), count=1), ""
            lines = done.stderr.replace(f"{here}/", "").strip().splitlines()
            more = ["..."] if len(lines) > _MAX_LINES else []
            return b"", "\n".join(lines[:_MAX_LINES] + more)

    def revise(self, pins: Pins, verdicts: Sequence[Mapping[str, Any]]) -> Pins | None:
        """Return pins with recorded releases of packages whose content is not known."""
        releases: dict[str, str] = {}
        for finding in (one for verdict in verdicts for one in verdict["findings"]):
            name = finding["component"]
            if finding["rule"] == "CG410" and name not in pins.versions:
                known = self._facts.recorded_versions(name)
                releases |= {name: known[-1].public} if known else {}
        return replace(pins, versions={**pins.versions, **releases}) if releases else None
