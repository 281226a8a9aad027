"""Assume the CUDA of a stack that states none, by the wheels of its frameworks or its packages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from compatgate.core.components import COMPONENTS, sort_components
from compatgate.core.facts import Facts
from compatgate.core.request import Os, Pool
from compatgate.core.stack import Stack, complete_stack
from compatgate.core.stack_facts import (
    assume_default_wheels,
    cuda_of_wheel,
    month_of_image,
    reported_cuda,
)
from compatgate.core.versions import CudaBuild, Version, format_parts, parse_version, split_tag

if TYPE_CHECKING:
    from compatgate.core.packages import GpuPackage

_NAMED_CUDA = re.compile(r"-(?:cu|cuda)(1\d{1,2})x?$")
"""The CUDA of a build at the end of a package's name: ``cudf-cu12``, ``nvidia-dali-cuda120``."""
_WITH_CUDNN = ("87", "97", "107")
"""Labels of PaddlePaddle 1: a CUDA major, and cuDNN 7 (``paddlepaddle-gpu==1.8.5.post97``)."""
_AT_LEAST = re.compile(r"(?:>=|==|~=)\s*(\d+(?:\.\d+)?)")
"""The lowest CUDA of a requirement: ``>=11``, ``<13,>=12.6``, ``==12.8.*``."""
_PINNED = re.compile(r"(?:==|<=)\s*(\d[\w.]*)(?:,|\s|$)")
"""The newest release that a requirement allows: ``==2.5.1``, ``<=0.7.2,>=0.6.4``."""


def assume_cuda(stack: Stack, facts: Facts, pools: Sequence[Pool]) -> Stack:
    """Assume the CUDA of frameworks' wheels; without a framework, that of the packages' wheels.

    Where packages name only a major, it is the oldest of that major: a driver must reach it in any
    case. Packages for several majors say nothing. The stack has a sentence in ``assumed``; it is
    the same where nothing is assumed.
    """
    stack = _add_brought_parts(stack, facts)
    found = assume_default_wheels(stack, facts, pools)
    if "cuda" in found.components or any(text.startswith("cuda: ") for text in stack.open):
        return found
    if not (stack.packages or stack.components) or not pools:
        return found
    if on_jetson := _assume_jetpack(found, facts, pools):
        return on_jetson
    if not facts.framework_names.isdisjoint(stack.versions):
        return found
    built = list(_cudas_of(stack, facts, pools[0]))
    if len({cuda[0] for cuda, _ in built}) != 1:
        return found
    cuda, package = max(built, key=lambda one: (len(one[0]), one[0]))
    pair = (cuda[0], cuda[1] if len(cuda) > 1 else 0)
    which = "which" if len(cuda) > 1 else "the oldest of the major that"
    sentence = f"CUDA is assumed to be {format_parts(pair)}, {which} {package} needs"
    components = {"cuda": parse_version("cuda", format_parts(pair)), **stack.components}
    return structs.replace(stack, components=components, assumed=(*stack.assumed, sentence))


def _add_brought_parts(stack: Stack, facts: Facts) -> Stack:
    """Add the parts that a program's own installer or image brings, and that no one states.

    Of versions for several CUDAs it is the one for the CUDA of the program's label or of the stack,
    else the usual one. Nothing is added where files say what is there.
    """
    if not stack.packages or stack.measured or stack.content is not None:
        return stack
    from compatgate.core.package_wheels import covers_release

    parts: dict[str, Version] = {}
    said: list[str] = []
    for name, version in stack.packages.items():
        for one in facts.statements(name):
            if not one.brings or not covers_release(one, version):
                continue
            asked = version.cuda or (cuda.major_minor if (cuda := stack.get("cuda")) else None)
            for part, texts in one.brings.items():
                offered = [parse_version(part, text) for text in texts]
                fitting = [found for found in offered if asked in (None, found.cuda)]
                chosen = next(iter(fitting if offered[0].cuda else offered), None)
                if chosen and part not in stack.versions:
                    parts[part] = chosen
                    said.append(f"{part} is assumed to be {chosen}, which {name} {version} brings")
    if not parts:
        return stack
    have = stack.versions | parts
    names = sort_components(have)
    added = structs.replace(
        stack,
        components={name: have[name] for name in names if name in COMPONENTS},
        packages={name: have[name] for name in names if name not in COMPONENTS},
        assumed=(*stack.assumed, *said),
    )
    return complete_stack(added, facts.frameworks)


def _assume_jetpack(stack: Stack, facts: Facts, pools: Sequence[Pool]) -> Stack | None:
    """Return a stack with the CUDA of the JetPack that NVIDIA built its wheel for."""
    stated, containers = stack.components.items(), facts.containers
    name = next((name for name, v in stated if month_of_image(v, containers)), None)
    if name is None or not all(pool.gpu and pool.gpu.segment == "jetson" for pool in pools):
        return None
    from compatgate.core.jetson import describe_jetson

    hosts = [describe_jetson(pool, facts.jetson) for pool in pools]
    cuda = hosts[0].cuda
    if cuda is None or any(host.cuda != cuda for host in hosts):
        return None
    what = f"{name} {stack.components[name]} is assumed to be NVIDIA's wheel for "
    what += f"{hosts[0].title}, with CUDA {format_parts(cuda)}"
    version = parse_version("cuda", format_parts(cuda))
    return structs.replace(stack, components={"cuda": version, **stack.components}, assumed=(what,))


def _cudas_of(stack: Stack, facts: Facts, pool: Pool) -> Iterator[tuple[CudaBuild, str]]:
    from compatgate.core.package_finder import package_finder

    os: Os = "linux" if pool.os == "wsl" else pool.os
    finder = package_finder(facts, os, pool.cpu, stack.get("python"))
    for package in finder.all_of(stack).packages:
        like = package.near[-1] if package.near else package  # an older one may need less
        if solved := _newest_supported(package, like, pool, facts):
            yield solved, package.title
        elif labelled := cuda_of_label(package):
            yield labelled, package.title
        elif cuda := cuda_of_package(like) or _cuda_of_pin(like, stack, facts, pool):
            yield cuda, like.title


def _newest_supported(
    package: GpuPackage, like: GpuPackage, pool: Pool, facts: Facts
) -> CudaBuild | None:
    """Return the CUDA of the build that conda's solver takes: the newest that the driver supports.

    It is the oldest one where the driver is older than all. A package that has a library for each
    CUDA takes that of the torch beside it, which its user chooses for the GPU.
    """
    built = next((one.toolkits for one in package.statements if one.toolkits), ())
    if not built and pool.gpu and like.named_cudas:
        from compatgate.core.packages import cuda_of_name, library_run_mode

        device = pool.gpu.capability
        run = (one for one in like.libraries if library_run_mode(one, device, facts.arch))
        built = tuple(sorted({pair for one in run if (pair := cuda_of_name(one.path))}))
    if not built or package.version.cuda:
        return None
    driver = reported_cuda(pool.driver, pool.driver_os, facts) if pool.driver else None
    return max((one for one in built if driver and one <= driver), default=built[0])


def _cuda_of_pin(package: GpuPackage, stack: Stack, facts: Facts, pool: Pool) -> CudaBuild | None:
    """Return the CUDA of the torch, or the vLLM, that a package or its extra for GPUs pins.

    Of a range with a newest release this is the one that an installer takes: ``<=0.7.2``.
    """
    extra = facts.packages.extra_of(package.name)
    for name in ("torch", "vllm"):
        for asked in package.needs.on({name: None}.keys(), extra):
            pinned = _PINNED.search(asked.spec)
            version = parse_version(name, pinned[1]) if pinned else None
            if version and (cuda := cuda_of_wheel(name, version, facts, [pool], stack)):
                return cuda
    return None


def cuda_of_package(package: GpuPackage) -> CudaBuild | None:
    """Return the CUDA that a package needs at least, where its parts do not contradict each other.

    Its label says it, or else its requirements, statements, name and wheel.
    """
    if labelled := cuda_of_label(package):
        return labelled
    texts = [one.cuda for one in package.statements if one.cuda]
    for asked in package.needs.on({"cuda": None}.keys()):
        texts += _AT_LEAST.findall(asked.spec)
    found = [tuple(map(int, text.split("."))) for text in texts]
    if named := find_named_cuda(package.name):
        found.append(named)
    majors = package.cuda_majors  # its libraries load them
    found += ((major,) for major in majors)
    for library in package.libraries:  # a toolkit made their PTX
        made = tuple(map(int, library.ptx_cuda.split("."))) if library.ptx_cuda else ()
        if made and (not majors or made[0] in majors):
            found.append(made)
    return max(found) if len({cuda[0] for cuda in found}) == 1 else None


def cuda_of_label(package: GpuPackage) -> CudaBuild | None:
    """Return the CUDA that a package's version states: ``+cu121``, ``.post120``."""
    if package.version.cuda:
        return package.version.cuda
    from compatgate.core.package_wheels import label_of

    label = label_of(package.version, package.statements)
    if not label.startswith("post"):
        return None
    tag = label.removeprefix("post")
    return (int(tag[:-1]),) if tag in _WITH_CUDNN else split_tag(tag)


def find_named_cuda(name: str) -> CudaBuild | None:
    """Return the CUDA that a package's name states: 12 for ``cudf-cu12``."""
    named = _NAMED_CUDA.search(name)
    return split_tag(named[1]) if named else None
