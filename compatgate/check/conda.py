"""Lock a conda environment with conda's solver, for a machine that has the pools' driver and GPU.

The solver is rattler, as in pixi; it reads the channels of the file. What it is told of the machine
are virtual packages: ``__cuda`` is the lowest CUDA that a pool's driver reports. The lock is an
explicit list, which conda, mamba and pixi install.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from compatgate.check.project import ProjectFile, read_project_text, select_parts
from compatgate.check.resolver import Pins, Resolved
from compatgate.core.components import COMPONENTS
from compatgate.core.constraints import parse_constraint
from compatgate.errors import BadInput, Unavailable, quote_error
from compatgate.release import install_hint

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from compatgate.core.facts import Facts
    from compatgate.core.request import Pool

T = TypeVar("T")
LOCK_NAME = "conda-{platform}.lock"
_PATIENCE = timedelta(minutes=5)
_PLATFORMS = {
    ("linux", "x86_64"): "linux-64",
    ("linux", "aarch64"): "linux-aarch64",
    ("windows", "x86_64"): "win-64",
    ("windows", "aarch64"): "win-arm64",
}
_SYSTEMS = {
    "linux": {"__unix": "0", "__linux": "5.10", "__glibc": "2.28"},
    "windows": {"__win": "10"},
}
"""Virtual packages of the oldest system that is still common."""


class CondaEnvironment:
    """An environment to lock for pools.

    Args:
        path: of the ``environment.yml``.
        facts: the catalog.
        pools: that the environment must run on.
        platform: system and processor to resolve for.
        channels: instead of those of the file.

    Raises:
        BadInput: the file is malformed, names no channel, or nothing with GPU code.
        Unavailable: rattler is not installed.
    """

    name = "conda"

    def __init__(
        self,
        path: str,
        facts: Facts,
        pools: Sequence[Pool],
        platform: tuple[str, str],
        channels: Sequence[str] = (),
    ) -> None:
        from compatgate.core.build_environment import build_environment

        self._rattler = _import_rattler()
        self._path = path
        self._platform = _PLATFORMS[platform]
        document = _read_document(path)
        self._channels = [*channels] or _read_channels(document, path)
        self._specs, pip = _read_dependencies(document, path)
        self._override = build_environment(pools, facts).variables
        self._virtual = self._list_virtual(platform[0])
        self.project = self._read_project(facts, pip)
        self.lock_name = LOCK_NAME.format(platform=self._platform)

    def _read_project(self, facts: Facts, pip: Sequence[str]) -> ProjectFile:
        from compatgate.discovery.lockfiles.stack_components import (
            find_conda_component,
            parse_conda_spec,
        )

        stated: dict[str, str] = {}
        names: dict[str, str] = {}
        python = ""
        for spec in self._specs:
            package = parse_conda_spec(spec, self._path)
            if package is None:
                raise BadInput("is not a conda dependency", field=self._path, value=spec)
            component = find_conda_component(package)
            part = component.name if component else package.name
            asked = self._version_of(spec)
            if part == "python":
                python = asked
            elif part not in COMPONENTS or part in facts.frameworks:
                stated[part] = asked
                names[part] = package.name
        notes = [f"{len(pip)} packages of pip are left out: lock them with uv"] if pip else []
        wants, more = select_parts(stated, facts, self._path)
        kept = {part: names[part] for part in wants}
        wants = {part: self._bound(part, kept[part], text) for part, text in wants.items()}
        return ProjectFile(Path(self._path), wants, python, kept, (*notes, *more))

    def _version_of(self, spec: str) -> str:
        """Return the version that a specification asks for: ``2.5.*``; empty for any."""
        try:
            return str(self._rattler.MatchSpec(spec).version or "")
        except Exception as error:
            what = f"is not a conda dependency: {quote_error(error)}"
            raise BadInput(what, field=self._path, value=spec) from None

    def _bound(self, part: str, name: str, wanted: str) -> str:
        """Return a constraint with the newest version that the channels have.

        Raises:
            BadInput: no channel has the package.
        """

        async def ask() -> Any:
            gateway = self._rattler.Gateway()
            return await gateway.query(self._sources(), self._subdirs(), [name], recursive=False)

        records = [record for of_subdir in self._run(ask()) for record in of_subdir]
        if not records:
            where = ", ".join(self._channels)
            hint = f"for {self._platform}; name others with --channel"
            raise BadInput(f"{where} has no {name}", field="--in", value=self._path, hint=hint)
        bound = f"<={max(record.version for record in records)}"
        try:
            parse_constraint(part, bound)
        except BadInput:  # a version that only conda can read
            return wanted
        return bound if wanted == "*" else f"{wanted},{bound}"

    def labels(self) -> None:
        """Return None: a channel has builds of its own."""

    def pins(self, stack: dict[str, Any]) -> Pins:
        """Return the versions of the environment's own parts in a stack."""
        versions = {}
        for part, name in self.project.names.items():
            if isinstance(text := stack.get(part), str):
                versions[name] = text.partition("[")[0].partition("+")[0]
        return Pins(versions, {})

    def revise(self, pins: Pins, verdicts: Sequence[dict[str, Any]]) -> Pins | None:
        """Return pins that allow no CUDA newer than the driver's.

        Without them a newer one may be chosen, which runs by minor-version compatibility alone.
        """
        cuda = self._override.get("CONDA_OVERRIDE_CUDA")
        if pins.bounds or cuda is None:
            return None
        return Pins(pins.versions, {}, bounds=(f"cuda-version<={cuda}",))

    def resolve(self, pins: Pins, python: str) -> Resolved:
        """Solve the environment with pins as constraints.

        Args:
            pins: versions that packages must have where the environment has them.
            python: version to resolve for, ``3.12``.

        Raises:
            Unavailable: a channel does not answer in five minutes.
        """
        rattler = self._rattler

        async def ask() -> Any:
            return await rattler.solve(
                self._sources(),
                [*self._specs, f"python {python}.*"],
                platforms=self._subdirs(),
                virtual_packages=self._virtual,
                constraints=[_spell(one) for one in pins.constraints()],
                timeout=_PATIENCE,
            )

        try:
            records = self._run(ask())
        except rattler.exceptions.SolverError as error:
            return Resolved(b"", quote_error(error))
        return Resolved(self._write(records).encode())

    def _write(self, records: Sequence[Any]) -> str:
        lines = [f"# platform: {self._platform}", "@EXPLICIT"]
        for record in sorted(records, key=lambda one: str(one.name.normalized)):
            digest = f"#{record.md5.hex()}" if record.md5 else ""
            lines.append(f"{record.url}{digest}")
        return "\n".join([*lines, ""])

    def _list_virtual(self, system: str) -> list[Any]:
        versions = dict(_SYSTEMS[system])
        for name, variable in (
            ("__cuda", "CONDA_OVERRIDE_CUDA"),
            ("__cuda_arch", "CONDA_OVERRIDE_CUDA_ARCH"),
        ):
            if value := self._override.get(variable):
                versions[name] = value
        rattler = self._rattler
        return [
            rattler.GenericVirtualPackage(
                rattler.PackageName(name), rattler.Version(version), rattler.BuildString("0")
            )
            for name, version in versions.items()
        ]

    def _sources(self) -> list[Any]:
        return [self._rattler.Channel(channel) for channel in self._channels]

    def _subdirs(self) -> list[str]:
        return [self._platform, "noarch"]

    def _run(self, asked: Coroutine[Any, Any, T]) -> T:
        """Wait for rattler.

        Raises:
            Unavailable: a channel does not answer, or is none.
        """
        exceptions = self._rattler.exceptions
        try:
            return asyncio.run(asked)
        except (exceptions.FetchRepoDataError, exceptions.GatewayError) as error:
            what = f"a channel cannot be read: {quote_error(error)}"
            raise Unavailable(what, field="--channel", value=", ".join(self._channels)) from None


def _spell(constraint: str) -> str:
    """Return a constraint as conda writes it: ``pytorch ==2.5.1``."""
    at = min(constraint.find(sign) for sign in "=<>" if sign in constraint)
    return f"{constraint[:at]} {constraint[at:]}"


def _import_rattler() -> Any:
    try:
        import rattler
        import rattler.exceptions
    except ImportError:
        raise Unavailable(
            "conda's solver is not installed", field="rattler", hint=install_hint("conda")
        ) from None
    return rattler


def _read_document(path: str) -> dict[str, Any]:
    from compatgate.discovery.lockfiles.text import read_yaml

    document = read_yaml(read_project_text(Path(path)), path)
    if not isinstance(document, dict):
        hint = "a mapping with channels and dependencies"
        raise BadInput("is not a conda environment", field="--in", value=path, hint=hint)
    return document


def _read_channels(document: dict[str, Any], path: str) -> list[str]:
    channels = document.get("channels")
    listed = channels if isinstance(channels, list) else []
    named = [str(one) for one in listed if one != "nodefaults"]
    if not named:
        hint = "state channels in the file, or --channel conda-forge"
        raise BadInput("must name at least one channel", field="--in", value=path, hint=hint)
    return named


def _read_dependencies(document: dict[str, Any], path: str) -> tuple[list[str], list[str]]:
    """Return the specifications of conda, and those of pip."""
    stated = document.get("dependencies")
    if not isinstance(stated, list):
        hint = "a conda environment has a list of dependencies"
        raise BadInput("is not a conda environment", field="--in", value=path, hint=hint)
    specs = [one for one in stated if isinstance(one, str)]
    nested = [one.get("pip") for one in stated if isinstance(one, dict)]
    if len(specs) + len(nested) != len(stated) or not all(isinstance(one, list) for one in nested):
        raise BadInput("a dependency must be text or a pip list", field="--in", value=path)
    return specs, [str(line) for lines in nested for line in lines or ()]
