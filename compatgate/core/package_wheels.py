"""Choose the wheel that a package is assumed to be: by digest, file name, version, or label.

Labels, links and statements say whose GPUs and which torch a build is for. Projects have wheels
whose version names a CUDA (``0.25.0+cu128``) on indexes of their own. Where no wheel with that
label was measured, two sources replace it. The package index's wheel of the release is the same
build if the torch that it pins is for that CUDA. Otherwise the project's build script says which
GPU code its wheels have, and the index's wheel gives what all wheels of the release share.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import structs

from compatgate.core.facts import Facts
from compatgate.core.facts.frameworks import Framework
from compatgate.core.facts.nvidia import Pair
from compatgate.core.facts.records import Library, ProjectWheels, Record, Statement, TorchAbi
from compatgate.core.package_requirements import Platform
from compatgate.core.request import Cpu, Os
from compatgate.core.stack_facts import default_build, find_release
from compatgate.core.stack_values import Wheel
from compatgate.core.versions import Version, cuda_of_label, format_parts, parse_version

_ROCM_LIBRARY = re.compile(
    r"lib(?:amdhip64|hip[a-z]+|hsa-runtime64|MIOpen|migraphx|rocblas|rccl)\b"
    r"|(?i:(?:lib)?(?:amdhip64|hip[a-z]+|miopen|rocblas)(?:_\d+)?\.dll)"
)
_CUDA_LIBRARY = re.compile(
    r"lib(?:cuda|cudart|cublas|cudnn|nvinfer|nvrtc)\."
    r"|(?i:nvcuda\.dll|(?:cudart64|cublas64|cudnn64|nvinfer|nvrtc64)_\w+\.dll)"
)
_CUDA_RUNTIME = re.compile(r"libcudart\.so\.(\d+)(?:\.\d+)*|(?i:cudart64_(\d+)\.dll)")


def gpus_of_record(record: Record | None) -> str:
    """Return ``AMD`` where a wheel links against AMD's libraries alone, else empty text."""
    libraries = record.libraries if record else ()
    if any(library.carries_code for library in libraries):
        return ""
    named = [name for library in libraries for name in (*library.needs, *library.opens)]
    needed = [name for library in libraries for name in library.needs]
    if any(map(_CUDA_LIBRARY.match, named)) or not any(map(_ROCM_LIBRARY.match, needed)):
        return ""
    return "AMD"


_CUBLAS = re.compile(r"libcublas(?:Lt)?\.so\.(\d+)|(?i:cublas(?:lt)?64_(\d+)\.dll)")


def cublas_major(name: str) -> int | None:
    """Return the CUDA major of a cuBLAS: 12 for ``libcublas.so.12`` and ``cublas64_12.dll``."""
    match = _CUBLAS.fullmatch(name)
    return int(match[1] or match[2]) if match else None


def runtime_major(name: str) -> int | None:
    """Return the major of a CUDA runtime: 12 for ``libcudart.so.12`` and ``cudart64_12.dll``.

    Until CUDA 11 the name of the DLL has the minor, too: ``cudart64_110.dll`` of all of CUDA 11,
    ``cudart64_101.dll`` of 10.1, ``cudart64_80.dll`` of 8.0.
    """
    match = _CUDA_RUNTIME.fullmatch(name)
    if match is None:
        return None
    digits = match[1] or match[2]
    with_minor = match[2] is not None and (len(digits) > 2 or digits >= "50")
    return int(digits[:-1] if with_minor else digits)


def covers_release(statement: Statement, version: Version) -> bool:
    """Tell whether a statement is about a release."""
    return _is_within(statement.versions, version)


def _is_within(spec: str, version: Version) -> bool:
    # Imported here: only packages that have statements need it, and the import is slow.
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion
    from packaging.version import Version as Pep440

    try:
        plain = version.public.lstrip("bR")  # b9060 of llama.cpp, R2024a of MATLAB
        return SpecifierSet(spec).contains(Pep440(plain), prereleases=True)
    except InvalidVersion:
        return False


_TORCH_OF_LABEL = re.compile(
    r"(?:torch|pt|th)(?P<major>\d)(?:\.(?P<minor>\d{1,2})|(?P<plain>\d{1,2}))"
)


def torch_of_label(label: str) -> str | None:
    """Return the torch release that a local label names, as ``2.8``; None where it names none.

    Labels are ``2.8.3+cu12torch2.8cxx11abiTRUE`` or ``0.7.3+pt28cu128``.
    """
    match = _TORCH_OF_LABEL.search(label)
    return f"{match['major']}.{match['minor'] or match['plain']}" if match else None


_CUDA_LABEL = re.compile(r"cu\d{2,}")


def names_cuda(version: Version) -> bool:
    """Tell whether a version's label names a project's build for one CUDA, ``cu128``."""
    return _CUDA_LABEL.fullmatch(version.local or "") is not None


def find_record(
    records: Iterable[Record], version: Version, wheel: Wheel | None, platform: Platform
) -> tuple[Record, str] | None:
    """Find the record of the wheel that a package is installed from.

    The digest decides, then the file's name; without them it is the wheel of this version and build
    for the platform, measured for this Python or another, which the answer states as an assumption.
    A file with a record's name and another digest is a private build: no record fits. Without a
    label the index's own wheel is assumed, and the text says so; WSL uses wheels for Linux. None
    where no record fits.
    """
    known = [record for record in records if record.version.partition("+")[0] == version.public]
    if wheel:
        for record in known:
            if record.sha256 and record.sha256 == wheel.sha256:
                return record, ""
        for record in known:
            if record.wheel == wheel.file:
                rebuilt = record.sha256 and wheel.sha256 and record.sha256 != wheel.sha256
                return None if rebuilt else (record, "")
    fitting = [
        record
        for record in known
        if record.version.partition("+")[2] == version.local
        and is_for_platform(record.wheel, platform)
    ]
    if not fitting:
        return None
    python = platform.python
    tag = f"cp{python.parts[0]}{python.minor}" if python else ""
    best = next((record for record in fitting if tag and f"-{tag}-" in record.wheel), fitting[-1])
    return best, f"the wheel is assumed to be like {best.wheel}"


def find_labelled_record(
    facts: Facts, name: str, version: Version, said: tuple[Statement, ...], platform: Platform
) -> tuple[Record, str] | None:
    """Return a record, and its basis, for a wheel with a CUDA label that was not measured."""
    records, os, cpu = facts.records(name), platform.os, platform.cpu
    found = find_record(records, parse_version(name, version.public), None, platform)
    if found and is_build_of_index(found[0], version, facts, os, cpu):
        return found
    record = scripted_record(records, said, version, os, cpu)
    if record is None:
        return None
    made = _with_abi_of_torch(record, version, facts, platform)
    return made, "as its project's build script makes it"


def _with_abi_of_torch(
    record: Record, version: Version, facts: Facts, platform: Platform
) -> Record:
    """Return the record of a labelled wheel with the C++ ABI of torch's wheel of that label.

    The builds of one torch may differ in it: those of 2.6 for CUDA 12.6 alone have the new one.
    """
    table, torch = facts.framework("torch"), record.built_for_torch
    if table is None or torch is None or version.cuda is None or len(version.cuda) < 2:
        return record
    cuda = (version.cuda[0], version.cuda[1])
    new_abi = has_new_abi(table, parse_version("torch", torch), cuda, platform)
    if new_abi is None:
        return record
    libraries = tuple(
        structs.replace(one, torch=structs.replace(one.torch, cxx11=new_abi)) if one.torch else one
        for one in record.libraries
    )
    return structs.replace(record, libraries=libraries)


_PLATFORM_SUFFIXES = {
    ("linux", "x86_64"): ("_x86_64", "-any"),
    ("linux", "aarch64"): ("_aarch64", "-any"),
    ("windows", "x86_64"): ("-win_amd64", "-any"),
    ("windows", "aarch64"): ("-win_arm64", "-any"),
}


def is_for_platform(wheel: str, platform: Platform) -> bool:
    """Tell whether a wheel's platform tag fits a pool (PEP 425)."""
    system = "windows" if platform.os == "windows" else "linux"
    name = wheel.removesuffix(".whl")
    return name.endswith(_PLATFORM_SUFFIXES[system, platform.cpu]) and "macosx" not in name


_LINUX_CUDA_RUNTIME = re.compile(r"libcudart\.so\.\d+(?:\.\d+)*")


def is_build_of_index(record: Record, version: Version, facts: Facts, os: Os, cpu: Cpu) -> bool:
    """Tell whether the package index's wheel of a release is the build that a label names.

    This holds where the wheel pins one torch, and the index's wheel of that torch is for this CUDA
    on this platform.
    """
    table, pinned = facts.framework("torch"), _pinned_torch(record)
    release = find_release(table, parse_version("torch", pinned)) if table and pinned else None
    if table is None or release is None:
        return False
    if cpu in release.cpu_only or table.has_cpu_wheel(release.version, os):
        return False
    build = default_build(release)
    return build is not None and build.cuda == version.cuda


def _pinned_torch(record: Record) -> str | None:
    from packaging.requirements import Requirement

    for text in record.requires:
        if text.startswith("torch") and "extra" not in text:
            asked = Requirement(text)
            clauses = list(asked.specifier)
            if asked.name == "torch" and len(clauses) == 1 and clauses[0].operator == "==":
                return clauses[0].version
    return None


def scripted_record(
    records: Sequence[Record], statements: Sequence[Statement], version: Version, os: Os, cpu: Cpu
) -> Record | None:
    """Make the record of a labelled wheel from its project's build script; None if none says it.

    The code comes from the script. Requirements, torch release and torch symbols come from another
    wheel of the release; without that wheel the result is None. The record has no file name and no
    digest: nobody read this wheel.
    """
    system = "windows" if os == "windows" else "linux"
    code = next(
        (
            wheels.code
            for one in statements
            if one.source.confidence != "derived"
            for wheels in one.wheels
            if version.local in wheels.labels and wheels.cpu in (None, cpu) and system in wheels.os
        ),
        (),
    )
    of_release = [one for one in records if one.version == version.public and one.built_for_torch]
    if not code or not of_release:
        return None
    like = max(  # the one with the most libraries that have code for GPUs and link against torch
        of_release,
        key=lambda one: sum(
            library.carries_code and any("torch" in name for name in library.needs)
            for library in one.libraries
        ),
    )
    has_ptx = any(one.kind == "ptx" for one in code)
    linked = (name for one in like.libraries for name in one.needs)
    runtime = system == "linux" and any(map(_LINUX_CUDA_RUNTIME.fullmatch, linked))
    library = Library(
        path="",
        needs=(f"libcudart.so.{version.cuda[0]}",) if runtime and version.cuda else (),
        sass={one.name: 1 for one in code if one.kind == "sass"},
        ptx={one.name: 1 for one in code if one.kind == "ptx"},
        units=1,
        ptx_cuda=format_parts(version.cuda) if has_ptx and version.cuda else None,
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


_RELEASE_LABEL = re.compile(
    r"cu(?P<cuda>\d{2,3})torch(?P<torch>\d+\.\d+)cxx11abi(?P<abi>true|false)", re.IGNORECASE
)


UNLABELLED = "none"  # stands for the wheel without a label in statements


_POST_LABEL = re.compile(r"\.(post\d{2,3})$")


def label_of(version: Version, statements: Sequence[Statement]) -> str:
    """Return the label that a version names, as its local part or as a post-release.

    PaddlePaddle writes the CUDA of a wheel as a post-release: ``2.4.2.post112`` is for CUDA 11.2.
    """
    post = _POST_LABEL.search(version.public)
    labels = [label for one in statements for wheels in one.wheels for label in wheels.labels]
    if post and any(label.startswith("post") for label in labels):
        return post[1]
    return version.local or UNLABELLED


def released_record(
    name: str, version: Version, label: str, statements: Sequence[Statement], platform: Platform
) -> Record | None:
    """Make the record of a wheel from its project's build script or workflow.

    The label (``cu12torch2.8cxx11abiTRUE``) or the statement says CUDA and torch, the script the
    GPU code. Nobody read this wheel: the record has no file name and no digest. None where the
    project has no wheel for the platform.
    """
    wheels = find_stated_wheels(statements, label, platform)
    match = _RELEASE_LABEL.fullmatch(label)
    if wheels is None or not (match or wheels.cuda):
        return None
    cuda = wheels.cuda or cuda_of_label(label)
    new_abi = wheels.new_abi
    if match and new_abi is None:
        new_abi = match["abi"].lower() == "true"
    torch = match["torch"] if match else wheels.torch
    linked = cuda and platform.os != "windows" and not wheels.own_cuda
    library = Library(
        path="",
        needs=(f"libcudart.so.{cuda[0]}",) if cuda and linked else (),
        sass={one.name: 1 for one in wheels.code if one.kind == "sass"},
        ptx={one.name: 1 for one in wheels.code if one.kind == "ptx"},
        units=1,
        ptx_cuda=format_parts(cuda) if cuda and len(cuda) > 1 else None,
        torch=TorchAbi(cxx11=new_abi, symbols=1) if torch else None,
    )
    return Record(name, version.text, wheel="", libraries=(library,), built_for_torch=torch)


def release_label(
    statements: Sequence[Statement],
    torch: Version,
    cuda_major: int,
    *,
    new_abi: bool,
    platform: Platform,
) -> str | None:
    """Return the label of the wheel that a package's installer fetches beside a torch."""
    wanted = (str(cuda_major), format_parts(torch.major_minor), str(new_abi).upper())
    return next(
        (
            label
            for one in statements
            for wheels in one.wheels
            for label in wheels.labels
            if (match := _RELEASE_LABEL.fullmatch(label))
            if (match["cuda"][:2], match["torch"], match["abi"]) == wanted
            if _is_wheel_for(wheels, platform)
        ),
        None,
    )


def find_stated_wheels(
    statements: Sequence[Statement], label: str, platform: Platform
) -> ProjectWheels | None:
    """Return the row of a label; labels are equal whatever their case and separators (PEP 440)."""
    wanted = _normalise(label)
    for one in statements:
        for wheels in one.wheels:
            there = any(wanted == _normalise(known) for known in wheels.labels)
            if there and wheels.code and _is_wheel_for(wheels, platform):
                return wheels
    return None


def _normalise(label: str) -> str:
    return re.sub(r"[-_]", ".", label.lower())


def _is_wheel_for(wheels: ProjectWheels, platform: Platform) -> bool:
    """Tell whether wheels of a project are for a platform."""
    python = platform.python
    system = "windows" if platform.os == "windows" else "linux"
    if system not in wheels.os or wheels.cpu not in (None, platform.cpu):
        return False
    return not (python and wheels.pythons) or format_parts(python.major_minor) in wheels.pythons


def has_new_abi(
    table: Framework, version: Version, cuda: Pair | None, platform: Platform
) -> bool | None:
    """Tell whether a framework's wheel has the new C++ ABI of libstdc++; None where not known."""
    if not table.new_abi or cuda is None or platform.os == "windows" or platform.cpu != "x86_64":
        return None
    return any(
        _is_within(one.versions, version) and (not one.cuda or cuda in one.cuda)
        for one in table.new_abi
    )
