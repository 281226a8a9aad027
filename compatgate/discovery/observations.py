"""Hold what discovery reports, and settle it: observations, conflicts and pools.

`settle` makes one stack of observations: it says which witness decides, and where others
disagree. The checks below say whether observations name one version and one CUDA, and any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct

from compatgate.core.components import is_framework
from compatgate.core.versions import Version, agree, parse_version, show
from compatgate.errors import BadInput

Confidence = Literal["measured", "metadata", "derived"]
"""``measured``: the running driver or process says so; ``metadata``: a version file, a package's
metadata or a file name says so; ``derived``: concluded from something else."""
DRIVER_CUDA = "driver-cuda"
"""Component name of observations of the CUDA version that the driver reports."""


class Observation(Struct, frozen=True):
    """One version, as one witness reports it.

    Attributes:
        component: canonical name of a component, or ``driver-cuda``.
        version: as the witness writes it.
        origin: where it was seen: a file, a command, an environment variable.
    """

    component: str
    version: str
    origin: str
    confidence: Confidence = "measured"

    def to_json(self) -> dict[str, Any]:
        """``{"component", "version", "origin", "confidence"}``."""
        return {
            "component": self.component,
            "version": self.version,
            "origin": self.origin,
            "confidence": self.confidence,
        }


class Conflict(Struct, frozen=True):
    """Witnesses that disagree, and which of them decides.

    Attributes:
        component: what they disagree on.
        message: one sentence with both values.
        decided: the value that counts; None: undecided.
    """

    component: str
    message: str
    decided: str | None = None

    def to_json(self) -> dict[str, Any]:
        """``{"component", "message", "decided"}``."""
        return {"component": self.component, "message": self.message, "decided": self.decided}


class ObservedPool(Struct, frozen=True):
    """GPUs of one kind on one host.

    Attributes:
        name: short name for messages, ``a100-sxm4-80gb``.
        gpu: product as reported, with its MIG profile, in a form that `resolve_gpu` reads.
        driver: kernel driver; None where the witness does not say.
        devices: GPUs, or MIG slices, of this kind.
        nodes: how many nodes are so; None where one host was looked at.
    """

    name: str
    gpu: str
    driver: str | None = None
    os: str = "linux"
    cpu: str | None = None
    devices: int = 1
    nodes: int | None = None

    def to_body(self) -> dict[str, Any]:
        """Return the pool of a request; a property that is not known is left out."""
        body: dict[str, Any] = {"name": self.name, "gpu": self.gpu}
        body |= {"driver": self.driver, "os": self.os, "count": self.nodes}
        if self.cpu:
            body["cpu"] = self.cpu
        return {key: value for key, value in body.items() if value is not None}


_RANK = {"measured": 0, "metadata": 1, "derived": 2}
_NOT_STACK = ("driver", DRIVER_CUDA)


def settle(
    observations: Sequence[Observation], arch: Iterable[str] | None = None
) -> tuple[dict[str, Any], tuple[Conflict, ...]]:
    """Return the stack that the observations describe, in JSON form, and where they disagree.

    What was measured decides over what metadata says, and among equals the earlier one.

    Args:
        observations: of one host, the witness that decides first.
        arch: GPU code that the frameworks carry.
    """
    stack: dict[str, Any] = {}
    conflicts: list[Conflict] = []
    for component in dict.fromkeys(o.component for o in observations):
        witnesses = sorted(
            (o for o in observations if o.component == component),
            key=lambda o: _RANK[o.confidence],
        )
        best = witnesses[0]
        if component not in _NOT_STACK:
            stack[component] = best.version
        for other in witnesses[1:]:
            if not _agree(best, other):
                conflicts.append(_conflict(best, other))
    if arch:
        stack["arch"] = list(arch)
    return stack, tuple(conflicts)


def _agree(one: Observation, other: Observation) -> bool:
    first, second = _version(one), _version(other)
    if first is None or second is None:
        return one.version == other.version
    return agree(first, second)


def _version(observation: Observation) -> Version | None:
    component = observation.component
    name = "cuda" if component in (DRIVER_CUDA, "cuda-compat") else component
    try:
        return parse_version(name, observation.version)
    except BadInput:
        return None


def _conflict(best: Observation, other: Observation) -> Conflict:
    message = (
        f"{best.origin} says {best.component} {best.version}, {other.origin} says {other.version}; "
        "the first decides"
    )
    return Conflict(best.component, message, best.version)


def without_cuda(
    observations: Sequence[Observation], of_index: Collection[str], file: str
) -> list[str]:
    """Frameworks of which nothing says for which CUDA they were built.

    The package index has one wheel of a version for a platform: what is from there is judged as
    that wheel, which the answer says as an assumption.

    Args:
        observations: of the file.
        of_index: components that are from the package index.
        file: its name.
    """
    if any(observation.component == "cuda" for observation in observations):
        return []
    frameworks = []
    for observation in observations:
        if not is_framework(observation.component):
            continue
        version = parse_version(observation.component, observation.version)
        if version.local.startswith(("cpu", "rocm", "xpu")):
            continue
        if version.cuda and len(version.cuda) > 1:
            return []
        if observation.component in of_index and not version.local:
            continue
        frameworks.append(f"{observation.component} {observation.version}")
    if not frameworks:
        return []
    return [f"cuda: {file} does not say which CUDA {', '.join(frameworks)} is built for"]


def two_cudas(observations: Sequence[Observation]) -> list[Conflict]:
    """Return builds that the runtime beside them cannot serve.

    A build for another major never fits; a framework built for a newer minor than the runtime's
    misses functions, while an older build runs on the newer libraries of its major. Libraries are
    built once for a major.
    """
    runtime = next((o for o in observations if o.component == "cuda"), None)
    if runtime is None:
        return []
    have = parse_version("cuda", runtime.version)
    found = []
    for observation in observations:
        if observation.component in ("cuda", "cuda-compat"):
            continue
        built = parse_version(observation.component, observation.version).cuda
        later = is_framework(observation.component) and built is not None and built > have.parts
        if built and (built[0] != have.major or later):
            message = (
                f"{observation.origin} is {observation.component} {observation.version}, built for "
                f"CUDA {show(built)}; {runtime.origin} locks CUDA {runtime.version}"
            )
            found.append(Conflict("cuda", message, runtime.version))
    return found


def several_versions(observations: Sequence[Observation], file: str) -> list[str]:
    """Return components in more than one version or build, of which nothing says which is used.

    The toolkit's parts have version numbers of their own, so CUDA is left to `settle`.
    """
    versions: dict[str, dict[tuple[object, ...], str]] = {}
    for observation in observations:
        component = observation.component
        if component in ("cuda", "cuda-compat", "cublas") or observation.confidence != "metadata":
            continue
        version = parse_version(component, observation.version)
        seen = versions.setdefault(component, {})
        seen.setdefault((version.key, version.local), observation.version)
    return [
        f"{component}: {file} has {' and '.join(texts.values())}"
        for component, texts in versions.items()
        if len(texts) > 1
    ]
