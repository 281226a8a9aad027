"""Represent observations, conflicts and pools, and settle observations into a stack.

`settle` makes one stack of observations: the best witness decides, and the others that disagree
become conflicts. The checks below find components without a CUDA build, with two builds or with
several versions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict, replace

from compatgate.core.components import is_framework
from compatgate.core.node import NODE_COMPONENTS
from compatgate.core.versions import Version, agree, format_parts, parse_version
from compatgate.errors import BadInput

Confidence = Literal["measured", "metadata", "derived"]
"""``measured``: reported by the running driver or process; ``metadata``: stated by a version file,
a package's metadata or a file name; ``derived``: concluded from another observation."""
DRIVER_CUDA = "driver-cuda"
"""Component name for the CUDA version that the driver reports."""
_RANK = {"measured": 0, "metadata": 1, "derived": 2}
_NOT_STACK = ("driver", DRIVER_CUDA)
NodeParts = tuple[tuple[str, str], ...]
"""Parts of a node and their values, in the order of `NODE_COMPONENTS`."""


class Observation(Struct, frozen=True):
    """The version of a component, ``driver-cuda`` or a node's part, as one witness reports it."""

    component: str
    version: str
    origin: str
    confidence: Confidence = "measured"


class Conflict(Struct, frozen=True):
    """A disagreement between witnesses, and the value that decides; None: undecided."""

    component: str
    message: str
    decided: str | None = None


class ObservedPool(Struct, frozen=True):
    """GPUs of one kind on one host (``nodes`` is None) or several.

    What no witness tells is None. ``node`` has parts and settings in the order of
    `NODE_COMPONENTS`; ``sharing`` is how containers share a GPU.
    """

    name: str
    gpu: str
    driver: str | None = None
    os: str = "linux"
    cpu: str | None = None
    devices: int = 1
    nodes: int | None = None
    platform: str | None = None
    node: NodeParts = ()
    sharing: str | None = None

    def to_body(self) -> dict[str, Any]:
        """Return the pool of a request; a property that is not known is left out."""
        body = asdict(self) | {"count": self.nodes, "node": dict(self.node) or None}
        order = ("name", "gpu", "driver", "os", "count", "platform", "node", "sharing", "cpu")
        return {key: body[key] for key in order if body[key] not in (None, "")}

    def on_machine(self, node: Mapping[str, str], platform: str | None) -> ObservedPool:
        """Return the pool with the parts of its machine; what the pool states itself decides."""
        stated = {**node, **dict(self.node)}
        parts: NodeParts = tuple((name, stated[name]) for name in NODE_COMPONENTS if name in stated)
        return replace(self, platform=self.platform or platform, node=parts)


def is_version(component: str, text: str) -> bool:
    """Return whether a text is a version of a component."""
    try:
        parse_version(component, text)
    except BadInput:
        return False
    return True


def observe_version(
    component: str,
    version: str,
    origin: str,
    left: list[str],
    confidence: Confidence = "metadata",
) -> list[Observation]:
    """Return the observation of a version; none, and a sentence in ``left``, where it is none."""
    try:
        parse_version(component, version)
    except BadInput as error:
        left.append(f"{origin}: {error.problem}")
        return []
    return [Observation(component, version, origin, confidence)]


def settle(
    observations: Sequence[Observation], arch: Iterable[str] | None = None
) -> tuple[dict[str, Any], tuple[Conflict, ...]]:
    """Return the stack that the observations describe, in JSON form, and their conflicts.

    A measured value decides over metadata; among equals the earlier one decides.
    """
    stack: dict[str, Any] = {}
    conflicts: list[Conflict] = []
    for component in dict.fromkeys(o.component for o in observations):
        witnesses = sorted(
            (o for o in observations if o.component == component), key=lambda o: _RANK[o.confidence]
        )
        best = witnesses[0]
        if component not in _NOT_STACK:
            stack[component] = best.version
        for other in witnesses[1:]:
            first, second = _observed_version(best), _observed_version(other)
            same = agree(first, second) if first and second else best.version == other.version
            if not same:
                message = (
                    f"{best.origin} says {best.component} {best.version}, "
                    f"{other.origin} says {other.version}; the first decides"
                )
                conflicts.append(Conflict(best.component, message, best.version))
    if arch:
        stack["arch"] = list(arch)
    return stack, tuple(conflicts)


def _observed_version(observation: Observation) -> Version | None:
    component = observation.component
    name = "cuda" if component in (DRIVER_CUDA, "cuda-compat") else component
    try:
        return parse_version(name, observation.version)
    except BadInput:
        return None


def find_unknown_cuda(
    observations: Sequence[Observation], of_index: Collection[str], file: str
) -> list[str]:
    """Return a sentence about frameworks without a known CUDA build.

    The package index has one wheel of a version for a platform: a framework from the index is
    evaluated as that wheel, and the answer lists this as an assumption.
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


def find_cuda_conflicts(observations: Sequence[Observation]) -> list[Conflict]:
    """Return conflicts for builds that the CUDA runtime of the stack cannot serve.

    A build for another major never fits; a framework built for a newer minor than the runtime's
    misses functions, while an older build runs on the newer libraries of its major. Libraries are
    built once for a major.
    """
    runtime = next((o for o in observations if o.component == "cuda"), None)
    if runtime is None:
        return []
    have = parse_version("cuda", runtime.version)
    cuda_conflicts = []
    for observation in observations:
        if observation.component in ("cuda", "cuda-compat"):
            continue
        built = parse_version(observation.component, observation.version).cuda
        later = is_framework(observation.component) and built is not None and built > have.parts
        if built and (built[0] != have.major or later):
            message = (
                f"{observation.origin} is {observation.component} {observation.version}, built for "
                f"CUDA {format_parts(built)}; {runtime.origin} locks CUDA {runtime.version}"
            )
            cuda_conflicts.append(Conflict("cuda", message, runtime.version))
    return cuda_conflicts


def find_open_versions(observations: Sequence[Observation], file: str) -> list[str]:
    """Return sentences about components with several versions or builds, none of them chosen.

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
