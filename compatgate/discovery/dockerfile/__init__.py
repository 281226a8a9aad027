"""Read what a Dockerfile says of its image: the image that it begins from, and hints.

A build runs programs, so that nothing short of it knows what the image holds. Known are the image
that the last stage begins from, and what lines state that install pinned packages or set variables
of NVIDIA's images: hints, which may deny. What ``RUN``, ``COPY`` and ``ADD`` bring is open, so that
no Dockerfile with one of them passes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts.packages import Packages
from compatgate.discovery.dockerfile.parse import (
    LARGEST_FILE,
    PLATFORM_ARGUMENTS,
    Build,
    Instruction,
    parse_instructions,
    resolve_build,
    split_words,
)
from compatgate.discovery.image.config import read_config
from compatgate.discovery.lockfiles import stack_components
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.read import read_lockfile
from compatgate.discovery.lockfiles.text import decode_text
from compatgate.discovery.observations import Observation
from compatgate.discovery.registry.image_spec import Config, Settings
from compatgate.discovery.signals import Signals, read_signals
from compatgate.errors import CompatgateError

_FILE_NAME = re.compile(r"(?:.*\.)?(?:Dockerfile|Containerfile)(?:[.-].*)?", re.IGNORECASE)
_SCRATCH = "scratch"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_COMMANDS = re.compile(r"&&|\|\||[;|\n]")
_BRINGS = ("RUN", "COPY", "ADD")
_MAX_PLACES = 30
_PIP = re.compile(r"(?:.*/)?pip3?(?:\.\d+)?$")
_PYTHON = re.compile(r"(?:.*/)?python[\d.]*$")
_CONDA = ("conda", "mamba", "micromamba")
_INDEX_OPTIONS = ("-i", "--index-url", "--extra-index-url", "--index", "--default-index")
_VALUE_OPTIONS = (
    *_INDEX_OPTIONS,
    *("-r", "--requirement", "-e", "-c", "--constraint", "-t", "--target", "--prefix", "--root"),
    *("-f", "--find-links", "-n", "--name", "-p", "--channel", "--index-strategy", "--timeout"),
    *("--platform", "--python", "--python-version", "--trusted-host", "--only-binary"),
    *("--no-binary", "--torch-backend"),
)


class Hint(Struct, frozen=True):
    """A statement of a line about the image, and the number of the line."""

    line: int
    observation: Observation


class DockerfileReading(Struct, frozen=True):
    """What a Dockerfile states about its image.

    The base is that of the last stage, empty for ``scratch``; later lines give hints, in order.
    ``require`` are expressions of ``NVIDIA_REQUIRE_*`` that it sets.
    """

    base: str
    base_line: int
    hints: tuple[Hint, ...] = ()
    require: tuple[str, ...] = ()
    open: tuple[str, ...] = ()

    @property
    def observations(self) -> tuple[Observation, ...]:
        """Return the hints as observations, the last of each component alone."""
        last = {hint.observation.component: hint.observation for hint in self.hints}
        return tuple(last.values())


def is_dockerfile(path: str) -> bool:
    """Return whether a path has the name of a Dockerfile: ``Dockerfile.gpu``, ``Containerfile``."""
    return _FILE_NAME.fullmatch(os.path.basename(path)) is not None


def read_dockerfile(
    path_or_name: str,
    data: bytes,
    *,
    known: Packages,
    signals: Mapping[str, Any],
    platform: Platform | None = None,
    arguments: Mapping[str, str] | None = None,
    target: str = "",
) -> DockerfileReading:
    """Read a Dockerfile with build arguments, for a stage to build (empty: the last one).

    ``signals`` is the fact file ``image_signals``.
    """
    name = os.path.basename(path_or_name) or "Dockerfile"
    platform = platform or Platform()
    text = decode_text(data, name, LARGEST_FILE)
    cpu = _ARCHITECTURES.get(platform.cpu, platform.cpu)
    preset = dict(zip(PLATFORM_ARGUMENTS, ("linux", cpu, f"linux/{cpu}", "") * 2, strict=True))
    build = resolve_build(
        parse_instructions(text, name), name, {**preset, **(arguments or {})}, target
    )
    hints, require, left = _read_variables(build, name, read_signals(signals))
    for one in (one for stage in build.chain for one in stage.instructions if one.word == "RUN"):
        more, unknown = _read_run(one, name, known, platform)
        hints += more
        left += unknown
    base = "" if build.base.lower() == _SCRATCH else build.base
    if not base:
        left.append(f"{name}:{build.chain[0].line}: FROM scratch begins without an image")
    left += _describe_unknown(build, name)
    hints.sort(key=lambda hint: hint.line)
    return DockerfileReading(
        base, build.chain[0].line, tuple(hints), tuple(require), tuple(dict.fromkeys(left))
    )


def _read_variables(
    build: Build, name: str, signals: Signals
) -> tuple[list[Hint], list[str], list[str]]:
    stated = {key: value for stage in build.chain for key, value in stage.variables.items()}
    env = [f"{key}={value}" for key, (value, _) in stated.items()]
    reading = read_config(Config(config=Settings(env=env)), signals)
    hints = []
    for observation in reading.observations:
        key = observation.origin.removeprefix("env ").partition(":")[0]
        line = stated[key][1] if key in stated else build.chain[0].line
        origin = f"{name}:{line}: ENV {key}"
        hints.append(Hint(line, replace(observation, origin=origin, confidence="derived")))
    left = [
        f"{name}:{line}: ENV {key} changes what the container runtime asks of the driver"
        for key, (value, line) in stated.items()
        if key.startswith(("NVIDIA_REQUIRE_", "NVIDIA_DISABLE_REQUIRE"))
    ]
    asked = any(key.startswith("NVIDIA_REQUIRE_") for key in stated)  # else the version implies it
    return hints, list(reading.require) if asked else [], left


def _describe_unknown(build: Build, name: str) -> Iterator[str]:
    """Yield one sentence for all instructions whose effect only a build shows."""
    lines: dict[str, list[str]] = {}
    for stage in build.chain:
        for one in stage.instructions:
            if one.word in _BRINGS:
                source = f" from {one.flags['from']}" if one.flags.get("from") else ""
                lines.setdefault(f"{one.word}{source}", []).append(str(one.line))
    if not lines:
        return
    shown = [f"{word} ({', '.join(at[:_MAX_PLACES])})" for word, at in lines.items()]
    more = f" and {len(shown) - _MAX_PLACES} more" if len(shown) > _MAX_PLACES else ""
    what = ", ".join(shown[:_MAX_PLACES]) + more
    hint = "check the image with --image"
    yield f"what {what} of {name} bring is not known before the build; {hint}"


def _read_run(
    one: Instruction, name: str, known: Packages, platform: Platform
) -> tuple[list[Hint], list[str]]:
    """Return what the install commands of a line state, and what they leave open."""
    hints: list[Hint] = []
    left: list[str] = []
    where = f"{name}:{one.line}"
    parts = _COMMANDS.split(f"{one.text}\n{one.body}")
    if one.text.startswith("[") and one.text.endswith("]"):  # the form of a JSON list
        parts = [one.text[1:-1].replace(",", " ")]
    for part in parts:
        kind, rest = _install_command(split_words(part))
        observations: Iterable[Observation] = ()
        unknown: Iterable[str] = ()
        if kind == "pip":
            observations, unknown = _read_pip(rest, where, known, platform)
        elif kind == "conda":
            _, named = _split_options(rest)
            specs = [stack_components.parse_conda_spec(word, where) for word in named]
            packages = stack_components.observe_conda([spec for spec in specs if spec])
            observations, unknown = packages.observations, packages.open
        hints += (
            Hint(one.line, replace(each, origin=f"{where}: RUN", confidence="derived"))
            for each in observations
        )
        left += unknown
    return hints, left


def _install_command(words: list[str]) -> tuple[str, list[str]]:
    at = next((n for n, word in enumerate(words) if word in ("install", "add", "create")), 0)
    before, after = words[:at], words[at + 1 :]
    names = [os.path.basename(word) for word in before]
    if not at:
        return "", []
    is_python = any(map(_PYTHON.match, before)) and "-m" in before and "pip" in names
    if is_python or any(map(_PIP.match, before)):
        return "pip", after
    return ("conda", after) if any(name in _CONDA for name in names) else ("", [])


def _split_options(words: Iterable[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the options that have values, with these, and the other arguments."""
    options: list[tuple[str, str]] = []
    arguments: list[str] = []
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if not word.startswith("-"):
            arguments.append(word)
        elif equals or option in _VALUE_OPTIONS:
            options.append((option, value if equals else next(rest, "")))
    return options, arguments


def _read_pip(
    words: list[str], where: str, known: Packages, platform: Platform
) -> tuple[list[Observation], list[str]]:
    """Read the requirements of ``pip install`` as a requirements file with its options."""
    options, arguments = _split_options(words)
    lines = [
        f"{'--extra-index-url' if 'extra' in option else '--index-url'} {value}"
        for option, value in options
        if option in _INDEX_OPTIONS
    ]
    left = [
        f"{where}: pip installs from {value[:200]}, which is not read: give --lock"
        for option, value in options
        if option in ("-r", "--requirement")
    ]
    named = [word for word in arguments if not word.startswith((".", "/", "git+", "$"))]
    if not named:
        return [], left
    text = "\n".join([*lines, *named])
    try:
        reading = read_lockfile(
            "requirements.txt", text.encode("utf-8", "replace"), known=known, platform=platform
        )
    except CompatgateError as error:
        return [], [*left, f"{where}: pip install is not understood: {error.problem[:200]}"]
    if reading.unrelated:
        return [], left
    unknown = [sentence.replace("requirements.txt:", f"{where}, ") for sentence in reading.open]
    return list(reading.observations), [*left, *unknown]
