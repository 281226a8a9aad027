"""CG105, CG106, CG201 to CG203, CG210, CG211: check a GPU against driver, GPU code and needs.

The driver's branch must drive the GPU and its MIG slices; the code must run on it, and the
driver and the toolkit must know it. The GPU must compute in the number formats that the workload
needs and have the memory: the stack states its needs, or the matrix entry that decides states
them for it.
"""

from __future__ import annotations

from itertools import chain

from compatgate.core import changes, gpu_needs
from compatgate.core.facts.nvidia import CapabilityFact, Gpu, Pair, ToolkitArch
from compatgate.core.gpu_code import Arch, find_run_mode, parse_arch
from compatgate.core.gpu_needs import find_unmet
from compatgate.core.needs import Needs
from compatgate.core.package_cuda import cuda_of_label
from compatgate.core.parts import CODE, DRIVER, FORWARD, RECORDS
from compatgate.core.rule import (
    NOT_APPLICABLE,
    PASS,
    Answer,
    Problem,
    report_left_out,
    report_missing_fact,
    report_no_effect,
    rule,
)
from compatgate.core.rule_context import RuleContext
from compatgate.core.rules.driver import (
    explain_open_reach,
    find_reach,
    report_older_driver,
    run_time_outcome,
    weakest_source,
)
from compatgate.core.stack_facts import accepts
from compatgate.core.versions import Version, format_parts, parse_version


@rule("CG105", "driver-gpu", reads=DRIVER, pool_only=True)
def driver_gpu(context: RuleContext) -> Answer:
    """The driver branch is older than the first, or newer than the last, that supports the GPU.

    Branch 580 is the last for Maxwell, Pascal and Volta, 470 for Kepler; Blackwell needs 570 or
    newer. Forward compatibility does not help: the kernel driver itself must support the GPU. A
    Jetson's driver comes with its L4T release, which CG130 judges. Windows packages have the limits
    of the branch that they are of, and in WSL the branch must carry CUDA for it. The rule warns
    about a driver that is older than the first of its branch that lists the product: the GPU may
    run there under a generic name.

    Fix: use a driver within the GPU's range of branches.

    Source: NVIDIA Data Center Drivers documentation, "CUDA Toolkit, Driver, and Architecture
    Matrix"; first branches derived from the first toolkit of each capability.
    """
    gpu, driver = context.pool.gpu, context.driver
    if gpu is None or driver is None or context.jetson:
        return NOT_APPLICABLE
    branch = context.branch
    if branch is None and context.os == "windows":
        return _report_unknown_branch(context, driver)
    number = branch.branch if branch else driver.major
    fact = context.facts.arch.capabilities.get(format_parts(gpu.capability))
    last = gpu.last_branch or (fact.last_branch if fact else None)
    if context.os == "windows":
        last = gpu.last_windows_branch or last
    if gpu.first_branch and number < gpu.first_branch:
        why = f"{context.gpu_name} needs driver branch {gpu.first_branch} or newer"
        need = f">={_number_of(context, gpu.first_branch)}"
    elif last and number > last:
        why = f"driver branch {last} is the last that supports {context.gpu_name}"
        need = f"<{_number_of(context, last, end=True) + 1}"
    elif branch is None:
        return _report_unknown_branch(context, driver)
    else:
        return (
            _find_wsl_problem(context, driver)
            or _find_late_product(context, driver, gpu)
            or _judge_first(context, number, gpu)
        )
    return Problem(
        "fail",
        "driver",
        f"driver {driver} does not support this GPU: {why}",
        have=driver.text,
        need=need,
        source=gpu.source,
        candidates=lambda: changes.driver_for_gpu(context),
    )


def _judge_first(context: RuleContext, branch: int, gpu: Gpu) -> Answer:
    """Judge a GPU whose first branch may be open: any branch for a newer capability knows it."""
    if not gpu.product:
        message = f"the first driver for {gpu.name} depends on the product, which is not stated"
        return report_left_out("gpu", message)
    if gpu.first_branch is not None:
        return PASS
    message = f"the first driver branch for {gpu.sku} is not published"
    newer = [
        other.first_branch
        for other in context.facts.gpus.gpus.values()
        if other.capability > gpu.capability and other.first_branch
    ]
    if newer and branch >= min(newer):
        return report_no_effect("gpu", message)
    need = f"a driver of branch {min(newer)} or newer" if newer else "a branch known to support it"
    return report_missing_fact("driver", message, need=need, have=str(context.driver))


def _number_of(context: RuleContext, branch: int, *, end: bool = False) -> int:
    if context.os == "linux":
        return branch
    rows = context.facts.driver_branches.windows
    own = next((one for one in rows if one.branch == branch), None)
    return branch if own is None else own.last if end else own.first


def _report_unknown_branch(context: RuleContext, driver: Version) -> Answer:
    table = context.facts.driver_branches
    if context.os == "windows":
        newest = max((one.last for one in table.windows), default=0)
        message = f"the branch of Windows driver {driver} is not known; the newest is {newest}"
        need = f"a driver of a known branch, up to {newest}"
        return report_missing_fact("driver", message, need=need, have=driver.text)
    oldest, newest = min(table.branches), max(table.branches)
    is_between = oldest < driver.major < newest
    message = f"driver branch {driver.major} is not known; known are {oldest} to {newest}"
    message += "; is it a Windows driver (os=windows)?" if is_between else ""
    need = f"a driver of a known branch, {oldest} to {newest}"
    return Problem("unknown", "driver", message, have=driver.text, need=need)


def _find_wsl_problem(context: RuleContext, driver: Version) -> Answer | None:
    """Return what is wrong with a Windows driver whose branch may carry no CUDA for WSL."""
    rows, branch = context.facts.driver_branches.wsl, context.branch
    if context.pool.os != "wsl" or not branch:
        return None
    if not rows:
        message = f"whether drivers of branch {branch.branch} carry CUDA for WSL is not known"
        return report_missing_fact("driver", message, need="facts about WSL", have=driver.text)
    if branch.branch >= rows[0].first_with:
        return None
    need, source = f">={_number_of(context, rows[0].first_with)}", rows[0].source
    if branch.branch <= rows[0].last_without:
        message = f"drivers of branch {branch.branch} carry no CUDA for WSL"
        return (Problem("fail", "driver", message, driver.text, need, source),)
    message = f"whether drivers of branch {branch.branch} carry CUDA for WSL is not known"
    return report_missing_fact("driver", message, need=need, have=driver.text, source=source)


def _find_late_product(context: RuleContext, driver: Version, gpu: Gpu) -> Problem | None:
    firsts = gpu.first_drivers
    if context.os == "windows":
        listed = gpu.first_windows
    else:
        own = (one for one in firsts if one.major == driver.major)
        listed = next(own, firsts[0] if firsts and driver.major < firsts[0].major else None)
    if listed is None or driver >= listed:
        return None
    message = f"driver {driver} does not list {context.gpu_name}, which came with {listed}: the "
    message += "GPU may not work, or only under a generic name"
    return report_older_driver(context, "warn", message, listed, gpu.source)


@rule("CG106", "mig-driver", reads=DRIVER, pool_only=True)
def mig_driver(context: RuleContext) -> Answer:
    """The driver is older than the first that offers MIG on this GPU.

    A pool of MIG slices needs a driver that supports MIG on the GPU: H100 from 525.85.12, B300
    from 580.82.07.

    Fix: raise the driver.

    Source: NVIDIA MIG User Guide, "Deployment Considerations".
    """
    gpu, driver = context.pool.gpu, context.driver
    if gpu is None or driver is None or gpu.mig is None:
        return NOT_APPLICABLE
    minimum = gpu.mig_driver
    if minimum is None or context.os == "windows":
        return _judge_open_mig(context, driver, gpu)
    if driver >= minimum:
        return PASS
    message = f"driver {driver} does not offer MIG on {gpu.name}, which came with {minimum}"
    return report_older_driver(context, "fail", message, minimum, gpu.source)


def _judge_open_mig(context: RuleContext, driver: Version, gpu: Gpu) -> Answer:
    """Judge MIG without a published minimum by those of all GPUs of the same capability."""
    message = f"the first driver with MIG on {gpu.name} is not published"
    known = [
        other.mig_driver
        for other in context.facts.gpus.gpus.values()
        if other.mig_driver and other.capability == gpu.capability
    ]
    if context.os == "windows":
        need = "os=linux"
        message += " for Windows"
    elif known and driver >= max(known):
        return report_no_effect("driver", f"{message}; every similar GPU has it from {max(known)}")
    else:
        need = f">={max(known)}, as on similar GPUs" if known else "a GPU with a published minimum"
    return report_missing_fact("driver", message, need=need, have=driver.text)


@rule("CG201", "no-kernel-image", reads=CODE | FORWARD)
def no_kernel_image(context: RuleContext) -> Answer:
    """The workload has no code for this GPU: "no kernel image is available for execution".

    Machine code (SASS) runs on GPUs of the same major and the same or a higher minor, but never on
    a Tegra GPU if it was built for another GPU, or the reverse. Code like ``sm_90a`` runs only on
    exactly its capability, family-specific code only on its family. Otherwise the driver can
    compile PTX at or below the GPU's capability (CG202 checks whether this driver can). CG411
    judges the code of packages whose files were read. If measurements contradict each other, the
    answer is unknown: code of 8.0 on Orin (8.7) with a libcuda of CUDA 13.2 or newer; Thor, which
    was 10.1 and is 11.0 from CUDA 13 on.

    Example: an image with only ``sm_80`` code on an H100 (9.0) fails.

    Fix: build for the GPU's architecture, or add PTX.

    Source: CUDA C++ Programming Guide, "Binary Compatibility" and "PTX Compatibility".
    """
    device, codes = context.capability, context.stack.arch
    if device is None:
        return NOT_APPLICABLE
    if codes is None:
        if context.frameworks or context.cuda is None or context.stack.measured:
            return NOT_APPLICABLE
        what = "the stack states no GPU code; add arch=sm_.. to have it checked"
        return report_left_out("arch", what)
    if find_run_mode(codes, device, context.facts.arch):
        return PASS
    have = ", ".join(code.name for code in codes) or "none"
    message = f"no code for {context.gpu_name}: the workload has {have}"
    if any(code.capability[0] == device[0] for code in codes if code.kind == "sass"):
        message += " (newer than, or not binary compatible with, this device)"
    dispute = context.find_dispute(codes)
    if dispute:
        message += f"; {dispute.text}"
    return Problem(
        "unknown" if dispute else "fail",
        "arch",
        message,
        have=have,
        need=f"sm_{device[0]}{device[1]}, or PTX of compute_{device[0]}{device[1]} or below",
        source=dispute.source if dispute else context.facts.arch.binary,
        candidates=lambda: changes.add_sass(context),
    )


@rule("CG202", "ptx-toolchain", reads=CODE | RECORDS | FORWARD)
def ptx_toolchain(context: RuleContext) -> Answer:
    """The driver must compile PTX, but a toolkit newer than the driver's CUDA made it.

    The program stops with "the provided PTX was compiled with an unsupported toolchain".
    Minor-version compatibility does not cover PTX; a usable forward-compatibility package does.
    The toolkit of a published build made its PTX, whatever CUDA the stack states. Parts that
    compile when they run (CuPy, Numba, Warp, Triton) do so with the stack's toolkit, or with a
    compiler of their own: their facts say whether the driver gets PTX or machine code. Where they
    only conclude that it gets PTX, or where the CUDA is assumed, the answer is unknown.

    Example: ``compute_80`` PTX of CUDA 12.1 on driver 525.60.13 (CUDA 12.0) fails; so does CuPy 9
    with CUDA 11.5 on a driver of CUDA 11.4, whereas CuPy 10 makes machine code and passes.

    Fix: raise the driver to the toolkit's own, or build SASS for the GPU.

    Source: CUDA Compatibility guide, "Minor Version Compatibility", limitations.
    """
    driver = context.driver
    if driver is None:
        return NOT_APPLICABLE
    if context.ptx_cuda is None:
        return _check_run_time_code(context, driver)
    reach = find_reach(context, context.ptx_cuda)
    if reach is None:
        why = f"the CUDA version of driver {driver} is not known"
        message = f"{why}, so whether it compiles this PTX is not known either"
        return Problem("unknown", "driver", message)
    if context.ptx_cuda <= reach:
        return _check_run_time_code(context, driver)
    cuda, own = _find_ptx_toolkit(context)
    if why := explain_open_reach(context, context.ptx_cuda):
        message = f"{why}; this workload needs it to compile PTX of CUDA {cuda}"
        problem = Problem("unknown", "driver", message, have=driver.text)
    else:
        problem = Problem(
            "fail",
            "driver",
            f"this workload needs its PTX compiled by the driver, but CUDA {cuda} made it and "
            f"driver {driver} understands PTX up to CUDA {format_parts(reach)}",
            have=driver.text,
            need=f">={own}" if own else f"a driver of CUDA {cuda} or newer",
            source=weakest_source(context, context.facts.arch.ptx),
            candidates=lambda: chain(
                (changes.raise_driver(context, own),) if own else (),
                changes.add_sass(context),
                changes.add_forward_compat(context),
            ),
        )
    at_run_time = _check_run_time_code(context, driver)
    return [problem, *at_run_time] if isinstance(at_run_time, list) else problem


def _check_run_time_code(context: RuleContext, driver: Version) -> Answer:
    silent: Answer = PASS if context.ptx_cuda else NOT_APPLICABLE
    cuda = context.cuda
    if cuda is None or not context.run_time_code:
        return silent
    reach = find_reach(context, cuda.major_minor)
    if reach is None or cuda.major_minor <= reach:
        return silent
    made = [one for one in context.run_time_code if one.makes == "ptx"]
    if not made:
        return PASS
    own = context.toolkit.driver.get(context.os) if context.toolkit else None
    return [
        Problem(
            run_time_outcome(context, one),
            "driver",
            f"{one.title} compiles to PTX when it runs: that of CUDA {cuda} is newer than driver "
            f"{driver} understands, up to CUDA {format_parts(reach)}",
            have=driver.text,
            need=f">={own}" if own else f"a driver of CUDA {cuda} or newer",
            source=one.source,
            candidates=lambda: (changes.raise_driver(context, own),) if own else (),
        )
        for one in made
    ]


def _find_ptx_toolkit(context: RuleContext) -> tuple[str, Version | None]:
    assert context.ptx_cuda is not None  # noqa: S101 - the caller checked
    if context.cuda and context.cuda.major_minor == context.ptx_cuda:
        text, toolkit = context.cuda.text, context.toolkit
    else:
        series = context.facts.toolkits_of.get(context.ptx_cuda, ())
        text, toolkit = format_parts(context.ptx_cuda), series[0] if series else None
    return text, toolkit.driver.get(context.os) if toolkit else None


def _older_code_runs(context: RuleContext, toolkit: ToolkitArch, first: Pair) -> bool:
    """Tell whether code that this toolkit can make runs on the GPU, and is all that is needed.

    Where the workload's code is not known, it can be machine code for an older GPU of the same
    major, which CG405 and CG411 judge; PTX counts only where it is known to be there, by the
    measured wheel of a package that runs without a framework, or by a build script.
    """
    if any(found.needs_toolkit_from(first) for found in context.frameworks):
        return False
    codes, device, cuda = context.code, context.capability, context.cuda
    if codes is None:
        codes = tuple(Arch("sass", capability) for capability in toolkit.sass)
        for package in context.packages:
            codes += package.scripted_code(cuda.major_minor) if cuda else ()
            measured = () if context.frameworks else package.libraries
            for name in {name for library in measured for name in library.ptx}:
                codes += parse_arch(name)
    own = [code for code in codes if code.capability in toolkit.sass]
    return device is not None and find_run_mode(own, device, context.facts.arch) is not None


def _takes_newer_toolkit(context: RuleContext, first: Pair) -> bool:
    """Tell whether the CUDA is only assumed, and all builds accept one that knows the GPU.

    Without a framework, the CUDA is the one that packages need at least; exact for a library of a
    toolkit, and where the label of a build states it.
    """
    if not context.stack.assumed:
        return False
    if not context.frameworks:
        labels = (cuda_of_label(package) for package in context.packages)
        labelled = any(cuda is not None and len(cuda) > 1 for cuda in labels)
        return not (labelled or any(package.toolkits for package in context.packages))
    cuda = parse_version("cuda", format_parts(first))
    return all(found.build and accepts(found.build, cuda) for found in context.frameworks)


def _judge_range(
    context: RuleContext, cuda: Version, device: Pair, fact: CapabilityFact | None
) -> Answer:
    """Judge a toolkit without a list of targets by the first and last toolkit for the GPU."""
    if context.toolkit is None:
        return NOT_APPLICABLE  # CG101 says that this CUDA is not known
    first, last = (fact.first_toolkit, fact.last_toolkit) if fact else (None, None)
    if first and first <= cuda.major_minor and (last is None or cuda.major_minor <= last):
        return PASS
    message = f"which GPUs CUDA {cuda} can target is not known"
    need = f">={format_parts(first)}" if first else f"a CUDA known to target {format_parts(device)}"
    return report_missing_fact("cuda", message, need=need, have=cuda.text)


@rule("CG203", "toolkit-arch", reads=CODE | RECORDS)
def toolkit_arch(context: RuleContext) -> Answer:
    """No code that this toolkit can make runs on the GPU: support was dropped, or came later.

    CUDA 13 drops everything below 7.5, CUDA 12 drops Kepler; Blackwell needs 12.8. A toolkit that
    is older than the GPU, but knows an older GPU of the same major, makes code that runs on both:
    ``sm_86`` of CUDA 11.7 on an RTX 4090 (8.9). The rule then warns, because the toolkit's
    libraries were not made for the GPU; CG201, CG405 and CG411 judge the code itself. It also warns
    if the workload is known to have PTX that runs on the GPU. It fails if a framework compiles code
    with the toolkit (JAX before its plugins), or refuses GPUs that came after its toolkit
    (TensorRT). An assumed CUDA never denies if the framework's build accepts a toolkit that
    supports the GPU: installers choose the newest toolkit of the range.

    Example: CUDA 12.6 on an RTX 5090 (12.0) fails.

    Fix: use a toolkit within the GPU's range.

    Source: CUDA Toolkit Release Notes and NVIDIA's "CUDA Toolkit, Driver, and Architecture Matrix".
    """
    cuda, device = context.cuda, context.capability
    if cuda is None or device is None:
        return NOT_APPLICABLE
    facts = context.facts.arch
    toolkit = facts.toolkits.get(format_parts(cuda.major_minor))
    fact = facts.capabilities.get(format_parts(device))
    if toolkit is None:
        return _judge_range(context, cuda, device, fact)
    if device in toolkit.sass:
        return PASS
    if fact is None:
        newest = list(facts.capabilities)[-1]
        have = format_parts(device)
        message = f"compute capability {have} is not known; the newest known is {newest}"
        return Problem("unknown", "gpu", message, have=have)
    dropped = fact.last_toolkit is not None and cuda.major_minor > fact.last_toolkit
    message, need = _describe_range(context, cuda, fact, dropped=dropped)
    runs_anyway = not dropped and _older_code_runs(context, toolkit, fact.first_toolkit)
    newer = not dropped and _takes_newer_toolkit(context, fact.first_toolkit)
    of_packages = (library for one in context.packages for library in one.libraries)
    if newer and not context.frameworks and any(one.carries_code for one in of_packages):
        return NOT_APPLICABLE  # CG411 judges their code
    if runs_anyway:
        message += (
            ": code made for older GPUs runs, by binary compatibility or from PTX; what is compiled"
            " for this GPU while it runs, such as TorchScript's fused kernels by NVRTC, fails"
        )
    elif newer:
        message += "; this CUDA is only assumed: state the CUDA that is installed"
    return Problem(
        "warn" if runs_anyway else "unknown" if newer else "fail",
        "cuda",
        message,
        have=cuda.text,
        need=need,
        source=fact.source,
        candidates=lambda: changes.cuda_for_gpu(context),
    )


def _describe_range(
    context: RuleContext, cuda: Version, fact: CapabilityFact, *, dropped: bool
) -> tuple[str, str]:
    if dropped and fact.last_toolkit:
        last = format_parts(fact.last_toolkit)
        message = f"CUDA {cuda} no longer supports {context.gpu_name}; {last} was the last"
        return message, f"<={last}"
    first = format_parts(fact.first_toolkit)
    message = f"CUDA {cuda} does not support {context.gpu_name}; support came with {first}"
    return message, f">={first}"


@rule("CG210", "precision")
def precision(context: RuleContext) -> Answer:
    """The GPU does not compute in a number format that the workload needs.

    FP8 came with capability 8.9, FP4 and block scales with 10.0, BF16 and TF32 with 8.0; INT4 ends
    with 8.9. The rule checks only the hardware. Weights that are only stored in a narrow format
    also load on older GPUs, which compute in a wider format: do not state a need for them. A
    library can still refuse a format that the hardware has.

    Example: ``needs=fp8`` on an A100 (8.0) fails.

    Fix: use a GPU that computes in the format, in another pool of the target or another product.

    Source: NVIDIA CUDA Programming Guide, "Compute Capabilities"; formats that ptxas refuses for
    each target.
    """
    needs = context.needs
    if needs is None or not needs.precision:
        return NOT_APPLICABLE
    return _check_needs(context, Needs(precision=needs.precision))


@rule("CG211", "memory")
def memory(context: RuleContext) -> Answer:
    """The GPU, or MIG slice, has less memory than the workload needs.

    The need is for one GPU, or for one slice: ``60GiB`` is 60 * 2**30 bytes, ``80GB`` is 80 *
    10**9. A product sold as 80 GB has at least 80 GB and at most 80 GiB, because ECC and the
    driver use some memory. A slice has at most the GiB in its name, and at least 7/8 of them. A
    need between the bounds is unknown: measure the memory.

    Example: ``needs=60GiB`` fails on an A100 with 40 GB, and on a slice 1g.10gb.

    Fix: use a GPU with more memory, in another pool of the target or another product.

    Source: the vendors' sizes (``gpus.yaml``); NVIDIA MIG User Guide, "Supported MIG Profiles".
    """
    needs = context.needs
    if needs is None or needs.memory is None:
        return NOT_APPLICABLE
    return _check_needs(context, Needs(memory=needs.memory))


def _check_needs(context: RuleContext, needs: Needs) -> Answer:
    gpu = context.pool.gpu
    if gpu is None:
        wanted = ", ".join(needs.precision) or (needs.memory.text if needs.memory else "")
        message = f"the workload needs {wanted}, and which GPU runs it is not stated"
        return Problem("unknown", "gpu", message, need=wanted)

    def fits(gpu: Gpu) -> bool:
        return not find_unmet(context.needs or Needs(), gpu, context.facts)

    return [
        Problem(
            "fail" if unmet.certain else "unknown",
            "gpu",
            unmet.message,
            have=unmet.have,
            need=unmet.need,
            source=unmet.source,
            candidates=lambda: gpu_needs.other_gpu(context, fits),
        )
        for unmet in find_unmet(needs, gpu, context.facts)
    ] or PASS
