"""Compare what a program reported with what the worker saw. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compatgate.canary.run import Env, Report
from compatgate.canary.witness.processes import Sighting
from compatgate.canary.workload import Workload
from compatgate.core.versions import parse_version, same_release
from compatgate.diagnostics.loaded import Library
from compatgate.errors import CompatgateError

_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_SLACK_S, _SLACK = 2.0, 0.02
_LEAST_LOOKS = 10


def find_impossible_times(workload: Workload, report: Report, wall_s: float) -> Iterator[str]:
    """Yield the metrics whose times add up to more than the program lasted.

    Args:
        workload: says which metrics have values that overlap; of those, each value counts alone.
        report: of the program.
        wall_s: seconds by the worker's clock, from before the start until after the end.
    """
    for metric in report.metrics:
        scale = _SECONDS.get(metric.unit)
        spec = workload.metrics.get(metric.name)
        if scale is None or spec is None:
            continue
        times = [abs(value) * scale for value in (*metric.warmup, *metric.values)]
        claimed = max(times, default=0.0) if spec.overlaps else sum(times)
        if claimed > wall_s * (1 + _SLACK) + _SLACK_S:
            yield (
                f"the times of {metric.name} are {claimed:.1f} s together, "
                f"but the program lasted {wall_s:.1f} s"
            )


def find_other_versions(env: Env, libraries: Sequence[Library]) -> Iterator[str]:
    """Yield the components of the env line that no mapped library of that component confirms.

    A library speaks by the full version in its file's name, or by the record of its package. A
    component of which nothing was mapped that states a version is not judged.
    """
    named: dict[str, dict[str, str]] = {}
    for library in libraries:
        if library.name_version:
            named.setdefault(library.component, {})[library.name_version] = library.path
    for component, stated in env.versions.items():
        found = named.get(component)
        if found and not any(_is_same(component, stated, version) for version in found):
            seen = ", ".join(f"{version} ({path})" for version, path in sorted(found.items()))
            yield f"it says {component} {stated}, but its processes had mapped {seen}"


def _is_same(component: str, stated: str, named: str) -> bool:
    """Return whether two versions agree in the parts that both state."""
    try:
        one, other = parse_version(component, stated), parse_version(component, named)
        return same_release(component, one, other) or _agree(stated, named)
    except CompatgateError:
        return True


def _agree(one: str, other: str) -> bool:
    pairs = zip(one.partition("+")[0].split("."), other.split("."), strict=False)
    return all(a == b for a, b in pairs)


def find_idle_gpu(workload: Workload, report: Report, sighting: Sighting) -> Iterator[str]:
    """Yield that NVML saw no use of the GPU at all while a program measured it."""
    if not (workload.gpus and report.metrics) or sighting.gpu_looks < _LEAST_LOOKS:
        return
    if sighting.gpu_pids or sighting.gpu_foreign or sighting.gpu_busy:
        return
    yield (
        f"it measured a GPU, but in {sighting.gpu_looks} looks NVML showed no process, no memory "
        "in use and no work on it"
    )


def find_other_program(sighting: Sighting, digest: str) -> Iterator[str]:
    """Yield that the program did not run on the worker's interpreter.

    Args:
        sighting: of the program's processes.
        digest: of the file that starts the worker's interpreter.
    """
    if sighting.programs and digest not in sighting.programs.values():
        yield f"it should run on the worker's interpreter, but ran {', '.join(sighting.programs)}"
