"""Build the table of a framework from ``frameworks/NAME.yaml``, and known issues.

The format is the same for every project. Pins are written as in package metadata.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec.structs import replace
from packaging.requirements import Requirement

from compatgate.catalog.build.values import (
    Record,
    drivers,
    fill,
    gpu_code,
    pair,
    pairs,
    record_source,
    sort_releases,
    version,
)
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts.frameworks import (
    Build,
    Framework,
    KnownIssue,
    KnownIssues,
    NewAbi,
    Pin,
    Release,
)
from compatgate.core.facts.nvidia import Pair, Source
from compatgate.core.gpu_code import Arch, parse_arch
from compatgate.errors import BadInput

_SYSTEMS = ("linux", "windows")


def framework(document: Record) -> Framework:
    """Read every release of a framework, with its builds."""
    name = document["component"]
    shared = document.get("shared_requirements")
    releases = sort_releases(
        _share_requirements(_release(name, record), shared) if shared else _release(name, record)
        for record in document["releases"]
    )
    return Framework(
        name,
        releases,
        os=tuple(document.get("os", _SYSTEMS)),
        cpu_only_os=tuple(document.get("cpu_only_os", ())),
        loads_cuda=document.get("loads_cuda", False),
        new_abi=tuple(
            NewAbi(one["versions"], pairs(one.get("cuda", ())))
            for one in document.get("cxx11_abi", {}).get("new", ())
        ),
    )


def _release(name: str, record: Record) -> Release:
    told = record_source(record)
    python = record.get("python")
    return Release(
        version=version(name, record["version"]),
        builds=tuple(_build(build, record, told) for build in record["builds"]),
        source=told,
        python=tuple((python or {}).get("wheels", ())),
        python_aarch64=tuple((python or {}).get("wheels_aarch64", ())),
        python_range=_python_range(python or {}),
        python_source=_part_source(python, told) if python else None,
        cpu_only=tuple(record.get("cpu_only", ())),
        pins=_pins(record, told),
        note=record.get("note") or "",
        os=tuple(record.get("os", ())),
        requires=tuple(t for group in record.get("requirements", ()) for t in group["packages"]),
        requires_source=next(
            (_part_source(group, told) for group in record.get("requirements", ())), None
        ),
        conda=tuple(_channel_build(build, told) for build in record.get("conda", ())),
    )


def _share_requirements(release: Release, shared: Record) -> Release:
    """Return a release whose builds for Linux x86_64 all have some requirements of one of them."""
    told, names = record_source(shared), tuple(shared["packages"])
    texts = tuple(
        _limit_to_x86_64(text)
        for build in release.builds
        for text in build.requires
        if Requirement(text).name in names
    )
    builds = (
        build if build.requires else replace(build, requires=texts, requires_source=told)
        for build in release.builds
    )
    return replace(release, builds=tuple(builds)) if texts else release


def _limit_to_x86_64(text: str) -> str:
    """Return a requirement that holds on x86_64 alone; on Arm, builds of a release differ."""
    asked, _, marker = (part.strip() for part in text.partition(";"))
    own = 'platform_machine == "x86_64"'
    return f"{asked}; ({marker}) and {own}" if marker else f"{asked}; {own}"


def _python_range(python: Record) -> tuple[str | None, str | None]:
    """Return the lowest and highest Python, for releases without a list of wheels."""
    return (python.get("min"), python.get("max"))


def _build(build: Record, release: Record, above: Source) -> Build:
    told = _part_source(build, above)
    code = build.get("code")
    minimum = build.get("minimum_capability") or release.get("minimum_capability")
    return Build(
        cuda=_pair(build.get("cuda")),
        cuda_major=_major(build["accepts"]),
        accepts=build["accepts"],
        source=told,
        label=build.get("label"),
        default=build.get("default", False),
        listed=build.get("listed", True),
        sass=pairs(code["sass"]) if code else None,
        ptx=pairs(code["ptx"]) if code else None,
        specific=_specific_archs(code),
        aarch64=gpu_code(build["code_aarch64"]) if build.get("code_aarch64") else None,
        windows=gpu_code(build["code_windows"]) if build.get("code_windows") else None,
        ptx_cuda=_pair((code or {}).get("ptx_cuda")),
        minimum_capability=_pair((minimum or {}).get("value")),
        pins=_pins(build, told),
        driver=drivers(**_drivers_per_system(build.get("driver"))),
        compiles=build.get("compiles", False),
        toolkit_driver="own_toolkit" in build.get("driver", {}),
        plugins=tuple(build.get("packages") or ()),
        requires=tuple(text for group in _core_requirements(build) for text in group["packages"]),
        requires_source=next(
            (_part_source(group, told) for group in _core_requirements(build)), None
        ),
        arch_source=_stated_source(code) or _stated_source(minimum),
        note=build.get("note") or "",
    )


def _channel_build(build: Record, above: Source) -> Build:
    """Read a build from a conda channel; its recipe states only CUDA and GPU code."""
    accepts = f"{build['cuda']}.*"
    return replace(_build({**build, "accepts": accepts}, {}, above), channel=build["channel"])


def _core_requirements(build: Record) -> list[Record]:
    """Return the requirements that always apply; extras are the installer's choice."""
    return [group for group in build.get("requirements", ()) if "extra" not in group]


def _part_source(record: Record, above: Source) -> Source:
    """Return the source of a part, or that of the record that contains it."""
    return _stated_source(record) or above


def _stated_source(record: Record | None) -> Source | None:
    return record_source(record) if record and record.get("source") else None


def _pair(text: str | None) -> Pair | None:
    return pair(text) if text else None


def _major(accepts: str) -> int:
    """Return the CUDA major that a build is for: the first number of what it accepts."""
    found = re.search(r"\d+", accepts)
    if not found:
        raise ValueError(f"{accepts!r} names no CUDA major")
    return int(found[0])


def _specific_archs(code: Record | None) -> tuple[Arch, ...]:
    named = (code or {}).get("specific", ())
    return tuple(arch for text in named for arch in parse_arch(text))


def _drivers_per_system(driver: Record | None) -> Mapping[str, str]:
    return {name: text for name, text in (driver or {}).items() if name in _SYSTEMS}


def _pins(record: Record, above: Source) -> dict[str, Pin]:
    stated = record.get("pins") or {}
    return {name: read_pins(name, pin, _part_source(pin, above)) for name, pin in stated.items()}


_FLOOR = re.compile(r">=\s*([\d.]+)")
_MAJOR = re.compile(r"\d+\.\*")


def read_pins(component: str, pin: Record, source: Source) -> Pin:
    """Read a pin; the form of its ``spec`` says how strict it is.

    ``==9.1.0.70``: made and tested with this version. ``9.*``: any release of the major.
    ``>=9.8,<10``: a range. A pin may be ``optional``: the build works without the component.
    """
    spec, optional = str(pin["spec"]).replace(" ", ""), bool(pin.get("optional"))
    if spec.startswith("=="):
        floor = version(component, spec.removeprefix("=="))
        return Pin(component, spec, floor, True, 3, True, source, optional)
    if _MAJOR.fullmatch(spec):
        return Pin(component, spec, None, False, 1, True, source, optional)
    if optional:  # the versions that a project names as tested: no bound that could fail
        return Pin(component, spec, None, False, 2, False, source, optional)
    return _pin_range(component, spec, source)


def _pin_range(component: str, spec: str, source: Source) -> Pin:
    """Return the pin of a range; only the stated parts of its floor count."""
    found = _FLOOR.search(spec)
    floor = version(component, found[1]) if found else None
    clauses = ",".join(sorted(spec.split(","), reverse=True))
    places = min(len(floor.parts), 3) if floor else 3
    return Pin(component, clauses, floor, False, places, True, source)


def known_issues(document: Record) -> KnownIssues:
    """Read combinations that break although every published rule holds."""
    return KnownIssues(tuple(_issue(record) for record in document["issues"]))


def _issue(record: Record) -> KnownIssue:
    return fill(
        KnownIssue,
        record,
        components=_components(record),
        capabilities=pairs(record.get("capabilities")),
        fixes=tuple({str(k): str(v) for k, v in fix.items()} for fix in record.get("fixes") or ()),
    )


def _components(record: Record) -> dict[str, str]:
    """Return the constraints, parsed once here so that malformed ones fail at build time."""
    found = {str(name): str(text) for name, text in record["components"].items()}
    for name, text in found.items():
        try:
            parse_constraint(name, text)
        except BadInput as error:
            raise error.at(f"issues[id={record['id']}].components") from error
    return found
