"""How ``make test`` spreads tests over processes: by file, and what shares a real thing together.

A group runs in one process, one test after the other, so that its server is started once and its
tests see nobody else's work. `GROUPS` is by path, as the process that hands out work knows nothing
else; tests/unit/support/test_spreading.py holds it to the fixtures of `SHARED`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

GROUPS = {
    "engines": (  # dockerd
        "integration/canary",
        "integration/deploy/test_image.py",
        "integration/diagnostics",
        "e2e/test_canary_story.py",
        "e2e/test_chart_runs.py",
    ),
    "served": ("integration/web",),  # `serve` with its forks, signals and deadlines in seconds
    "faults": ("faults",),  # databases and servers that are broken for seconds
    "stories": ("e2e",),  # commands one after the other, most on a gate of their own
    "workloads": (  # programs of canaries, timed, without an engine
        "integration/canary/test_driver_programs.py",
        "integration/canary/test_gpu_bench.py",
        "integration/canary/test_programs.py",
        "integration/canary/test_tensorrt_program.py",
        "integration/canary/test_tools.py",
        "integration/canary/test_triton_program.py",
        "integration/canary/test_tutorial.py",
        "integration/canary/test_video_program.py",
    ),
    "compilers": (  # nvcc, and wheels that are downloaded once
        "integration/build_hints",
        "integration/canary/test_extension.py",
        "integration/canary/test_ptx.py",
        "integration/canary/test_toolkit_ptx.py",
        "integration/gpucode",
        "integration/wheels/test_on_demand.py",
    ),
    "browser": ("e2e/ui",),  # Chromium
    "programs": (  # PyTorch on the CPU, which takes all cores and gigabytes
        "integration/canary/test_handicaps.py",
        "integration/canary/test_timed_faults.py",
        "integration/canary/test_torch_faults.py",
        "integration/canary/test_torch_programs.py",
        "integration/canary/test_vllm_program.py",
    ),
    "issuer": ("integration/identity",),  # Node.js with an OpenID Connect issuer
    "facts": (  # the same documents are held to their schemas, for seconds, once in a process
        "conformance/test_facts_hold.py",
        "conformance/test_facts_tables.py",
        "conformance/test_refresh.py",
    ),
    "described": ("integration/web/test_fuzz.py",),  # long, and without a server
    "slurm": ("integration/slurm",),
    "pages": ("integration/ui",),  # a database in which canaries have run
    "measured": (  # CPU time and memory
        "fuzz",
        "integration/web/test_hostile_bodies.py",
        "unit/discovery/gpucode/test_bounds.py",
        "unit/discovery/image/test_rpm.py",
        "unit/canary/health/test_log.py",
    ),
}
"""Files and folders below ``tests``, the longest groups first: they are begun first. The longest
path decides."""

SHARED = {
    "gpu_engine": "engines",
    "plain_engine": "engines",
    "toolkit": "compilers",
    "running_slurm": "slurm",
    "chromium": "browser",
    "database_with_runs": "pages",
    "running_issuer": "issuer",
}
"""Fixtures that start something which only one process at a time should have."""

RERUN_ONCE = frozenset({
    "browser", "compilers", "engines", "faults", "issuer", "pages", "served", "slurm", "stories",
    "workloads",
})  # fmt: skip
"""Groups that drive real servers, browsers and engines beside other load: a test that fails is run
once more. The summary lists it as RERUN, and what it shows is a race to mend."""

_BY_PATH = {path: group for group, paths in GROUPS.items() for path in paths}
_TESTS = Path(__file__).parents[1]


def group_of(path: str) -> str:
    """The group of a file below ``tests``; a file that shares nothing is a group of its own."""
    parts = path.split("/")
    above = ("/".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((_BY_PATH[one] for one in above if one in _BY_PATH), path)


def pytest_configure(config: pytest.Config) -> None:
    """The programs that tests start find the environment as it is without xdist."""
    if hasattr(config, "workerinput"):
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several processes share the tests, those of groups come first; mark what is rerun."""
    for item in items:
        if group_of(_below_tests(item)) in RERUN_ONCE:
            item.add_marker(pytest.mark.flaky(reruns=1))
    if hasattr(config, "workerinput"):
        order = {group: number for number, group in enumerate(GROUPS)}
        items.sort(key=lambda item: order.get(group_of(_below_tests(item)), len(order)))


def strays(items: Iterable[pytest.Item]) -> list[str]:
    """What asks for a shared thing outside of its group, as lines that say what to do."""
    return sorted({
        f"list {path} in the group {group!r}: it asks for {fixture}"
        for item in items
        for fixture, group in SHARED.items()
        if fixture in getattr(item, "fixturenames", ())
        and group_of(path := _below_tests(item)) != group
    })  # fmt: skip


def _below_tests(item: pytest.Item) -> str:
    return item.path.relative_to(_TESTS).as_posix()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out whole groups, in the order in which they were collected."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid.partition("::")[0].removeprefix("tests/"))

    config.option.loadscopereorder = False
    return ByGroup(config, log)
