"""Questions drawn from the facts, for tests of what must hold for all of them."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache

from hypothesis import settings
from hypothesis import strategies as st

from compatgate.catalog import load_facts
from compatgate.core.matrix import Matrix
from compatgate.core.request import Target, parse_pool
from compatgate.core.rule_context import RuleContext
from compatgate.core.stack import complete_stack, parse_stack
from compatgate.core.versions import format_parts

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def at_least(examples):
    """More than the profile asks for, where what is drawn is wide."""
    return settings(max_examples=max(examples, settings.default.max_examples))


@cache
def facts():
    return load_facts(overlays=[])


@cache
def drivers():
    """Every Linux driver that the facts name."""
    branches = facts().driver_branches.branches.values()
    named = [v for b in branches for v in (b.first, b.last) if v]
    named += [t.driver["linux"] for t in facts().cuda_driver.toolkits if "linux" in t.driver]
    return sorted(
        {v.text for v in named if len(v.parts) > 1}, key=lambda t: [*map(int, t.split("."))]
    )


@cache
def gpus():
    bare = list(facts().arch.capabilities)
    return [*facts().gpus.gpus, *bare]


@cache
def frameworks():
    """Name to releases with their builds, as ``(version, label or None, cuda)``."""
    found = {}
    for name in sorted(facts().framework_names):
        found[name] = [
            (release.version.text, build.label, format_parts(build.cuda or (build.cuda_major, 0)))
            for release in facts().framework(name).releases
            for build in release.builds
        ]
    return found


def series():
    return [format_parts(pair) for pair in facts().toolkits_of]


codes = st.lists(
    st.sampled_from(
        [f"{kind}_{c.replace('.', '')}" for c in facts().arch.capabilities for kind in
         ("sm", "compute")] + ["sm_90a", "sm_100f", "compute_90a"]
    ),
    max_size=3,
    unique=True,
)  # fmt: skip


@st.composite
def stacks(draw, compat=True):
    """A stack of one or two frameworks on a CUDA, or of CUDA and libraries alone."""
    stack = {}
    for name in draw(st.lists(st.sampled_from(sorted(frameworks())), max_size=2, unique=True)):
        version, label, cuda = draw(st.sampled_from(frameworks()[name]))
        stack[name] = f"{version}+{label}" if label and draw(st.booleans()) else version
        stack.setdefault("cuda", cuda)
    if "cuda" not in stack or draw(st.integers(0, 3)) == 0:
        stack["cuda"] = draw(st.sampled_from(series()))
    if draw(st.booleans()):
        stack["cudnn"] = draw(st.sampled_from([r.version.text for r in facts().cudnn.releases]))
    if draw(st.integers(0, 2)) == 0:
        stack["nccl"] = draw(st.sampled_from([r.version.text for r in facts().nccl.releases]))
    if draw(st.integers(0, 2)) == 0:
        stack["python"] = draw(st.sampled_from([f"3.{minor}" for minor in range(8, 16)]))
    if draw(st.booleans()):
        stack["arch"] = draw(codes)
    if compat and draw(st.integers(0, 3)) == 0:
        stack["cuda-compat"] = draw(st.sampled_from(sorted(facts().forward_compat.packages)))
    if draw(st.integers(0, 5)) == 0:
        stack["require"] = [draw(st.sampled_from(["cuda>=9.0", "cuda>=12.4", "driver>=535"]))]
    return stack


@st.composite
def pools(draw):
    """A pool on Linux of a known GPU and a known driver."""
    gpu = draw(st.sampled_from(gpus()))
    return {"name": "pool", "gpu": gpu, "driver": draw(st.sampled_from(drivers()))}


FLEET = [
    "A100-SXM4-80GB", "A100-SXM4-80GB-MIG-1g.10gb", "H100-SXM5-80GB", "L4", "L40S", "T4", "A10",
    "V100-SXM2-32GB", "B200", "GeForce-RTX-4090", "GeForce-RTX-5090", "RTX-A6000", "8.0", "8.7",
]  # fmt: skip


@st.composite
def plausible(draw, compat=True):
    """What somebody would deploy: a published build with its own pins on a GPU of a fleet.

    Mostly passes; one thing at most is off.
    """
    name = draw(st.sampled_from(sorted(frameworks())))
    release = draw(st.sampled_from(facts().framework(name).releases))
    build = draw(st.sampled_from(release.builds))
    own = build.cuda or next(p for p in facts().toolkits_of if p[0] == build.cuda_major)
    pool = {"name": "pool", "gpu": draw(st.sampled_from(FLEET))}
    gpu = parse_pool(pool, facts().gpus).gpu
    floor = facts().cuda_driver.minor_compat.get(own[0])
    lowest = max(gpu.first_branch or 450, floor.minimum["linux"].major if floor else 0)
    fitting = [d for d in drivers() if int(d.split(".")[0]) >= lowest]
    pool["driver"] = draw(st.sampled_from(fitting if draw(st.integers(0, 5)) else drivers()))
    stack = {name: release.version.text, "cuda": format_parts(own)}
    for component, pin in build.pins.items():
        if pin.floor and draw(st.booleans()):
            stack[component] = pin.floor.text
    if release.python and draw(st.booleans()):
        stack["python"] = draw(st.sampled_from(release.python))
    device = format_parts(gpu.capability).replace(".", "")
    arch = draw(st.sampled_from([None, [f"sm_{device}"], ["compute_70"], ["sm_80", "compute_80"]]))
    if arch:
        stack["arch"] = arch
    if compat and draw(st.integers(0, 3)) == 0:
        stack["cuda-compat"] = format_parts(own)
    if draw(st.integers(0, 4)) == 0:
        stack["require"] = [f"cuda>={format_parts(own)}"]
    off = draw(st.sampled_from(["nothing", "nothing", "cuda", "cudnn", "nccl", "python"]))
    known = {
        "cuda": series(),
        "cudnn": [r.version.text for r in facts().cudnn.releases],
        "nccl": [r.version.text for r in facts().nccl.releases],
        "python": ["3.8", "3.10", "3.13"],
    }
    if off in known:
        stack[off] = draw(st.sampled_from(known[off]))
    return stack, pool


def questions(compat=True):
    """Plausible ones, mostly, and any at all."""
    any_at_all = st.tuples(stacks(compat=compat), pools())
    return st.integers(0, 3).flatmap(lambda n: plausible(compat=compat) if n else any_at_all)


def case_of(stack, pool):
    made = parse_pool(pool, facts().gpus)
    read = complete_stack(parse_stack(stack))
    return RuleContext(
        read, made, Target("t", (made,)), facts(), Matrix(), today="2026-11-21", now=NOW.timestamp()
    )
