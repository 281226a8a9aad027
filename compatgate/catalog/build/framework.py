"""Decode the table of a framework, ``frameworks/NAME.yaml``, and the known issues.

The format is the same for every project. Pins are written as in package metadata.
"""

from __future__ import annotations

import re
from typing import Any

from packaging.requirements import Requirement

from compatgate.catalog.build.decode import Decoder, Shape
from compatgate.catalog.build.values import Record, inherit_source, record_source
from compatgate.core.constraints import parse_constraint
from compatgate.core.facts.frameworks import (
    Build,
    Containers,
    Framework,
    KnownIssue,
    KnownIssues,
    Pin,
    Release,
)
from compatgate.core.facts.nvidia import Source
from compatgate.core.versions import parse_version
from compatgate.errors import BadInput

TABLES: dict[str, type] = {
    "framework": Framework,
    "known_issues": KnownIssues,
    "ngc_containers": Containers,
}
_SYSTEMS = ("linux", "windows")
_FLOOR = re.compile(r">=\s*([\d.]+)")
_MAJOR = re.compile(r"\d+\.\*")


def _framework(document: Record) -> Record:
    name, shared = document["component"], document.get("shared_requirements")
    rows = [{**_settle_python(row), "component": name} for row in document["releases"]]
    return {
        "name": name,
        "releases": [_share_requirements(row, shared) for row in rows] if shared else rows,
        "complete": document.get("complete_builds"),
        "refuses_newer_gpus": _stated_source(document.get("refuses_newer_gpus", {})),
        "unlisted_patches": _stated_source(document.get("unlisted_patches", {})),
        "candidates": [t for one in document.get("candidates", ()) for t in one["versions"]],
        "new_abi": document.get("cxx11_abi", {}).get("new"),
    }


_ASKS_PYTHON = re.compile(r"\s*python_version\s*[<>=!]+\s*[\"'][\d.]+[\"']\s*")


def _settle_python(release: Record) -> Record:
    """Drop the markers of requirements that hold for every Python that the release has wheels for.

    A stack that states no Python has one of them.
    """
    python = release.get("python") or {}
    pythons = {*(python.get("wheels") or ()), *(python.get("wheels_aarch64") or ())}

    def settle(text: str) -> str:
        asked, _, marker = text.partition(";")
        if not pythons or not _ASKS_PYTHON.fullmatch(marker):
            return text
        known = Requirement(text).marker
        holds = known and all(known.evaluate({"python_version": p.rstrip("t")}) for p in pythons)
        return asked.strip() if holds else text

    builds = [
        {
            **build,
            "requirements": [
                {**group, "packages": [settle(text) for text in group["packages"]]}
                for group in build["requirements"]
            ],
        }
        if build.get("requirements")
        else build
        for build in release["builds"]
    ]
    return {**release, "builds": builds}


def _share_requirements(release: Record, shared: Record) -> Record:
    """Give all builds for Linux x86_64 some requirements of one of them."""
    texts = [
        _limit_to_x86_64(text)
        for build in release["builds"]
        for group in _core_requirements(build)
        for text in group["packages"]
        if Requirement(text).name in shared["packages"]
    ]
    if not texts:
        return release
    group = {**shared, "packages": texts}
    builds = [
        build if _core_requirements(build) else {**build, "requirements": [group]}
        for build in release["builds"]
    ]
    return {**release, "builds": builds}


def _limit_to_x86_64(text: str) -> str:
    """Return a requirement that holds on x86_64 alone; on Arm, builds of a release differ."""
    asked, _, marker = (part.strip() for part in text.partition(";"))
    own = 'platform_machine == "x86_64"'
    return f"{asked}; ({marker}) and {own}" if marker else f"{asked}; {own}"


def _core_requirements(build: Record) -> list[Record]:
    """Return the requirements that always apply; extras are the installer's choice."""
    return [group for group in build.get("requirements", ()) if "extra" not in group]


def _release(row: Record) -> Record:
    python, groups = row.get("python") or {}, row.get("requirements", ())
    least = row.get("minimum_capability")
    builds = (
        {**build, "minimum_capability": build.get("minimum_capability") or least}
        for build in row["builds"]
    )
    return {
        "builds": [inherit_source(build, row) for build in builds],
        "python": python.get("wheels"),
        "python_aarch64": python.get("wheels_aarch64"),
        "python_range": (python.get("min"), python.get("max")),
        "python_source": _part_source(python, row) if python else None,
        "pins": _pins(row),
        "conda": [
            inherit_source({**build, "accepts": f"{build['cuda']}.*"}, row)
            for build in row.get("conda", ())
        ],
        **_requirements(groups, row),
    }


def _build(row: Record) -> Record:
    code, least = row.get("code") or {}, row.get("minimum_capability") or {}
    driver = row.get("driver") or {}
    accepts = row["accepts"]
    major = re.search(r"\d+", accepts)
    if not major:
        raise BadInput("names no CUDA major", field="accepts", value=accepts, hint="like 12.4.*")
    return {
        "cuda_major": int(major[0]),
        "sass": code.get("sass"),
        "ptx": code.get("ptx"),
        "specific": code.get("specific"),
        "ptx_cuda": code.get("ptx_cuda"),
        "minimum_capability": least.get("value"),
        "pins": _pins(row),
        "driver": {system: driver[system] for system in _SYSTEMS if system in driver},
        "toolkit_driver": "own_toolkit" in driver,
        "arch_source": _stated_source(code) or _stated_source(least),
        "aarch64_source": _stated_source(row.get("code_aarch64") or {}),
        "windows_source": _stated_source(row.get("code_windows") or {}),
        **_requirements(_core_requirements(row), row),
    }


def _requirements(groups: Any, whole: Record) -> Record:
    return {
        "requires": [text for group in groups for text in group["packages"]],
        "requires_source": _part_source(groups[0], whole) if groups else None,
    }


def _part_source(part: Record, whole: Record) -> Source:
    return record_source(inherit_source(part, whole))


def _stated_source(record: Record) -> Source | None:
    return record_source(record) if record.get("source") else None


def _pins(row: Record) -> dict[str, Pin]:
    stated = row.get("pins") or {}
    return {name: read_pins(name, pin, _part_source(pin, row)) for name, pin in stated.items()}


def read_pins(component: str, pin: Record, source: Source) -> Pin:
    """Read a pin; the form of its ``spec`` says how strict it is.

    ``==9.1.0.70``: made and tested with this version. ``9.*``: any release of the major.
    ``>=9.8,<10``: a range. A pin may be ``optional``: the build works without the component.
    """
    spec, optional = str(pin["spec"]).replace(" ", ""), bool(pin.get("optional"))
    if spec.startswith("=="):
        floor = parse_version(component, spec.removeprefix("=="))
        return Pin(component, spec, floor, True, 3, True, source, optional)
    if _MAJOR.fullmatch(spec):
        return Pin(component, spec, None, False, 1, True, source, optional)
    if optional:  # the versions that a project names as tested: no bound that could fail
        return Pin(component, spec, None, False, 2, False, source, optional)
    return _pin_range(component, spec, source)


def _pin_range(component: str, spec: str, source: Source) -> Pin:
    """Return the pin of a range; only the stated parts of its floor count."""
    found = _FLOOR.search(spec)
    floor = parse_version(component, found[1]) if found else None
    clauses = ",".join(sorted(spec.split(","), reverse=True))
    places = min(len(floor.parts), 3) if floor else 3
    return Pin(component, clauses, floor, False, places, True, source)


def _containers(document: Record) -> Record:
    """Add the images of Triton with vLLM: a month's images share their CUDA."""
    with_vllm = [{**row, "product": "tritonserver"} for row in document.get("triton_vllm", ())]
    return {"containers": [*document["containers"], *with_vllm]}


def _known_issue(row: Record) -> Record:
    """Parse the constraints once, so that malformed ones fail at build time."""
    for name, text in row["components"].items():
        try:
            parse_constraint(name, text)
        except BadInput as error:
            raise error.at("components") from None
    return {}


DECODER = Decoder(
    {
        Framework: Shape(make=_framework, order={"releases": "version"}),
        Release: Shape(make=_release),
        Build: Shape(
            {"aarch64": "code_aarch64", "windows": "code_windows", "plugins": "packages"}, _build
        ),
        Containers: Shape(make=_containers),
        KnownIssue: Shape(make=_known_issue),
    }
)
