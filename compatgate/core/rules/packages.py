"""CG410 to CG415: check packages by the records of their wheels.

The first question that names a package loads the checks: most questions name none, and the start
of the command line is counted in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from compatgate.core.components import OF_BUILDS
from compatgate.core.rule import (
    BUILD,
    FORWARD,
    NODE,
    NOT_APPLICABLE,
    PACKAGES,
    RECORDS,
    RuleAnswer,
    rule,
)
from compatgate.core.rule_context import RuleContext


@cache
def _load_checks() -> dict[str, Callable[[RuleContext], RuleAnswer]]:
    """Load the checks of packages."""
    from compatgate.core.rules import package_code, package_links

    return {
        "open": package_code.check_open,
        "arch": package_code.check_arch,
        "requires": package_links.check_requirements,
        "torch": package_links.check_torch,
        "libraries": package_links.check_libraries,
    }


def _run_check(context: RuleContext, what: str, *others: object) -> RuleAnswer:
    """Check the packages of a stack, unless the rule found nothing in the same packages before.

    Args:
        context: the context with the packages.
        what: name of the check.
        others: all other values that the rule reads, except packages, frameworks and platform;
            versions as they are written.
    """
    packages = context.package_set
    if packages is None or not packages.packages:
        return NOT_APPLICABLE
    key = (what, *others)
    silent = packages.silent.get(key)
    if silent:
        return silent
    answer = _load_checks()[what](context)
    if isinstance(answer, str):
        packages.silent[key] = answer
    return answer


def _cuda_text(context: RuleContext) -> str:
    return context.cuda.text if context.cuda else ""


@rule("CG410", "package-open", reads=RECORDS)
def package_open(context: RuleContext) -> RuleAnswer:
    """A package with GPU code, or tied to CUDA, of which no record says what it carries.

    What a wheel carries is measured from the wheel itself. Without a record of this release nobody
    knows which GPUs it runs on, or which torch it was built for: the answer is unknown, never a
    silent pass. What is compiled where it is installed has no wheel to measure: its builder has to
    say for which GPUs. Under a policy of ``packages: audit`` it is a warning. A package that works
    without its GPU code, and compiles it only for features that ask for it (``transformers``,
    ``peft``), is not open: no release can stop a stack.

    Example: ``xformers=0.0.99`` is open until its wheel has been measured.

    Fix: measure the wheel (``compatgate facts measure xformers==0.0.99``), or state the code that
    its builder knows: ``flash-attn=2.8.3[sm_90]``.

    Source: the list of packages in ``matrix/facts/components.yaml``.
    """
    return _run_check(context, "open", context.capability, _cuda_text(context))


@rule("CG411", "package-arch", reads=RECORDS | FORWARD)
def package_arch(context: RuleContext) -> RuleAnswer:
    """A package's own libraries have no code for the pool's GPU.

    Each library that the package loads counts, by its translation units: a stray one is no support,
    nor are a few with PTX where most have nothing for the GPU. The package fails where none of its
    libraries runs, or those that do are a few units of all. Where a part of them does not, the rule
    warns, since they may be for other GPUs; where the others have PTX alone, it is unknown. Where
    only PTX runs, the driver compiles it, and must understand the PTX of the toolkit that made it
    (as CG202). Libraries with nothing but code for one architecture (``sm_90a``) are loaded there
    alone.

    Builds for GPUs of AMD or Intel (``+rocm6.2``, or linked against ROCm) fail. Of packages that
    are compiled elsewhere the rule fails what their own source, build script or documentation
    excludes.

    Example: ``faiss-gpu-cu12`` 1.14.1 has no code and no PTX for an H100 (9.0).

    Fix: a release with code for the GPU.

    Source: the record of the wheel, measured from its libraries; CUDA C++ Programming Guide,
    "Binary Compatibility" and "PTX Compatibility".
    """
    return _run_check(
        context, "arch", context.capability, _cuda_text(context), context.compiles_up_to
    )


@rule("CG412", "package-requires", reads=PACKAGES)
def package_requires(context: RuleContext) -> RuleAnswer:
    """A package's own requirements on another part of the stack do not hold.

    Pins and ranges are read from the metadata of the wheel. Installers hold them unless they were
    told not to (``--no-deps``, an override, two installs after each other); what was linked or
    compiled against another release then fails when it is loaded.

    Example: ``xformers`` 0.0.35 asks for torch 2.10.0; with torch 2.9.1 it is another ABI.

    Fix: the version that is required.

    Source: ``Requires-Dist`` of the wheel, in its record.
    """
    ours = context.stack.components
    return _run_check(context, "requires", *[(n, ours[n].text) for n in ours if n not in OF_BUILDS])


@rule("CG413", "package-torch", reads=RECORDS)
def package_torch(context: RuleContext) -> RuleAnswer:
    """An extension was built against another torch than the stack has.

    libtorch and libc10 have no symbol versions: an extension for another minor stops when it is
    imported, with "undefined symbol: _ZN3c10...". What uses torch's stable ABI alone runs with
    later releases, too. Where torch is installed with it (an image, a folder), its undefined
    symbols are looked up in those that this torch defines, and that decides. Where neither symbols,
    metadata nor file name say which torch it was built for, a package of the stack that pins both
    says that they belong together, as ``sglang`` pins ``sgl-kernel`` and torch; otherwise the
    answer is unknown. A package that works without its extension (``torchao``) warns at most.
    A wheel whose label names another minor of CUDA than torch's is unknown: torchaudio compares
    them when it is imported. Without a record, the label of a build decides (``flash-attn``
    2.8.3+cu12torch2.8cxx11abiTRUE),
    else the other wheels of its release (of another system, with another CUDA label) say which
    torch it is for.

    Example: ``xformers`` 0.0.20 was built for torch 2.0; with torch 2.1 it cannot be imported.

    Fix: the torch that it was built for, or a release for this torch.

    Source: the record of the wheel: its requirements, its file name, and its undefined symbols.
    """
    return _run_check(context, "torch")


@rule("CG414", "package-libraries", reads=RECORDS | {"cudnn"})
def package_libraries(context: RuleContext) -> RuleAnswer:
    """A library needs another one that the stack brings in another major, or too old.

    A library that is linked against ``libcudart.so.13`` does not load with a CUDA 12 runtime; a
    package that works without it (``open3d``) warns. It is unknown where the stack's cuDNN is for
    another build of the release than the package index's (ONNX Runtime 1.18.1).
    cuSPARSE and cuSOLVER refer to nvJitLink by the toolkit that they are from; an older nvJitLink
    of the same major does not define these symbols, and loading stops with "undefined symbol:
    __nvJitLinkComplete_12_4". Of libraries that are named after a CUDA
    (``libbitsandbytes_cuda128.so``) a package loads the one for the stack's CUDA; releases that do
    not look for a near one do not work with another CUDA.

    Example: ``nvidia-cusparse-cu12`` 12.3.1.170 (CUDA 12.4) with ``nvidia-nvjitlink-cu12``
    12.1.105 fails.

    Fix: the library of the same toolkit, or a later one of its major.

    Source: NVIDIA nvJitLink documentation, "Compatibility"; the libraries' own dynamic sections,
    in the records of their wheels.
    """
    return _run_check(context, "libraries", _cuda_text(context))


@rule("CG415", "package-glibc", reads=RECORDS | BUILD | NODE)
def package_glibc(context: RuleContext) -> RuleAnswer:
    """A wheel needs a newer glibc than the stack runs with.

    The platform tag of a wheel names the oldest glibc that it is for (``manylinux_2_28``,
    ``manylinux2014`` for 2.17): an installer does not offer the wheel on an older system, and where
    it was copied there it does not load ("version `GLIBC_2.28' not found"). Some wheels need more
    than their tag says; the facts name them.

    State the glibc of the image or environment in the stack, ``glibc=2.31``; an older one is
    denied. Without it, the distribution of the pool's nodes tells the glibc where no image is
    named: an older one is unknown, since a container may bring its own.

    Example: torch 2.7.0 with ``glibc=2.27`` (Ubuntu 18.04) fails: its wheels are for 2.28.

    Fix: an image with a newer glibc, or a release with wheels for this one.

    Source: PEP 600, "Future 'manylinux' Platform Tags"; names of the wheels on the package index.
    """
    stated = "glibc" in context.stack.components or "distribution" in context.pool.node
    if not stated or context.pool.os == "windows":
        return NOT_APPLICABLE
    from compatgate.core.rules.package_glibc import check_glibc

    return check_glibc(context)
