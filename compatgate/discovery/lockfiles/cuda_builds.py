"""Whether what was found agrees on one version and one CUDA, and says one at all."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from compatgate.core.components import is_framework
from compatgate.core.versions import parse_version, show
from compatgate.discovery.observed import Conflict, Observation


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
    """Builds that the runtime beside them cannot serve.

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
    """Components in more than one version or build, of which nothing says which is used.

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
