"""Read stacks from lockfiles, bills of materials, images in registries and Dockerfiles.

Lockfiles and image indexes may hold a part for each platform; the systems and processors of the
pools select it. Each component keeps its line, so that reviews show findings there. What the build
of a Dockerfile brings is open, so that the answer denies or knows too little, and never passes
where a line brings files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.catalog import read_source
from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import Gpus
from compatgate.core.facts.packages import Packages
from compatgate.core.request import Cpu, Os, Pool, change_pool
from compatgate.core.stack import canonical_key
from compatgate.discovery.cache import default_image_folder
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.observations import Conflict, Observation, settle
from compatgate.discovery.registry.limits import read_options
from compatgate.discovery.signals import COMPAT_USE, CUDA_COMPAT
from compatgate.discovery.stated_stack import (
    attach_remarks,
    attach_wheels,
    merge_bodies,
    prefer_stated,
)
from compatgate.errors import BadInput, CompatgateError, naming
from compatgate.formats.reports import Place
from compatgate.kit.cli.output import name_input, read_bytes

if TYPE_CHECKING:
    from compatgate.discovery.image.reading import ImageReading
    from compatgate.discovery.lockfiles.interface import LockReading, PackageOrigin
    from compatgate.discovery.sbom.formats import SbomReading

Body = dict[str, Any]


class Platforms(Struct, frozen=True):
    """The platforms of a question, and the one to read files for, which is the first of all.

    ``wsl`` counts as Linux; ``known``: the gate reported the target's pools.
    """

    os: Os = "linux"
    cpu: Cpu = "x86_64"
    all: tuple[tuple[Os, Cpu], ...] = ()
    known: bool = True

    def remarks(self, what: str) -> Body:
        """Return the platforms of a lockfile or image that were not read, as unknowns."""
        read = f"{what} was read for {self.os} {self.cpu}"
        if not self.known:
            return {"unread": [f"{read}: the gate did not report the target's pools"]}
        others = ", ".join(f"{os} {cpu}" for os, cpu in self.all[1:])
        return {"open": [f"{read}; ask separately for pools of {others}"]} if others else {}

    def of_processors(self) -> Platforms:
        """Return the same platforms without systems: images are always for Linux."""
        cpus = dict.fromkeys(cpu for _, cpu in self.all)
        return Platforms(cpu=self.cpu, all=tuple(("linux", cpu) for cpu in cpus), known=self.known)


def read_platforms(
    pools: Sequence[Mapping[str, Any]],
    target_pools: Callable[[], Sequence[Mapping[str, Any]]] | None,
    changes: Mapping[str, Any],
    gpus: Gpus,
) -> Platforms:
    """Return the platforms of a question; changes of ``--set`` win.

    ``target_pools`` reads the target's pools; None without a target.
    """
    known = True
    if target_pools is not None:
        try:
            pools = target_pools()
        except BadInput:  # a token may have the right to ask, but not to read targets
            pools, known = (), "cpu" in changes

    def platform_part(body: Mapping[str, Any]) -> dict[str, Any]:
        return {key: body[key] for key in ("gpu", "os", "cpu") if body.get(key)}

    platforms: list[tuple[Os, Cpu]] = []
    for body in pools or ({},):
        pool = change_pool(Pool("pool", None, None), platform_part(body), gpus, path="pool")
        pool = change_pool(pool, platform_part(changes), gpus)
        platforms.append(("linux" if pool.os == "wsl" else pool.os, pool.cpu))
    return Platforms(platforms[0][0], platforms[0][1], tuple(dict.fromkeys(platforms)), known)


def read_image_stack(
    reference: str, platforms: Platforms, facts: Facts
) -> tuple[Body, dict[str, str]]:
    """Return the stack in an image, and the pinned ``image``.

    An image index has one image per processor; processors that were not read become unknowns.
    """
    reading = read_image_reference(reference, platforms.cpu, facts)
    body = reading.to_request()
    if reading.index:
        body = merge_bodies(body, platforms.of_processors().remarks("the image"))
    return body, {"image": reading.pinned}


def read_image_reference(
    reference: str, cpu: str | None, facts: Facts, *, local: bool = True
) -> ImageReading:
    """Read an image in a registry, or in a file, with the environment's settings."""
    from compatgate.discovery.image.local import is_local_image, read_local_image
    from compatgate.discovery.image.read import read_image

    options = replace(
        read_options(), cache=default_image_folder(), arch_facts=facts.arch, packages=facts.packages
    )
    platform = "linux/arm64" if cpu == "aarch64" else "linux/amd64"
    read = read_local_image if local and is_local_image(reference) else read_image
    return read(reference, signals=read_source("image_signals"), platform=platform, options=options)


def places_of(
    path: str, name: str, data: bytes, observations: Iterable[Observation]
) -> dict[str, Place]:
    """Return the place of each component: the first line of the file if none names it."""
    text = data.decode("utf-8", "replace")
    places: dict[str, Place] = {}
    for observation in observations:
        if observation.component in places:
            continue
        head, _, package = observation.origin.partition(": ")
        file, colon, number = head.rpartition(":")
        line = int(number) if colon and number.isdecimal() else 0
        file = file if line else head
        if file == name:
            place = Place(path, line or _line_of(package.rpartition(" ")[2], text))
        else:  # an included file
            place = Place(os.path.join(os.path.dirname(path), file), max(line, 1))
        places[observation.component] = place
    return places


def _line_of(package: str, text: str) -> int:
    """Return the line that names the package: as a name, or else as a whole word."""
    word = re.escape(package)
    for pattern in (
        rf"^[ \t\-\[{{]*name[ \t]*[:=][ \t]*[\"']?{word}[\"']?[ \t,]*$",
        rf"(?<![\w\-]){word}(?!\w)",
    ):
        if package and (match := re.search(pattern, text, re.MULTILINE)):
            return text.count("\n", 0, match.start()) + 1
    return 1


def stated_place(text: str) -> Place:
    """Read ``Dockerfile`` or ``Dockerfile:3`` of ``--show-at``."""
    path, colon, number = text.rpartition(":")
    if path and colon and number.isdecimal() and int(number) > 0:
        return Place(path, int(number))
    return Place(text)


class FileStack(Struct, frozen=True):
    """The stack of a lockfile, which may have no GPU components, and a bill of materials."""

    stack: Body
    places: dict[str, Place] = {}
    unrelated: bool = False
    origins: dict[str, PackageOrigin] = {}


def read_files(
    lock: str | None, sbom: str | None, platforms: Platforms, stated: Body, known: Packages
) -> FileStack:
    """Merge the stack of a lockfile and an SBOM with the stated stack.

    Unknowns and conflicts of a file are part of the stack, so that no verdict ignores them. Stated
    versions win and are not unknown; a different version in a file is a finding.
    """
    python = next((v for k, v in stated.items() if canonical_key(k) == "python"), None)
    platform = Platform(os=platforms.os, cpu=platforms.cpu, python=python)
    body: Body = {}
    names = []
    written = FileStack({})
    origins: dict[str, PackageOrigin] = {}
    if sbom:
        from compatgate.discovery.sbom.read import read_sbom

        data = read_bytes(sbom, "--sbom")
        signals = read_source("image_signals")
        names.append(name_input(sbom))
        bill = read_sbom(names[-1], data, known=known, signals=signals, platform=platform)
        body = _body(bill)
        if "cuda-compat" in body:
            what = "a bill of materials does not state whether the library path has cuda-compat"
            body |= {"cuda-compat-use": "newer", "unread": [what]}
        origins = bill.origins
    if lock:
        names.append(name_input(lock))
        written = _read_lock(lock, platform, known)
        body = merge_bodies(merge_bodies(written.stack, platforms.remarks(names[-1])), body)
    stack = prefer_stated(body, stated, " and ".join(names))
    return replace(written, stack=stack, origins={**origins, **written.origins})


def _read_lock(lock: str, platform: Platform, known: Packages) -> FileStack:
    from compatgate.discovery.lockfiles.read import read_lockfile

    if "=" in lock and not os.path.exists(lock):
        hint = f"state versions with --stack {lock}"
        raise BadInput(f"'{lock}' is not a file", field="--lock", value=lock, hint=hint)
    data = read_bytes(lock, "--lock")
    path: Path | str = Path(lock) if lock != "-" else name_input(lock)
    try:
        reading = read_lockfile(path, data, known=known, platform=platform)
    except CompatgateError as error:
        name = Path(lock).name
        if error.field and error.field.startswith(name):  # another file may have the same name
            error.field = lock + error.field.removeprefix(name)
        raise
    return FileStack(
        attach_wheels(_body(reading, reading.arch), reading.wheels),
        places_of(lock, os.path.basename(path), data, reading.observations),
        reading.unrelated,
        reading.origins,
    )


def _body(reading: LockReading | SbomReading, arch: Iterable[str] = ()) -> Body:
    stack, disagreements = settle(reading.observations, arch)
    return attach_remarks(stack, reading.open, (*reading.conflicts, *disagreements))


class DockerfileStack(Struct, frozen=True):
    """The stack of a Dockerfile in the form of requests, with what is open."""

    stack: Body
    places: Mapping[str, Place] = {}
    observations: tuple[Observation, ...] = ()
    conflicts: tuple[Conflict, ...] = ()


def read_dockerfile_stack(
    path: str,
    build_arguments: Sequence[str],
    stage: str | None,
    platforms: Platforms,
    facts: Facts,
) -> DockerfileStack:
    """Read a Dockerfile for ``--build-arg`` and ``--build-stage``, and the image it begins from."""
    from compatgate.discovery.dockerfile import read_dockerfile

    arguments: dict[str, str] = {}
    for text in build_arguments:
        name, equals, value = text.partition("=")
        if not equals or not name:
            hint = "like --build-arg CUDA_VERSION=12.4.1"
            raise BadInput(f"{text!r} is not NAME=VALUE", field="--build-arg", hint=hint)
        arguments[name] = value
    reading = read_dockerfile(
        path,
        read_bytes(path, "--dockerfile"),
        known=facts.packages,
        signals=read_source("image_signals"),
        platform=Platform(cpu=platforms.cpu),
        arguments=arguments,
        target=stage or "",
    )
    base: ImageReading | None = None
    if reading.base:
        with naming(f"{os.path.basename(path)}:{reading.base_line}"):
            base = read_image_reference(reading.base, platforms.cpu, facts, local=False)
    # the hints are installed over the image
    below: Body = dict(base.to_request()) if base else {}
    if base and base.index:
        below = merge_bodies(below, platforms.of_processors().remarks("the image"))
    hinted, conflicts = settle(reading.observations)
    if CUDA_COMPAT not in {**below, **hinted}:
        hinted.pop(COMPAT_USE, None)
    measured = {k: v for k, v in below.get("measured", {}).items() if k not in hinted}
    below = {**{k: v for k, v in below.items() if k not in hinted}, "measured": measured}
    require = list(dict.fromkeys([*below.get("require", ()), *reading.require]))
    if require:
        hinted["require"] = require
    stack = merge_bodies(attach_remarks(hinted, reading.open, conflicts), below)
    places = dict.fromkeys(below, Place(path, reading.base_line))
    places |= {hint.observation.component: Place(path, hint.line) for hint in reading.hints}
    return DockerfileStack(
        stack,
        places,
        (*(base.observations if base else ()), *reading.observations),
        (*(base.conflicts if base else ()), *conflicts),
    )
