"""Read the stack of a Dockerfile: that of the image it begins from, and hints of its lines.

What the build brings is open, so that the answer denies or knows too little, and never passes
where a line brings files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from compatgate.catalog import read_source
from compatgate.check.stack_sources import Platforms, read_image_reference
from compatgate.core.facts import Facts
from compatgate.discovery.dockerfile import DockerfileReading, read_dockerfile
from compatgate.discovery.image.reading import ImageReading
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.observations import Conflict, Observation, settle
from compatgate.discovery.signals import COMPAT_USE, CUDA_COMPAT
from compatgate.discovery.stated_stack import attach_remarks, merge_bodies
from compatgate.errors import BadInput
from compatgate.formats.reports import Place
from compatgate.kit.cli.output import read_bytes

Body = dict[str, Any]


class BuildOptions(Struct, frozen=True):
    """The options of a build: values of ``ARG``, and the stage to build."""

    arguments: Mapping[str, str] = {}
    stage: str = ""


class DockerfileStack(Struct, frozen=True):
    """The stack of a Dockerfile in the form of requests, with what is open."""

    stack: Body
    places: Mapping[str, Place] = {}
    observations: tuple[Observation, ...] = ()
    conflicts: tuple[Conflict, ...] = ()


def read_build_options(arguments: Sequence[str], stage: str | None) -> BuildOptions:
    """Return the options of a build."""
    options: dict[str, str] = {}
    for text in arguments:
        name, equals, value = text.partition("=")
        if not equals or not name:
            hint = "like --build-arg CUDA_VERSION=12.4.1"
            raise BadInput(f"{text!r} is not NAME=VALUE", field="--build-arg", hint=hint)
        options[name] = value
    return BuildOptions(options, stage or "")


def read_dockerfile_stack(
    path: str, options: BuildOptions, platforms: Platforms, facts: Facts
) -> DockerfileStack:
    """Read a Dockerfile, and the image that it begins from in its registry."""
    reading = read_dockerfile(
        path,
        read_bytes(path, "--dockerfile"),
        known=facts.packages,
        signals=read_source("image_signals"),
        platform=Platform(cpu=platforms.cpu),
        arguments=options.arguments,
        target=options.stage,
    )
    base: ImageReading | None = None
    if reading.base:
        try:
            base = read_image_reference(reading.base, platforms.cpu, facts, local=False)
        except BadInput as error:
            error.field = f"{os.path.basename(path)}:{reading.base_line}"
            raise
    return _join(path, reading, base, platforms)


def _join(
    path: str, reading: DockerfileReading, base: ImageReading | None, platforms: Platforms
) -> DockerfileStack:
    """Join the image and the hints, which are installed over it."""
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
