"""CG410 to CG415: check packages by the records of their wheels.

The first question that names a package loads the checks: most questions name none, and the start
of the command line is counted in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from compatgate.core.components import OF_BUILDS
from compatgate.core.parts import BUILD, FORWARD, NODE, RECORDS, VERSIONS
from compatgate.core.rule import NOT_APPLICABLE, RuleAnswer, rule
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


@rule("CG410", "package-open", reads=RECORDS | FORWARD)
def package_open(context: RuleContext) -> RuleAnswer:
    """A package has GPU code or depends on CUDA, but no record describes its content.

    A record is measured from the wheel itself. Without a record of this release, its GPUs and its
    torch are not known: the answer is unknown, never a silent pass. A package that is compiled
    during its installation has no wheel to measure: it is assumed to be built for the pool's GPU if
    the stack's CUDA makes such code (a warning); state the GPUs if it was built elsewhere. With the
    policy ``packages: audit`` the finding is a warning. Some packages work without their GPU code,
    and compile it only for some features (``transformers``, ``peft``): they need no record, and no
    release of them stops a stack. A release between two measured ones is assumed to be like them:
    the finding is a warning if both run on the GPU, the driver and the rest of the stack. So is a
    candidate or nightly build like the release that it leads to, a wheel like that of its release
    for the other system (Linux, Windows), and a month of Triton like the months around it.

    Example: ``xformers=0.0.99`` is open until its wheel has been measured.

    Fix: let ``compatgate check --read-wheels`` measure the wheel. For a gate, keep the record in a
    file of your facts (``compatgate facts measure xformers==0.0.99 --overlay xformers.yaml``) and
    start the gate with ``--facts xformers.yaml``, or with ``--index`` to measure by itself. Or
    state the GPU code of the build: ``flash-attn=2.8.3[sm_90]``.

    Source: the list of packages in ``matrix/facts/components.yaml``.
    """
    driver = context.driver.text if context.driver else ""
    forward = context.forward.usable if context.forward else None
    return _run_check(context, "open", context.capability, _cuda_text(context), driver, forward)


@rule("CG411", "package-arch", reads=RECORDS | FORWARD)
def package_arch(context: RuleContext) -> RuleAnswer:
    """A package's own libraries have no code for the pool's GPU.

    The rule counts the translation units of each library that the package loads. A single unit
    with code for the GPU does not mean support, nor do a few units with PTX if most have nothing
    for the GPU. The package fails if none of its libraries runs, or if only a few of all units
    run. If some libraries do not run, the rule warns, because they can be for other GPUs; if the
    other libraries have only PTX, the answer is unknown. If only PTX runs, the driver must be able
    to compile the PTX of the toolkit that made it (as in CG202). A library with code for only one
    architecture (``sm_90a``) is loaded only on this architecture.

    Builds for GPUs of AMD or Intel (``+rocm6.2``, or linked against ROCm) fail. For packages that
    are compiled elsewhere, the rule fails GPUs that their source, build script or documentation
    excludes.

    Example: ``faiss-gpu-cu12`` 1.14.1 has no code and no PTX for an H100 (9.0).

    Fix: use a release with code for the GPU.

    Source: the record of the wheel, measured from its libraries; CUDA C++ Programming Guide,
    "Binary Compatibility" and "PTX Compatibility".
    """
    return _run_check(
        context, "arch", context.capability, _cuda_text(context), context.compiles_up_to
    )


@rule("CG412", "package-requires", reads=VERSIONS)
def package_requires(context: RuleContext) -> RuleAnswer:
    """The stack does not meet a requirement that a package declares on another part.

    The metadata of the wheel contains pins and ranges. Installers respect them, except with
    ``--no-deps``, an override, or two separate installs. Code that was linked or compiled against
    another release then fails when it is loaded. Programs state the driver that they need at least.

    Example: ``xformers`` 0.0.35 requires torch 2.10.0; torch 2.9.1 has another ABI.

    Fix: use the required version.

    Source: ``Requires-Dist`` of the wheel, in its record; the documents of a program.
    """
    ours = context.stack.components
    driver = context.driver.text if context.driver else ""
    stated = [(name, ours[name].text) for name in ours if name not in OF_BUILDS]
    return _run_check(context, "requires", driver, *stated)


@rule("CG413", "package-torch", reads=RECORDS)
def package_torch(context: RuleContext) -> RuleAnswer:
    """An extension was built against another torch than the stack has.

    libtorch and libc10 have no symbol versions: an extension for another minor fails when it is
    imported, with "undefined symbol: _ZN3c10...". An extension that uses only torch's stable ABI
    also runs with later releases. If torch is installed with the extension (an image, a folder),
    the rule looks up the extension's undefined symbols in this torch, and the result decides. If
    symbols, metadata and file name do not tell the torch, a package of the stack can pin both, as
    ``sglang`` pins ``sgl-kernel`` and torch; otherwise the answer is unknown. A package that works
    without its extension (``torchao``) is at most a warning. A wheel whose label names another
    minor of CUDA than torch's is unknown: torchaudio compares them when it is imported. Without a
    label, torchvision and torchaudio together beside a torch with one are assumed to come from its
    index, as PyTorch's install command takes them: a warning. Without a
    record, the label of a build decides (``flash-attn`` 2.8.3+cu12torch2.8cxx11abiTRUE); without a
    label, the other wheels of the release decide (for another system, or with another CUDA label).

    Example: ``xformers`` 0.0.20 was built for torch 2.0; with torch 2.1 it cannot be imported.

    Fix: use the torch that it was built for, or a release for this torch.

    Source: the record of the wheel: its requirements, its file name, and its undefined symbols.
    """
    return _run_check(context, "torch")


@rule("CG414", "package-libraries", reads=RECORDS | {"cudnn"})
def package_libraries(context: RuleContext) -> RuleAnswer:
    """A library needs another library that the stack has in another major, or too old.

    A library that is linked against ``libcudart.so.13`` does not load with a CUDA 12 runtime. Some
    packages open cuBLAS by name when they compute, and stop without it (CTranslate2). For a
    package that works without the library (``open3d``), the rule warns. The answer is unknown if
    the stack's cuDNN belongs to another build of the release than that of the package index (ONNX
    Runtime 1.18.1). cuSPARSE and cuSOLVER use nvJitLink symbols of their own toolkit. An older
    nvJitLink of the same major does not define these symbols, and loading fails with "undefined
    symbol: __nvJitLinkComplete_12_4". Some
    packages have a library for each CUDA (``libbitsandbytes_cuda128.so``) and load the one for the
    stack's CUDA. Releases that do not fall back to a similar CUDA do not work with another CUDA.

    Example: ``nvidia-cusparse-cu12`` 12.3.1.170 (CUDA 12.4) with ``nvidia-nvjitlink-cu12``
    12.1.105 fails.

    Fix: use the library of the same toolkit, or a later one of the same major.

    Source: NVIDIA nvJitLink documentation, "Compatibility"; the libraries' own dynamic sections,
    in the records of their wheels.
    """
    return _run_check(context, "libraries", _cuda_text(context))


@rule("CG415", "package-glibc", reads=RECORDS | BUILD | NODE)
def package_glibc(context: RuleContext) -> RuleAnswer:
    """A wheel needs a newer glibc than the stack runs with.

    The platform tag of a wheel names its oldest glibc (``manylinux_2_28``, ``manylinux2014`` for
    2.17). An installer does not offer the wheel on an older system, and a copied wheel does not
    load ("version `GLIBC_2.28' not found"). Some wheels need a newer glibc than their tag says;
    the facts list them.

    State the glibc of the image or environment in the stack, ``glibc=2.31``; a glibc that is too
    old is denied. Without this value and without an image, the rule takes the glibc from the
    distribution of the pool's nodes: a glibc that is too old is then unknown, because a container
    can have its own.

    Example: torch 2.7.0 with ``glibc=2.27`` (Ubuntu 18.04) fails: its wheels are for 2.28.

    Fix: use an image with a newer glibc, or a release with wheels for this glibc.

    Source: PEP 600, "Future 'manylinux' Platform Tags"; names of the wheels on the package index.
    """
    stated = "glibc" in context.stack.components or "distribution" in context.pool.node
    if not stated or context.pool.os == "windows":
        return NOT_APPLICABLE
    from compatgate.core.rules.package_glibc import check_glibc

    return check_glibc(context)
