"""CG130 to CG132: judge a pool of Jetsons by its L4T release.

A Jetson's driver has numbers of its own: 540.4.0 holds CUDA 12.6, 580.00 holds CUDA 13.0. A pool
of any other GPU is not judged here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from compatgate.core import changes
from compatgate.core.facts.nvidia import Pair
from compatgate.core.parts import CODE, CUDNN, DRIVER, FORWARD, JETSON, Candidate
from compatgate.core.rule import NOT_APPLICABLE, PASS, Answer, Problem, report_missing_fact, rule
from compatgate.core.rule_context import RuleContext
from compatgate.core.stack_facts import is_jetson
from compatgate.core.versions import format_parts, parse_version

if TYPE_CHECKING:  # imported by the first question about a Jetson
    from compatgate.core.facts.jetson import JetsonDevice, JetsonRelease, Sbsa, Wheels
    from compatgate.core.jetson import JetsonHost


@rule("CG130", "jetson-release", reads=JETSON | DRIVER, pool_only=True)
def jetson_release(context: RuleContext) -> Answer:
    """The L4T release of a Jetson is not known, contradicts itself, or does not support the module.

    The release is stated (``l4t=36.4.3``, the first line of ``/etc/nv_tegra_release``; or
    ``jetpack=6.2``), or it follows from the driver that nvidia-smi prints. JetPack 5 and older
    have no nvidia-smi. One JetPack number can mean several releases of L4T, so the rule uses L4T.

    Example: L4T 38.4.0 (JetPack 7.1) supports Thor and not Orin; driver 580.95.05 is a server
    driver, which no Jetson reports.

    Fix: state ``l4t``, or move to a release for the module.

    Source: NVIDIA's JetPack pages, and the package lists of each release.
    """
    host = context.jetson
    if host is None:
        return NOT_APPLICABLE
    if not host.releases:
        return Problem(
            "unknown",
            "driver",
            f"{host.unknown}, so what runs on {context.gpu_name} is not known",
            have=context.driver.text if context.driver else None,
            need="l4t=36.4.3, as cat /etc/nv_tegra_release shows it (R36, REVISION: 4.3)",
            candidates=lambda: _propose_releases(context, host),
        )
    return [*_find_contradictions(context, host), *_check_device(context, host)] or PASS


def _find_contradictions(context: RuleContext, host: JetsonHost) -> Iterator[Problem]:
    """Yield what is stated and does not belong to the release."""
    release, pool = host.releases[-1], context.pool
    jetpack = pool.node_version("jetpack")
    if jetpack and all(one.jetpack.at(3) != jetpack.at(3) for one in host.releases):
        message = f"{release.title} is stated with JetPack {jetpack}"
        need = f"jetpack={release.jetpack}"
        yield Problem("unknown", "jetpack", message, jetpack.text, need, release.source)
    reported = {one.driver for one in host.releases if one.driver}
    driver, own = pool.driver, release.driver
    if driver is None or not reported or driver in reported:
        return
    if any(driver.at(3) == one.l4t.at(3) for one in host.releases):
        return  # the number of the L4T release
    fixes = (Candidate({"driver": str(own)}, f"state driver {own}"),)
    message, need = f"{host.title} reports driver {own}, the pool states {driver}", f"driver={own}"
    yield Problem("unknown", "driver", message, driver.text, need, release.source, lambda: fixes)


def _check_device(context: RuleContext, host: JetsonHost) -> Iterator[Problem]:
    lists = [one.devices for one in host.releases]
    device, release = host.device, host.releases[-1]
    if device is None:
        if context.pool.gpu and context.pool.gpu.product:
            what = f"which device {context.gpu_name} is, for {release.title}, is not known"
            yield from report_missing_fact("l4t", what, need="a device of the facts")
        return
    if any(devices is not None and device.name in devices for devices in lists):
        return
    if None in lists:
        yield from _judge_unlisted(host, release, device)
        return
    supported = " and ".join(release.devices or ())
    first = next((r for r in host.table.releases if device.name in (r.devices or ())), None)
    last = f" or older ({device.last_jetpack} is its last)" if device.last_jetpack else ""
    yield Problem(
        "fail",
        "l4t",
        f"{release.title} does not support {device.title}, it is for {supported}",
        have=release.l4t.text,
        need=f"JetPack {device.last_jetpack}{last}"
        if last
        else f"a release for {device.title}, from L4T {first.l4t} on"
        if first
        else None,
        source=release.source,
        candidates=lambda: _propose_releases(context, host),
    )


def _judge_unlisted(
    host: JetsonHost, release: JetsonRelease, device: JetsonDevice
) -> Iterator[Problem]:
    """Report a release without a list of devices, unless its neighbours have this one."""
    known = [one for one in host.table.releases if one.devices is not None]
    before = [one for one in known if one.l4t < release.l4t][-1:]
    after = [one for one in known if one.l4t > release.l4t][:1]
    if before and after and all(device.name in (one.devices or ()) for one in before + after):
        return
    message = f"whether {release.title} supports {device.title} is not known"
    need = f"a release that lists {device.title}"
    have = release.l4t.text
    yield from report_missing_fact("l4t", message, need=need, have=have, source=release.source)


def _propose_releases(
    context: RuleContext, host: JetsonHost, least: Pair = (0, 0)
) -> Iterator[Candidate]:
    """Yield the production releases for the module, newest first, with a CUDA at least."""
    from compatgate.core.jetson import driver_of_release

    device = host.device_name
    for release in reversed(host.table.releases):
        if release.preview or release.cuda < least or device not in (release.devices or ()):
            continue
        change: dict[str, str | None] = {"l4t": release.l4t.text}  # and what else the pool states
        if "jetpack" in context.pool.node:
            change["jetpack"] = release.jetpack.text
        if context.pool.driver:
            change["driver"] = driver_of_release(release).text
        yield Candidate(change, f"move to {release.title}")


@rule("CG131", "jetson-cuda", reads=JETSON | CUDNN | FORWARD)
def jetson_cuda(context: RuleContext) -> Answer:
    """The Jetson's L4T release does not run programs of the stack's CUDA.

    The CUDA of libcuda decides: the CUDA of the L4T release, or of an upgrade package
    (``cuda-compat``) in the list of the release. Programs of an older toolkit run. Programs of a
    newer toolkit of the same major run by minor-version compatibility if NVIDIA's table says so (a
    warning: the driver cannot compile PTX of the newer toolkit). Across majors only the upgrade
    package helps, and only within the list of its JetPack. The minimum drivers of servers do not
    apply. Another cuDNN than that of the release is unknown: no matrix says what else runs.

    Example: CUDA 12.8 on L4T 36.4.3 (12.6) warns; CUDA 13.0 on it fails; CUDA 12.2 on L4T 35.4.1
    (11.4) needs ``cuda-compat-12-2``.

    Fix: use a CUDA of the release, the upgrade package, or a newer JetPack.

    Source: CUDA for Tegra application note, "Use the Right Upgrade Package" and "CUDA UMD and CUDA
    Toolkit version compatibility".
    """
    host, cuda = context.jetson, context.cuda
    if host is None or cuda is None or context.toolkit is None:
        return NOT_APPLICABLE
    libcuda = context.usable_cuda
    if libcuda is None:
        return NOT_APPLICABLE  # CG130 asks for the L4T release
    from compatgate.core.jetson import match_toolkit

    found, source = match_toolkit(host, libcuda, cuda.major_minor)
    if found in ("same", "older"):
        return _check_cudnn(context, host)
    own = f"{host.title}, whose libcuda is of CUDA {format_parts(libcuda)}"
    need = f"<={format_parts(libcuda)}"
    if found == "minor":
        message = (
            f"CUDA {cuda} is newer than {own}: it works by minor-version compatibility for code "
            "with SASS for this GPU, but PTX made by this toolkit is not understood"
        )
        return Problem("warn", "cuda", message, cuda.text, need, source)
    if context.forward_may_help and context.forward:
        message = f"CUDA {cuda} does not run on {own}; whether cuda-compat helps is not known"
        return Problem("unknown", "cuda", message, cuda.text, need, context.forward.source)
    message = f"CUDA {cuda} does not run on {own}"
    if found == "not-published":
        message = f"whether CUDA {cuda} runs on {own} is not published"
    return Problem(
        "fail" if found == "refused" else "unknown",
        "cuda",
        message,
        have=cuda.text,
        need=need,
        source=source,
        candidates=lambda: chain(
            changes.add_forward_compat(context),
            changes.move_to_cuda(context, host.cuda) if host.cuda else (),
            changes.older_cuda(context),
            _propose_releases(context, host, cuda.major_minor),
        ),
    )


def _check_cudnn(context: RuleContext, host: JetsonHost) -> Answer:
    have = context.stack.get("cudnn")
    brought = [one.cudnn for one in host.releases if one.cudnn]
    if have is None or any(parse_version("cudnn", text).at(3) == have.at(3) for text in brought):
        return PASS
    message = f"whether cuDNN {have} runs on {host.title} is not known"
    need = f"cudnn={brought[-1]}, which the release brings" if brought else "a release with cuDNN"
    return report_missing_fact("cudnn", message, need=need, have=have.text)


@rule("CG132", "jetson-wheels", reads=JETSON | CODE | DRIVER)
def jetson_wheels(context: RuleContext) -> Answer:
    """A wheel is built for Arm servers (SBSA), and this Jetson has another CUDA.

    Up to JetPack 6 a Jetson has a separate build of CUDA (``aarch64-jetson``). The wheels of the
    package index and of download.pytorch.org are for servers: they install, but fail at the first
    kernel. Thor from JetPack 7.0 and Orin from JetPack 7.2 run SBSA builds. A stack names a wheel
    of NVIDIA's indexes for Jetson by its own label (``2.5.0a0+872d972e41.nv24.08``), or by the
    name of the index (``torch=2.5.0+jp6.cu126``). If the stack states GPU code (``arch``), the
    rule assumes a build of your own.

    Example: ``torch=2.8.0+cu128`` on an AGX Orin with JetPack 6.2 fails.

    Fix: use the wheel of the index for this JetPack.

    Source: CUDA Features Archive, CUDA 13.0 (one Arm toolkit for servers and Thor, without Orin).
    """
    host = context.jetson
    if host is None or host.device is None:
        return NOT_APPLICABLE
    others = [*_find_other_indexes(context, host)]
    if others or context.stack.arch is not None:
        return others or NOT_APPLICABLE
    found = next((one for one in host.table.sbsa if one.device == host.device.name), None)
    if found is None or not host.releases:
        return NOT_APPLICABLE
    if found.since and all(one.l4t >= found.since for one in host.releases):
        return PASS
    wheels = [
        one.name
        for one in context.built
        if not one.conda and one.name not in context.stack.measured and one.version.cuda
    ]
    return [_report_wheel(context, host, name, found) for name in wheels] or PASS


def _find_other_indexes(context: RuleContext, host: JetsonHost) -> Iterator[Problem]:
    """Yield the wheels of an index for another JetPack, as their labels name it (``jp6``)."""
    for found in context.frameworks:
        if not host.releases or not is_jetson(found.version):
            continue
        major = int(found.version.local.partition(".")[0].removeprefix("jp"))
        if all(release.jetpack.major != major for release in host.releases):
            release = host.releases[-1]
            fitting = host.table.wheels_of(found.name, release.l4t, host.device_name)
            yield Problem(
                "fail",
                found.name,
                f"{found.title} is of the index for JetPack {major}, and the pool has {host.title}",
                have=found.version.text,
                need=f"a wheel for JetPack {release.jetpack}",
                source=release.source,
                candidates=partial(_propose_wheels, context, host, found.name, fitting),
            )


def _report_wheel(context: RuleContext, host: JetsonHost, name: str, found: Sbsa) -> Problem:
    version = context.stack.versions[name]
    release = host.releases[-1]
    fitting = host.table.wheels_of(name, release.l4t, host.device_name)
    indexes = " or ".join(dict.fromkeys(one.index for one in fitting))
    message = (
        f"the wheel of {name} {version} is built for Arm servers (SBSA), and {host.title} has the "
        f"CUDA build of Jetson: {found.text}"
    )
    return Problem(
        "fail",
        name,
        message,
        have=version.text,
        need=f"a wheel of {indexes}" if indexes else "a wheel that was built for Jetson",
        source=found.source,
        candidates=lambda: _propose_wheels(context, host, name, fitting),
    )


def _propose_wheels(
    context: RuleContext, host: JetsonHost, name: str, fitting: tuple[Wheels, ...]
) -> Iterator[Candidate]:
    """Yield the wheels of the indexes for this release, then releases that run SBSA builds."""
    for wheels in fitting:
        for text in wheels.versions:
            labelled = f"{text}+{wheels.label}" if wheels.label else text
            change: dict[str, object] = {
                name: labelled,
                "arch": [f"sm_{major}{minor}" for major, minor in wheels.code],
            }
            if "cuda" in context.stack.components and host.cuda:
                change["cuda"] = parse_version("cuda", format_parts(host.cuda)).text
            yield Candidate(change, f"use {name} {text} of {wheels.index}")
    yield from _propose_releases(context, host, (13, 0))
