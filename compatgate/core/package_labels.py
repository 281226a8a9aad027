"""Wheels whose version names a CUDA (``0.25.0+cu128``): projects have them on indexes of their own.

Where no such wheel was measured, two things speak for it. The package index's wheel of the release
is the same build where the torch that it pins is for that CUDA there. Else the project's build
script says which GPU code its wheels have, and the index's wheel what all of the release share.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import structs

from compatgate.core.arch import Arch
from compatgate.core.facts import Facts
from compatgate.core.facts.records import Library, Record, Statement
from compatgate.core.target import Cpu, Os
from compatgate.core.versions import Version, parse_version, show

_RUNTIME = re.compile(r"libcudart\.so\.\d+(?:\.\d+)*")


def is_build_of_index(record: Record, version: Version, facts: Facts, os: Os, cpu: Cpu) -> bool:
    """Tell whether the package index's wheel of a release is the build that a label names.

    It is where the wheel pins one torch, and the index's wheel of that torch is for this CUDA on
    this platform.

    Args:
        record: of the index's wheel for the platform.
        version: with the label.
        facts: with the releases of torch.
        os: of the pool.
        cpu: of the pool.
    """
    from compatgate.core.frameworks import default_build, find_release

    table, pinned = facts.framework("torch"), _pinned_torch(record)
    release = find_release(table, parse_version("torch", pinned)) if table and pinned else None
    if table is None or release is None:
        return False
    if cpu in release.cpu_only or (os == "windows" and os in table.cpu_only_os):
        return False
    build = default_build(release)
    return build is not None and build.cuda == version.cuda


def _pinned_torch(record: Record) -> str | None:
    """Return the torch that a wheel's metadata pins."""
    from packaging.requirements import Requirement

    for text in record.requires:
        if text.startswith("torch") and "extra" not in text:
            asked = Requirement(text)
            clauses = list(asked.specifier)
            if asked.name == "torch" and len(clauses) == 1 and clauses[0].operator == "==":
                return clauses[0].version
    return None


def scripted_record(
    records: Sequence[Record],
    statements: Sequence[Statement],
    version: Version,
    os: Os,
    cpu: Cpu,
) -> Record | None:
    """Return what a labelled wheel carries by its project's build script; None where none says it.

    The code is that of the script. What it requires, the torch that it is for and what it asks of
    torch are those of another wheel of the release, without which nothing is taken to be known. The
    record has no file name and no digest: nobody read this wheel.

    Args:
        records: of the package.
        statements: about this release.
        version: with the label.
        os: of the pool; only Linux is spoken of.
        cpu: of the pool.
    """
    code = next(
        (
            wheels.code
            for one in statements
            if one.source.confidence != "derived"
            for wheels in one.wheels
            if version.local in wheels.labels and wheels.cpu in (None, cpu)
        ),
        (),
    )
    of_release = [one for one in records if one.version == version.public and one.built_for_torch]
    if not code or not of_release or os == "windows":
        return None
    like = max(of_release, key=lambda one: sum(map(_is_own, one.libraries)))
    library = Library(
        path="",
        needs=_needs(like, version),
        sass={one.name: 1 for one in code if one.kind == "sass"},
        ptx={one.name: 1 for one in code if one.kind == "ptx"},
        units=1,
        ptx_cuda=_made_by(code, version),
        torch=next((one.torch for one in like.libraries if one.torch), None),
    )
    return structs.replace(
        like,
        version=version.text,
        wheel="",
        sha256=None,
        libraries=(library,),
        alternatives=(),
        kernel_sources=0,
        unread=(),
        source="",
    )


def _is_own(library: Library) -> bool:
    """Tell whether a library has code for GPUs and asks something of torch."""
    return library.carries_code and any("torch" in name for name in library.needs)


def _needs(like: Record, version: Version) -> tuple[str, ...]:
    """Return the CUDA runtime of the label, where wheels of the release are linked against one."""
    linked = any(_RUNTIME.fullmatch(name) for one in like.libraries for name in one.needs)
    return (f"libcudart.so.{version.cuda[0]}",) if linked and version.cuda else ()


def _made_by(code: Sequence[Arch], version: Version) -> str | None:
    """Return the toolkit that makes the PTX: the label's."""
    has_ptx = any(one.kind == "ptx" for one in code)
    return show(version.cuda) if has_ptx and version.cuda else None
