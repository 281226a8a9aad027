"""CG201 to CG203: the GPU code of the workload against the device, the driver and the toolkit."""

from __future__ import annotations

from collections.abc import Iterator

from compatgate.core import changes
from compatgate.core.case import Case
from compatgate.core.facts import ToolkitArch
from compatgate.core.gpu_code import how_it_runs
from compatgate.core.parts import CODE, FORWARD
from compatgate.core.rules.base import (
    NOT_APPLICABLE,
    PASS,
    Answer,
    Candidate,
    Problem,
    not_checked,
    rule,
)
from compatgate.core.rules.reach import may_reach_further, weakest_source
from compatgate.core.versions import Version, show


@rule("CG201", "no-kernel-image", reads=CODE)
def no_kernel_image(case: Case) -> Answer:
    """The workload has no code for this GPU: "no kernel image is available for execution".

    Machine code (SASS) runs on devices of the same major with a minor not below its own, never
    between Tegra and other parts; ``sm_90a``-style code runs only on exactly its own capability,
    family-specific code on its family. Failing that, PTX at or below the device's capability can
    be compiled by the driver (CG202 asks whether this driver can). Code of packages whose files
    were read is not judged here, but package by package (CG411).

    Example: an image with ``sm_80`` code alone on an H100 (9.0) fails.

    Fix: build for the GPU's architecture, or add PTX.

    Source: CUDA C++ Programming Guide, "Binary Compatibility" and "PTX Compatibility".
    """
    device, codes = case.capability, case.stack.arch
    if device is None:
        return NOT_APPLICABLE
    if codes is None:
        if case.frameworks:
            return NOT_APPLICABLE
        if case.cuda is None or case.stack.measured:
            return NOT_APPLICABLE
        return not_checked(
            "arch", "the stack states no GPU code; add arch=sm_.. to have it checked"
        )
    if how_it_runs(codes, device, case.facts.arch):
        return PASS
    have = ", ".join(code.name for code in codes) or "none"
    message = f"no code for {case.gpu_name}: the workload carries {have}"
    if any(code.capability[0] == device[0] for code in codes if code.kind == "sass"):
        message += " (newer than, or not binary compatible with, this device)"
    if device in ((10, 1), (11, 0)):
        message += "; 10.1 was renumbered 11.0 in CUDA 13, code for one is not for the other"
    return (
        Problem(
            "fail",
            "arch",
            message,
            have=have,
            need=f"sm_{device[0]}{device[1]}, or PTX of compute_{device[0]}{device[1]} or below",
            source=case.facts.arch.binary,
            candidates=lambda: changes.add_sass(case),
        ),
    )


@rule("CG202", "ptx-toolchain", reads=CODE | FORWARD)
def ptx_toolchain(case: Case) -> Answer:
    """PTX must be compiled by the driver, and was made by a toolkit newer than the driver's CUDA.

    The program stops with "the provided PTX was compiled with an unsupported toolchain".
    Minor-version compatibility does not cover PTX; a usable forward-compatibility package does.
    The PTX of a published build was made by the toolkit of that build, whatever runtime is beside
    it.

    Example: ``compute_80`` PTX of CUDA 12.1 on driver 525.60.13 (CUDA 12.0) fails.

    Fix: raise the driver to the toolkit's own, or build SASS for the GPU.

    Source: CUDA Compatibility guide, "Minor Version Compatibility", limitations.
    """
    made_by, driver = case.ptx_cuda, case.driver
    if made_by is None or driver is None:
        return NOT_APPLICABLE
    reach = case.usable_cuda
    if reach is None:
        why = f"the CUDA version of driver {driver} is not known"
        return (Problem("unknown", "driver", f"{why}: whether it compiles this PTX neither"),)
    if made_by <= reach:
        return PASS
    cuda, own = _maker(case)
    if why := may_reach_further(case):
        message = f"{why}; this workload needs it to compile PTX of CUDA {cuda}"
        return (Problem("unknown", "driver", message, have=driver.text),)
    return (
        Problem(
            "fail",
            "driver",
            f"this workload needs its PTX compiled by the driver, but CUDA {cuda} made it and "
            f"driver {driver} understands PTX up to CUDA {show(reach)}",
            have=driver.text,
            need=f">={own}" if own else f"a driver of CUDA {cuda} or newer",
            source=weakest_source(case, case.facts.arch.ptx),
            candidates=lambda: _compile_it(case),
        ),
    )


def _maker(case: Case) -> tuple[str, Version | None]:
    """The toolkit that made the PTX, as text, and the driver that came with it."""
    assert case.ptx_cuda is not None  # noqa: S101 - the caller checked
    if case.cuda and case.cuda.major_minor == case.ptx_cuda:
        return case.cuda.text, case.toolkit.driver.get(case.os) if case.toolkit else None
    series = case.facts.toolkits_of.get(case.ptx_cuda, ())
    return show(case.ptx_cuda), series[0].driver.get(case.os) if series else None


def _compile_it(case: Case) -> Iterator[Candidate]:
    _, own = _maker(case)
    if own:
        yield changes.raise_driver(case, own)
    yield from changes.add_sass(case)
    yield from changes.add_forward_compat(case)


def _older_code_runs(case: Case, toolkit: ToolkitArch) -> bool:
    """Whether code that this toolkit can make runs on the GPU; other code is not its work."""
    own = [code for code in case.code or () if code.capability in toolkit.sass]
    device = case.capability
    return device is not None and how_it_runs(own, device, case.facts.arch) is not None


@rule("CG203", "toolkit-arch", reads=CODE)
def toolkit_arch(case: Case) -> Answer:
    """The toolkit cannot target the GPU: support was dropped, or did not exist yet.

    CUDA 13 drops everything below 7.5, CUDA 12 drops Kepler; 8.6 needs CUDA 11.1, Blackwell 12.8.
    A toolkit that is only too old to know the GPU may still have made code that runs there
    (binary-compatible SASS, or PTX): then the rule warns, since its libraries were not made for it.

    Fix: a toolkit within the GPU's range.

    Source: CUDA Toolkit Release Notes and NVIDIA's "CUDA Toolkit, Driver, and Architecture Matrix".
    """
    cuda, device = case.cuda, case.capability
    if cuda is None or device is None:
        return NOT_APPLICABLE
    facts = case.facts.arch
    toolkit = facts.toolkits.get(show(cuda.major_minor))
    if toolkit is None:
        return NOT_APPLICABLE
    if device in toolkit.sass:
        return PASS
    fact = facts.capabilities.get(show(device))
    if fact is None:
        newest = list(facts.capabilities)[-1]
        message = f"compute capability {show(device)} is not known; the newest known is {newest}"
        return (Problem("unknown", "gpu", message, have=show(device)),)
    dropped = fact.last_toolkit is not None and cuda.major_minor > fact.last_toolkit
    if dropped and fact.last_toolkit:
        last = show(fact.last_toolkit)
        message = f"CUDA {cuda} no longer supports {case.gpu_name}; {last} was the last"
        need = f"<={last}"
    else:
        first = show(fact.first_toolkit)
        message = f"CUDA {cuda} does not know {case.gpu_name}; support came with {first}"
        need = f">={first}"
    runs_anyway = not dropped and _older_code_runs(case, toolkit)
    if runs_anyway:
        message += " (its older code runs, by binary compatibility or from PTX)"
    return (
        Problem(
            "warn" if runs_anyway else "fail",
            "cuda",
            message,
            have=cuda.text,
            need=need,
            source=fact.source,
            candidates=lambda: changes.cuda_for_gpu(case),
        ),
    )
