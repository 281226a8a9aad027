"""Look up the facts about a stack: its CUDA and the driver, and its frameworks' builds.

Drivers relate to CUDA by branch, by the CUDA that they report and by the lowest driver that a
CUDA needs. The ``cuda-compat`` package of a stack (forward compatibility) raises the user-mode
driver where system, GPU and driver branch allow it. A framework's version label names its
build, or else the build that accepts the stack's CUDA counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.constraints import parse_constraint
from compatgate.core.facts import Facts
from compatgate.core.facts.frameworks import Build, Containers, Framework, Release
from compatgate.core.facts.nvidia import Branch, CompatPackage, ForwardCompat, Pair, Source, Toolkit
from compatgate.core.request import DriverOs, Pool
from compatgate.core.stack import Stack
from compatgate.core.versions import (
    Version,
    format_parts,
    gpus_of_label,
    make_version,
    parse_version,
)

T = TypeVar("T")


def branch_of(driver: Version, os: DriverOs, facts: Facts) -> Branch | None:
    """Return the branch of a driver; None for an unknown one."""
    table = facts.driver_branches
    if os == "linux":
        return table.branches.get(driver.major)
    if (own := table.of_windows(driver)) is None:
        return None
    made = Branch(own.branch, None, None, False, own.cuda, None, None, own.source)
    return table.branches.get(own.branch, made)


def reported_cuda(driver: Version, os: DriverOs, facts: Facts) -> Pair | None:
    """Return the CUDA version that a driver reports, or the highest known to work on it."""
    if os == "linux":
        return facts.highest_cuda(driver.major)
    if own := facts.driver_branches.of_windows(driver):
        return own.cuda or facts.highest_cuda(own.branch)
    floors = facts.cuda_driver.minor_compat.values()
    known = (c.major for c in floors if os in c.minimum and c.minimum[os] <= driver)
    return max(((major, 0) for major in known), default=None)


def find_toolkit(cuda: Version, facts: Facts) -> Toolkit | None:
    """Return the row of a toolkit, the first of its series where no update is stated.

    Before CUDA 11 a third number can be the build of a component (10.2.300 on Jetson): the newest
    release that is not above it counts. None for a release that the facts do not know.
    """
    series = facts.toolkits_of.get(cuda.major_minor, ())
    if len(cuda.parts) < 3 or not series:
        return series[0] if series else None
    if cuda.major < facts.cuda_driver.first_compatible_major:
        return next((t for t in reversed(series) if t.version <= cuda), series[0])
    text = format_parts(cuda.at(3))
    wanted = facts.cuda_driver.same_row.get(text, text)
    return next((t for t in series if format_parts(t.version.at(3)) == wanted), None)


def find_floor(
    cuda: Version, toolkit: Toolkit | None, pool: Pool, facts: Facts
) -> tuple[Version, Source] | None:
    """Return the lowest driver that runs a CUDA on a pool without forward compatibility.

    The pool gives system and processor; its driver is not read. None where no minimum is published.
    """
    os = pool.driver_os
    compat = facts.cuda_driver.minor_compat.get(cuda.major)
    if compat is None:
        own = toolkit.driver.get(os) if toolkit else None
        return (own, toolkit.source) if own and toolkit else None
    special = compat.exceptions.get(format_parts(cuda.major_minor), {})
    arm = f"{os}-aarch64" if pool.cpu == "aarch64" else os
    minimum = special.get(arm) or special.get(os) or compat.minimum.get(os)
    return (minimum, compat.source) if minimum else None


class ForwardCompatUse(Struct, frozen=True):
    """Tells whether the stack's forward-compatibility package is usable on the pool."""

    usable: bool | None  # None when that cannot be known
    reason: str = ""  # why not, or what is not known; empty when usable
    need: str = ""
    source: Source | None = None
    package: CompatPackage | None = None
    aside: bool = False  # an unusable package is not loaded here, and does no harm

    @property
    def brings(self) -> CompatPackage | None:
        """Return the package if it is usable, else None."""
        return self.package if self.usable else None


def driver_of(package: CompatPackage) -> Version:
    """Return a package's user-mode driver; the newest of its branch where only that is known."""
    branch = package.driver_branch
    return package.driver or make_version(f"{branch}.x", (branch, 9999))


def check_forward_compat(stack: Stack, pool: Pool, table: ForwardCompat) -> ForwardCompatUse:
    """Return whether the stack's forward-compatibility package is usable on a pool, and why not."""
    assert stack.cuda_compat is not None  # noqa: S101 - the caller checked
    series = format_parts(stack.cuda_compat.major_minor)
    package = table.packages.get(series)
    if package is None:
        known = ", ".join(table.packages)
        return ForwardCompatUse(
            None, f"no cuda-compat package for CUDA {series} is known", f"one of {known}"
        )
    driver, gpu = pool.driver, pool.gpu
    # The container runtime compares branches alone: 580.95 does not replace 580.65.
    # Source: NVIDIA/nvidia-container-toolkit cmd/nvidia-cdi-hook/cudacompat/cudacompat.go
    if stack.compat_use == "newer" and driver and driver.major >= package.driver_branch:
        why = f"the container runtime does not load it: host driver {driver} is not of an older "
        why += f"branch than the package's {package.driver_branch}"
        return ForwardCompatUse(False, why, "", package.source, package, aside=True)
    verdict = _check_hardware(pool, table, package) or _check_host(pool, package)
    if verdict is None and gpu and gpu.vgpu:
        # vGPUs report brands of their own, of which the library takes some.
        why = f"the brand that the vGPU {gpu.sku} reports, on which it depends, is not known"
        verdict = ForwardCompatUse(None, why, "", table.hardware, package)
    if verdict is None:
        return ForwardCompatUse(True, source=package.source, package=package)
    return replace(verdict, aside=stack.compat_use == "tried")


def _check_hardware(
    pool: Pool, table: ForwardCompat, package: CompatPackage
) -> ForwardCompatUse | None:
    gpu, need = pool.gpu, f"a {' or '.join(table.segments)} GPU"
    if pool.os != "linux":
        why = "forward compatibility exists on Linux only"
        return ForwardCompatUse(False, why, "os=linux", table.hardware, package)
    if gpu is None or gpu.segment is None:
        why = "forward compatibility depends on the product, which is not known"
        return ForwardCompatUse(None, why, need, table.hardware, package)
    if gpu.segment in (*table.segments, *table.conditional_segments):
        return None
    why = f"{gpu.sku} is a {gpu.segment} product, its brand is not on the package's list: "
    why += "the program stops with error 804"
    return ForwardCompatUse(False, why, need, table.hardware, package)


def _check_host(pool: Pool, package: CompatPackage) -> ForwardCompatUse | None:
    driver = pool.driver
    if driver is None:
        return ForwardCompatUse(None, "the host driver is not known", "", package.source, package)
    branches = ", ".join(map(str, package.branches))
    need = f"a host driver of branch {branches}"
    newer = driver >= package.driver if package.driver else driver.major >= package.driver_branch
    if newer:
        own = package.driver or f"{package.driver_branch}"
        why = f"host driver {driver} is not older than the package's own ({own})"
        return ForwardCompatUse(False, why, need, package.source, package)
    if driver.major in package.disputed:
        why = f"sources disagree on whether it works on branch {driver.major}"
        return ForwardCompatUse(None, why, need, package.disputed[driver.major], package)
    if driver.major not in package.branches:
        why = f"host driver branch {driver.major} is not on its list"
        return ForwardCompatUse(False, why, need, package.source, package)
    minimum = package.minimums.get(driver.major)
    if minimum and driver < minimum:
        why = f"on branch {driver.major} it needs {minimum}"
        return ForwardCompatUse(False, why, f">={minimum}", package.source, package)
    return None


CONDA = "conda"
"""Begins the label of builds that conda's channels made: ``torch=2.5.1+conda.cu126``."""
_CHANNELS = {"forge": "conda-forge"}
"""Channels that a label names after ``conda``: ``torch=2.5.1+conda.forge.cu126``."""


class FrameworkMatch(Struct, frozen=True):
    """A framework of a stack, with its release and build in the facts."""

    name: str
    version: Version
    table: Framework
    release: Release | None  # None when the facts do not know this release
    build: Build | None  # None when no build is for the stack's CUDA, or the CUDA is not stated
    # False for a private build (NGC's ``2.6.0a0+...nv25.01``, conda's, a CPU build): facts about
    # the published wheels do not hold for it. It has no ``release``, and a ``build`` only where the
    # recipe of a conda channel is known.
    published: bool = True
    without_cuda: bool = False  # a build without CUDA (``+cpu``, ``+rocm6.2``)
    # the release that a release candidate or nightly build is assumed to be like
    like: FrameworkMatch | None = None
    stands_in: bool = False  # it is such a release

    @property
    def title(self) -> str:
        """Return name and version, for messages."""
        return f"{self.name} {self.version}"

    @property
    def conda(self) -> bool:
        """Return whether a channel of conda built it."""
        return is_conda(self.version)

    @property
    def other_gpus(self) -> str:
        """Return the vendor that the version's label names; empty for NVIDIA."""
        return gpus_of_label(self.version.local)

    def needs_toolkit_from(self, first: Pair) -> bool:
        """Return whether the stack's toolkit must know a GPU that came with one.

        TensorRT refuses GPUs by the toolkit of its own build, whatever is installed beside it.
        """
        own = self.build.cuda if self.build else None
        if self.table.refuses_newer_gpus and not (own and own >= first):
            return True
        return bool(self.build and self.build.compiles)

    @property
    def newest(self) -> Version:
        """Return the newest release that the facts know."""
        return self.table.releases[-1].version


def find_framework(
    name: str, version: Version, cuda: Version | None, table: Framework
) -> FrameworkMatch:
    """Find a framework's release, and its build for the stack's CUDA.

    The version's own label (``+cu121``) names the build; without one it is the build that accepts
    the stack's CUDA.
    """
    without_cuda = version.local.startswith(("cpu", "rocm", "xpu"))
    if is_conda(version):
        release, channel = find_release(table, version), conda_channel(version)
        builds = release.conda if release and channel else ()
        made = (b for b in builds if b.channel == channel and b.cuda == version.cuda)
        return FrameworkMatch(name, version, table, None, next(made, None), False)
    own_build = bool(version.local) and (version.cuda is None or is_jetson(version))
    prerelease = version.key[1] == 0 and find_release(table, version) is None
    if without_cuda or own_build or prerelease:
        like = None if without_cuda or own_build else _find_nearest(name, version, cuda, table)
        return FrameworkMatch(name, version, table, None, None, False, without_cuda, like)
    release = find_release(table, version)
    build = find_build(release, version, cuda) if release else None
    return FrameworkMatch(name, version, table, release, build)


_BEFORE_RELEASE = re.compile(r"(?:rc\d+|\.dev\d+)(?:\+cu\d+)?$|\d[ab]\d+$")
"""Ends the versions of alphas, candidates and nightly builds: ``2.8.0.dev20250407+cu128``."""
_OF_SOURCES = re.compile(r"\da0$")
"""Ends the version of torch's own sources, which nobody published: ``2.1.0a0``."""


def _find_nearest(
    name: str, version: Version, cuda: Version | None, table: Framework
) -> FrameworkMatch | None:
    """Return the release that a version leads to, or another one of its minor or the one before.

    It is the nearest with a build for the label, or for the stack's CUDA. A candidate has the build
    of its own minor.
    """
    if not _BEFORE_RELEASE.search(version.whole):
        return None
    if name == "torch" and _OF_SOURCES.search(version.whole):
        return None
    (major, minor), numbers = version.major_minor, version.at(3)
    nightly = ".dev" in version.whole
    minors = [(major, minor - 1), (major, minor)] if nightly else [(major, minor)]
    near = [r for r in table.releases if r.version.at(2) in minors]
    for release in sorted(
        near, key=lambda r: (r.version.at(3) == numbers, r.version), reverse=True
    ):
        build = find_build(release, version, cuda)
        if build is None and not version.cuda and cuda is None:
            build = _only_build(table, release)
        if build:
            label = f"+{version.local}" if version.local else ""
            of_release = parse_version(name, release.version.public + label)
            return FrameworkMatch(name, of_release, table, release, build, stands_in=True)
    return None


def assume_default_wheels(stack: Stack, facts: Facts, pools: Sequence[Pool]) -> Stack:
    """Assume that frameworks without a build label are the package index's own wheels, and say so.

    A version alone is what ``pip install`` gives: the index has one wheel of it for a platform. A
    label that names only the major of its CUDA (``jaxlib=0.4.24+cuda12.cudnn89``) is taken to be
    for the oldest that its build accepts. Nothing is assumed where the stack states its CUDA or
    leaves it open, where a framework's label says it, for a wheel that has no CUDA on any of the
    pools, or where the code for CUDA is in a plugin (JAX) that the stack does not have. A torch
    without a label is of the index of the torchvision or torchaudio that has one. A stack
    without a framework has the CUDA of its toolkit libraries. A month of Triton
    (``tritonserver=24.08``) or a label (``torch=2.6.0a0+df5bbc0.nv24.12``) names NVIDIA's image,
    which brings its CUDA and ``cuda-compat``. The
    stack has the newest CUDA of those wheels, and a sentence for each in ``assumed``; it is the
    same where nothing is assumed.
    """
    if "cuda" in stack.components or any(text.startswith("cuda: ") for text in stack.open):
        return stack
    if in_image := _assume_image(stack, facts, pools):
        return in_image
    found: list[tuple[Pair, str]] = []
    alone = facts.frameworks.isdisjoint(stack.versions)  # TensorRT beside torch runs with its CUDA
    named = facts.framework_names if alone else facts.frameworks
    for name, version in stack.versions.items():
        if name not in named:
            continue
        if version.local:
            found += _oldest_of_label(name, version, facts)
            continue
        if beside := _labelled_beside(name, stack):
            found.append(beside)
        elif cuda := cuda_of_wheel(name, version, facts, pools, stack):
            what = f"{name} {version} is assumed to be the package index's wheel, built for CUDA"
            found.append((cuda, f"{what} {format_parts(cuda)}"))
        else:
            found += _oldest_of_build(name, version, facts, stack)
    if not found and alone:
        found = list(_toolkits_of(stack, facts))[:1]
    if not found:
        return stack
    newest = parse_version("cuda", format_parts(max(pair for pair, _ in found)))
    said = tuple(sentence for _, sentence in found)
    components = {"cuda": newest, **stack.components}
    return replace(stack, components=components, assumed=(*stack.assumed, *said))


def _labelled_beside(name: str, stack: Stack) -> tuple[Pair, str] | None:
    if name != "torch":
        return None
    for other in ("torchvision", "torchaudio"):
        version = stack.get(other)
        if version and version.cuda and len(version.cuda) == 2:
            pair = (version.cuda[0], version.cuda[1])
            return pair, f"torch is assumed to be from the index of {other} {version}"
    return None


def list_builds(stack: Stack, facts: Facts, pools: Sequence[Pool]) -> tuple[Stack, ...]:
    """Return the stack with each known build of a framework whose build is open, by CUDA.

    It is open where nothing states the CUDA and no build is the default, or where no build is known
    for the CUDA that is stated, of a release that has builds which are not listed. Empty: nothing
    is open, or there are no such builds.
    """
    named = [n for n in stack.components if n in facts.framework_names]
    if len(named) != 1 or stack.alternatives or any(t.startswith("cuda: ") for t in stack.open):
        return ()
    name, cuda = named[0], stack.get("cuda")
    version, table = stack.components[name], facts.framework(name)
    if table is None or version.local or (cuda and not table.has_open_builds(version)):
        return ()
    release = find_release(table, version)
    if release is None or has_plugins(release):
        return ()
    if name in stack.measured or name in stack.wheels:
        return ()
    if any(is_index_wheel_cpu_only(table, release, pool) for pool in pools):
        return ()
    if cuda and find_build(release, version, cuda):
        return ()
    builds = sorted(release.builds, key=lambda one: one.cuda or (one.cuda_major, 0))
    if cuda and not all(build.label for build in builds):
        return ()
    titles = " and ".join(build.title for build in builds)
    return tuple(_with_build(stack, name, build, titles) for build in builds)


def list_plugins(stack: Stack, facts: Facts) -> tuple[tuple[Stack, ...], bool]:
    """Return a stated stack with each plugin of its framework, and whether these are all.

    ``jax=0.7.2`` says nothing of the package with its code for CUDA, nor does ``cupy=13.6.0``,
    which is a package for each CUDA. Empty: the stack has a plugin, or states its CUDA, or is that
    of a lockfile or of files, which has none.
    """
    if "cuda" in stack.components or stack.open or stack.alternatives:
        return (), False
    if stack.wheels or stack.measured or stack.image or stack.content:
        return (), False
    named = [(n, v) for n, v in stack.components.items() if n in facts.framework_names]
    if len(named) != 1:
        return (), False
    (name, version), table = named[0], facts.framework(named[0][0])
    release = find_release(table, version) if table else None
    if table is None or release is None or version.local or _find_plugin_build(release, stack):
        return (), False
    complete = table.source_of_completeness(release.version) is not None
    if table.loads_cuda and not any(one.label or one.default for one in release.builds):
        by_cuda = sorted(release.builds, key=lambda one: one.cuda or (one.cuda_major, 0))
        return tuple(_as_package(stack, name, build) for build in reversed(by_cuda)), complete
    stacks = []
    for plugin in (build.plugins[0] for build in release.preferred if build.plugins):
        what = f"{name} {version} is assumed to be installed with {plugin}: without its plugin for "
        what += "CUDA it computes only on the CPU"
        packages = {**stack.packages, plugin: parse_version(plugin, release.version.public)}
        stacks.append(replace(stack, packages=packages, conflicts=(*stack.conflicts, what)))
    return tuple(stacks), complete


def _as_package(stack: Stack, name: str, build: Build) -> Stack:
    """Return a stack with one of the packages that a project makes for each CUDA (CuPy)."""
    version = stack.components[name]
    what = f"{name} {version} is assumed to be its package for {build.title}: there is one for each"
    label = "".join(map(str, build.cuda or (build.cuda_major,)))
    named = parse_version(name, f"{version.public}+cu{label}")
    parts = {**stack.components, name: named}
    return replace(stack, components=parts, conflicts=(*stack.conflicts, what))


def _with_build(stack: Stack, name: str, build: Build, titles: str) -> Stack:
    version, cuda = stack.components[name], stack.get("cuda")
    parts = dict(stack.components)
    if build.label:
        parts[name] = parse_version(name, f"{version.public}+{build.label}")
    if cuda is None:
        pair = build.cuda or _find_oldest(build) or (build.cuda_major, 0)
        parts = {"cuda": parse_version("cuda", format_parts(pair)), **parts}
        what = f"{name} {version} is one of the builds for {titles}, which have the same answer"
        return replace(stack, components=parts, assumed=(*stack.assumed, what))
    what = f"no build of {name} {version} for CUDA {cuda} is known; those for {titles} run here"
    return replace(stack, components=parts, conflicts=(*stack.conflicts, what))


def month_of_image(version: Version, containers: Containers) -> str:
    """Return the month of NVIDIA's image whose build a label names, ``24.12``; else nothing.

    Labels compare without leading zeros (PEP 440): that of 24.05 ends in ``nv24.5``. Until 2024
    the label of a torch was its commit alone.
    """
    if not version.local:
        return ""
    found = _OF_IMAGE.search(version.local)
    return f"{found[1]}.{int(found[2]):02}" if found else containers.month_of_commit(version.text)


_OF_IMAGE = re.compile(r"(?:^|\.)nv(\d\d)\.(\d{1,2})$")
"""Ends the labels of the frameworks in NVIDIA's images, and of those for Jetson:
``2.6.0a0+df5bbc0.nv24.12``."""
_MONTH = re.compile(r"\d\d\.(?:0[1-9]|1[0-2])")


def _assume_image(stack: Stack, facts: Facts, pools: Sequence[Pool]) -> Stack | None:
    """Return a stack with the CUDA of the monthly image that it names; None without one.

    Wheels for Jetson have such labels, too, and the CUDA of their JetPack.
    """
    jetson = any(pool.gpu and pool.gpu.segment == "jetson" for pool in pools)
    named = (
        (f"{name} {version}", month_of_image(version, facts.containers) or version.text)
        for name, version in stack.components.items()
        if (name == "tritonserver" and _MONTH.fullmatch(version.text))
        or (month_of_image(version, facts.containers) and not jetson)
    )
    title, month = next(named, ("", ""))
    found = facts.containers.cuda_of(month) if month else None
    if found is None:
        return None
    cuda, around = found
    what = f"{title} is assumed to be NVIDIA's image {month}, with CUDA {cuda}"
    if around:
        what += f" at most, as those of {' and '.join(around)} have the same major"
    series = make_version(format_parts(cuda.major_minor), cuda.major_minor)
    brought = {} if stack.cuda_compat else {"cuda_compat": series, "compat_use": "tried"}
    components = {"cuda": cuda, **stack.components}
    return replace(stack, components=components, assumed=(what,), **brought)


def _oldest_of_label(name: str, version: Version, facts: Facts) -> Iterator[tuple[Pair, str]]:
    """Yield the CUDA that a label names, or the oldest of its major, with the sentence."""
    table = facts.framework(name)
    release = find_release(table, version) if table else None
    if release is None or not version.cuda:
        return
    if len(version.cuda) > 1:  # of TensorRT's package: a framework's own is the stack's CUDA
        exact = (version.cuda[0], version.cuda[1])
        yield exact, f"{name} {version} is assumed to run with CUDA {format_parts(exact)}, its own"
        return
    build = find_build(release, version, None)
    oldest = _find_oldest(build) if build else None
    if build and oldest and oldest[0] == version.cuda[0]:
        cuda = build.cuda or oldest
        yield cuda, f"{name} {version} is assumed to run with CUDA {format_parts(cuda)}, its oldest"


def _oldest_of_build(
    name: str, version: Version, facts: Facts, stack: Stack
) -> Iterator[tuple[Pair, str]]:
    """Yield the oldest CUDA of a plugin that the stack has, or of a wheel that loads any minor."""
    table = facts.framework(name)
    release = find_release(table, version) if table else None
    if table is None or release is None:
        return
    build = _find_plugin_build(release, stack)
    title = f"{name} {version}"
    if build:
        title += f" with {next(p for p in build.plugins if p in stack.packages)}"
    elif not has_plugins(release) and "torch" not in release.pins:
        build = _index_build(table, release)
    if build and not build.cuda and (oldest := _find_oldest(build)):
        yield oldest, f"{title} is assumed to run with CUDA {format_parts(oldest)}, its oldest"


def _find_oldest(build: Build) -> Pair | None:
    """Return the oldest CUDA that a build accepts, if it accepts the minors from one on."""
    found = _OLDEST.match(build.accepts)
    return (int(found[1] or found[3]), int(found[2] or 0)) if found else None


_OLDEST = re.compile(r">=(\d+)\.(\d+),<\d+$|(\d+)\.\*$")
"""A constraint on CUDA that allows the minors of a major, or those from one on."""


def _toolkits_of(stack: Stack, facts: Facts) -> Iterator[tuple[Pair, str]]:
    of = {
        (toolkits[-1], name, version)
        for name, version in stack.versions.items()
        if (toolkits := facts.cuda_components.toolkits(name, version.public))
    }
    for pair, name, version in sorted(of, key=lambda one: (one[0], one[1]), reverse=True):
        yield pair, f"CUDA is assumed to be {format_parts(pair)}, the toolkit of {name} {version}"


def cuda_of_wheel(
    name: str, version: Version, facts: Facts, pools: Sequence[Pool], stack: Stack
) -> Pair | None:
    """Return the CUDA of a release's index wheel; vLLM has the CUDA of the torch that it pins."""
    table = facts.framework(name)
    release = find_release(table, version) if table else None
    if table and release is None and (near := _find_nearest(name, version, None, table)):
        return near.build.cuda if near.build else None  # a candidate is assumed to be like it
    if table is None or release is None:
        return None
    if has_plugins(release) and _find_plugin_build(release, stack) is None:
        return None
    if pools and all(is_index_wheel_cpu_only(table, release, pool) for pool in pools):
        return None
    build = _find_plugin_build(release, stack) or _index_build(table, release)
    if build is None or build.cuda:
        return build.cuda if build else None
    pin = release.pins.get("torch")
    return cuda_of_wheel("torch", pin.floor, facts, pools, stack) if pin and pin.floor else None


def _index_build(table: Framework, release: Release) -> Build | None:
    """Return the build that a version alone is: the default, or the only one."""
    return default_build(release) or _only_build(table, release)


def _only_build(table: Framework, release: Release) -> Build | None:
    """Return the build of a release for one CUDA alone, as those of tensorflow-gpu are."""
    only = len(release.builds) == 1 and table.source_of_completeness(release.version)
    return release.builds[0] if only else None


def has_plugins(release: Release) -> bool:
    """Tell whether the code for CUDA is in other packages than the release's own (JAX)."""
    return any(build.plugins for build in release.builds)


def _find_plugin_build(release: Release, stack: Stack) -> Build | None:
    """Return the build whose plugin the stack has."""
    there = stack.packages.keys()
    return next((b for b in release.builds if not there.isdisjoint(b.plugins)), None)


def default_build(release: Release) -> Build | None:
    """Return the build that a plain install gives on Linux x86_64."""
    return next((build for build in release.builds if build.default), None)


def is_index_wheel_cpu_only(table: Framework, release: Release, pool: Pool) -> bool:
    """Tell whether the package index's wheel of a release has no CUDA on a pool's platform."""
    if pool.os == "windows":
        return table.has_cpu_wheel(release.version, "windows")
    return pool.cpu in release.cpu_only


def is_of_other_index(table: Framework, version: Version) -> bool:
    """Tell whether a version has the label of another CUDA than the package index's wheel."""
    release = find_release(table, version)
    usual = default_build(release) if release else None
    return bool(usual and usual.cuda and version.cuda and usual.cuda != version.cuda)


def is_conda(version: Version) -> bool:
    """Return whether a version is that of a build by one of conda's channels."""
    return version.local.startswith(CONDA) and _label_parts(version)[0] == CONDA


def is_jetson(version: Version) -> bool:
    """Return whether the label names an index for Jetson: ``torch=2.5.0+jp6.cu126``."""
    return re.match(r"jp\d+(?![^.\-_])", version.local) is not None


def conda_channel(version: Version) -> str:
    """Return the channel that the label of conda's build names, empty where it names none."""
    return _CHANNELS.get(_label_parts(version)[1], "") if is_conda(version) else ""


def conda_label(channel: str) -> str:
    """Return the first part of the label of a channel's builds: ``conda.forge``, or ``conda``."""
    word = next((word for word, name in _CHANNELS.items() if name == channel), "")
    return f"{CONDA}.{word}" if word else CONDA


def _label_parts(version: Version) -> list[str]:
    """Return a label's parts, two at least; ``conda-forge`` is the same as ``conda.forge``."""
    return [*re.split(r"[.\-_]", version.local), ""]


def find_release(table: Framework, version: Version) -> Release | None:
    """Return the release of this version; a fourth part is a build of the same release.

    A release without a row is inferred from its minor release where the table names a source that
    this has the same builds, and so is a version of two numbers (``tensorrt=8.5``). A candidate
    that is known to be built as its release is has the release's row.
    """
    if version.whole.partition("+")[0] in table.candidates:
        version = make_version(format_parts(version.parts), version.parts)
    exact = table.by_version.get(version)
    if exact:
        return exact
    if len(version.parts) > 3 and (
        of_build := next((r for r in table.releases if r.version.at(3) == version.at(3)), None)
    ):
        return of_build
    newer = version > table.releases[-1].version
    if table.unlisted_patches is None or version.key[1] == 0 or newer:
        return None
    if version.parts not in table.memory:
        if len(table.memory) >= _MAX_INFERRED:
            table.memory.clear()
        table.memory[version.parts] = _infer_release(table, version, table.unlisted_patches)
    found: Release | None = table.memory[version.parts]
    return found


_MAX_INFERRED = 64  # inferred releases that a table caches


def _infer_release(table: Framework, version: Version, source: Source) -> Release | None:
    """Return a release like the nearest of its minor; all that it says is derived."""
    minor = [one for one in table.releases if one.version.major_minor == version.major_minor]
    if not minor:
        return None
    like = choose_like(version, minor, [one for one in minor if one.version < version])
    derived = replace(source, confidence="derived")
    builds = [
        replace(
            build,
            source=derived,
            arch_source=derived,
            aarch64_source=derived,
            windows_source=derived,
            pins={name: replace(pin, source=derived) for name, pin in build.pins.items()},
            requires=(),
        )
        for build in like.builds
    ]
    return replace(
        like,
        builds=tuple(builds),
        source=derived,
        python_source=derived,
        pins={name: replace(pin, source=derived) for name, pin in like.pins.items()},
        requires=(),
        conda=(),
        inferred=True,
    )


def choose_like(version: Version, minor: Sequence[T], older: Sequence[T]) -> T:
    """Return which of its minor's releases one without a row is like.

    It is the newest where the version names the minor alone, else the last one before, else the
    first.
    """
    return minor[-1] if len(version.parts) < 3 else older[-1] if older else minor[0]


def name_known(known: Sequence[Version], have: Version) -> str:
    """Say which releases are known, for messages about one that is not; ``known`` ascends."""
    span = f"{known[0]} to {known[-1]}"
    older, newer = [v for v in known if v < have], [v for v in known if v > have]
    if older and newer:
        return f"the nearest of those known, {span}, are {older[-1]} and {newer[0]}"
    return f"known are {span}"


def find_build(release: Release, version: Version, cuda: Version | None) -> Build | None:
    """Find the build that the version names, or that accepts the stack's CUDA; listed first."""
    builds = release.preferred
    if labelled := next((b for b in builds if b.label and b.label == version.local), None):
        return labelled
    if version.cuda:
        return next(
            (
                b
                for b in builds
                if b.cuda == version.cuda
                or (b.cuda_major == version.cuda[0] and (len(version.cuda) == 1 or b.cuda is None))
            ),
            None,
        )
    if cuda is None:
        return None
    exact = next((b for b in builds if b.cuda == cuda.major_minor), None)
    plain = default_build(release)
    if exact and not exact.listed and plain and accepts(plain, cuda):
        return plain  # a version alone is the index's wheel, which runs with each minor
    return exact or next((b for b in builds if accepts(b, cuda)), None)


def accepts(build: Build, cuda: Version) -> bool:
    """Return whether a build accepts the stack's CUDA."""
    return parse_constraint("cuda", build.accepts).allows(cuda)
