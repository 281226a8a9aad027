"""Check that the wheels that were measured have what the projects' build scripts say of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from compatgate.catalog.references import Check, Context, Problem
from compatgate.core.facts.records import Record
from compatgate.core.package_wheels import UNLABELLED, covers_release, find_stated_wheels
from compatgate.core.packages import GpuPackage, Platform
from compatgate.core.versions import parse_version


def statements_measured(context: Context) -> Iterator[Problem]:
    """Compare the code of each measured wheel with that of the statement about it."""
    for name in sorted(context.facts.recorded):
        said = context.facts.statements(name)
        if not any(one.wheels for one in said):
            continue
        for record in context.facts.records(name):
            version = parse_version(name, record.version)
            about = [
                one
                for one in said
                if one.source.confidence != "derived" and covers_release(one, version)
            ]
            for platform in _platforms_of(record):
                labels = [version.local or UNLABELLED, *_labels_of_ptx(record)]
                found = (find_stated_wheels(about, label, platform) for label in labels)
                wheels = next(filter(None, found), None)
                package = GpuPackage(name, version, platform, record)
                measured = {code.name for code in package.carried}
                stated = {code.name for code in wheels.code} if wheels else measured
                if measured and measured != stated:
                    what = f"measured {_list(measured - stated)}, stated {_list(stated - measured)}"
                    yield Problem("statements-measured", f"{name} {record.wheel}", what)


def _platforms_of(record: Record) -> Iterator[Platform]:
    os = "windows" if "-win" in record.wheel else "linux"
    cpu = "aarch64" if re.search(r"aarch64|arm64", record.wheel) else "x86_64"
    tag = re.search(r"-cp(\d)(\d+)-", record.wheel)
    python = (
        parse_version("python", f"{tag[1]}.{tag[2]}")
        if tag and "abi3" not in record.wheel
        else None
    )
    yield Platform(os, cpu, python)


def _labels_of_ptx(record: Record) -> Iterator[str]:
    """Yield the label that the index's wheel would have by the toolkit that made its PTX."""
    if "+" not in record.version:
        for toolkit in {one.ptx_cuda for one in record.libraries if one.ptx_cuda}:
            yield f"cu{toolkit.replace('.', '')}"


def _list(codes: set[str]) -> str:
    return "+".join(sorted(codes)) or "nothing more"


CHECKS: tuple[Check, ...] = (statements_measured,)
