"""Inspect a local library, wheel or folder for ``compatgate inspect``.

Wheels are read in place; nothing is unpacked to disk. A folder is site-packages or an
installation prefix, with distributions and shared libraries.

Source: Python packaging user guide, "Binary distribution format" (``*.dist-info/METADATA``).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from contextlib import closing
from zipfile import ZipInfo

from msgspec import Struct

from compatgate.core.facts.nvidia import CudaArch
from compatgate.core.facts.packages import NO_KNOWN_PACKAGES, Packages
from compatgate.core.facts.records import Library
from compatgate.discovery.findings import Findings, Inspection, conclude
from compatgate.discovery.gpucode import GpuCode, read_gpu_code
from compatgate.discovery.gpucode.source import ByteReader
from compatgate.discovery.installed_metadata import (
    FILE_LISTS,
    LARGEST_LIST,
    LARGEST_METADATA_FILE,
    METADATA_FILES,
    METADATA_FOLDERS,
    read_conda_record,
)
from compatgate.discovery.installed_packages import InstalledFile, Inventory
from compatgate.discovery.observations import Observation
from compatgate.discovery.wheels.archive import Archive
from compatgate.discovery.wheels.byte_files import LocalFile
from compatgate.discovery.wheels.measure import list_ptx_toolkits
from compatgate.discovery.wheels.members import describe_code_file, read_open_library
from compatgate.discovery.wheels.names import NO_TORCH_SYMBOLS, is_any_library, is_loaded_kernel
from compatgate.errors import BadInput, CompatgateError, NotFound, quote_error

_RUNTIME = re.compile(
    r"(?P<name>nvidia-cuda-runtime(?:-cu\d\d)?|cuda-toolkit)(?:\[[^]]*\])?\s*\(?==\s*(?P<cuda>\d[\d.]*\d)"
)
MAX_FILES = 1_000_000
MAX_LIBRARIES = 50_000


def inspect_path(
    path: str, facts: CudaArch | None = None, known: Packages = NO_KNOWN_PACKAGES
) -> Inspection:
    """Return the stack in a library, object, fatbinary, cubin, PTX file, wheel or folder."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise NotFound("the file or folder does not exist", field=path) from None
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot be read: {quote_error(error)}", field=path) from None
    if stat.S_ISDIR(mode):
        found = find_in_folder(path, known, facts)
    elif stat.S_ISREG(mode):
        found = find_in_wheel(path) if path.endswith(".whl") else find_in_file(path)
    else:
        raise BadInput("is neither a file nor a folder", field=path)
    return conclude(found, facts)


def find_in_wheel(path: str) -> Findings:
    """Return the name, version, CUDA libraries and GPU code of a wheel.

    Memory is bounded as `read_gpu_code` says, plus the wheel's table of contents.
    """
    found = Findings()
    label = os.path.basename(path)
    with closing(LocalFile(path)) as wheel:
        archive = Archive(wheel, path)
        identity = archive.identity
        libraries = [m for m in archive.members if is_any_library(m.filename)]
        archive.check_sizes(libraries)
        found.add_packages({identity.package: identity.version}, label)
        # The CUDA runtime that a wheel pins runs the code of several toolkits: PyTorch 2.15 for
        # CUDA 13.2 carries kernels that CUDA 13.4 compiled.
        always = (one for one in identity.requires if "extra" not in one.partition(";")[2])
        if match := next(filter(None, map(_RUNTIME.match, always)), None):
            origin = f"{label}: requires {match['name']} {match['cuda']}"
            found.observations.append(Observation("cuda", match["cuda"], origin, "metadata"))
        for member in libraries:
            origin = f"{label}: {member.filename}"
            found.add_library(origin)
            for code in _read_code(archive, member, origin):
                found.add_code(origin, code, identity.package)
    return found


def _read_code(archive: Archive, member: ZipInfo, origin: str) -> list[GpuCode]:
    starts: list[bytes] = []
    codes: list[GpuCode] = []

    def read(file: ByteReader) -> None:
        size = member.file_size
        codes.append(read_gpu_code(file, size=size, name=origin, stream=True))

    archive.read_member(member, lambda file: starts.append(file.read(4)), whole=False)
    if starts[0].startswith((b"\x7fELF", b"MZ")):
        archive.read_member(member, read)
    return codes


def find_in_folder(path: str, known: Packages, facts: CudaArch | None) -> Findings:
    """Return distributions, CUDA libraries and GPU code below a folder.

    Symbolic links to folders are not followed, those to files only within the folder. A library
    that cannot be read leaves its package open, or becomes a conflict where it belongs to none, and
    the others are still read.
    """
    found = Findings()
    root = os.path.realpath(path)
    there = _walk(root)
    inventory = Inventory()
    for folder in there.metadata:
        _add_metadata(inventory, root, folder, path)
    for file in there.conda:
        below = os.path.relpath(file, root)
        if record := read_conda_record(below, _read_bytes(file, LARGEST_LIST), path):
            inventory.distributions[below] = record
    listed = {file for one in inventory.distributions.values() for file in one.files or ()}
    kernels = [file for file in there.kernels if os.path.relpath(file, root) in listed]
    owner = inventory.owner_names()
    unread: list[tuple[str, str]] = []
    for file in (*there.libraries, *kernels):
        _read_file(file, os.path.relpath(file, root), path, inventory, found, unread, owner)
    installed = inventory.installed(known, list_ptx_toolkits(facts) if facts else {})
    found.measured, found.owned = installed.measured, installed.owned
    for origin, why in unread:
        if origin not in installed.owned:
            found.add_unread(origin, why)
    python = [one for one in inventory.distributions.values() if one.name and not one.by_conda]
    packages: dict[str, str] = {}
    for one in python:
        packages.setdefault(one.name, one.version)
    found.add_packages(packages, path, [one.name for one in python if one.is_conda])
    found.observations += installed.observations
    return found


def find_in_file(path: str, origin: str | None = None, owner: str = "") -> Findings:
    """Return GPU code, name and needs of one library, object, fatbinary, cubin or PTX file."""
    found = Findings()
    origin = origin or path
    code = read_gpu_code(path, name=origin)
    with open(path, "rb") as file:
        reading = read_open_library(path, file, os.fstat(file.fileno()).st_size, origin)
    library = reading.library if reading else Library(path)
    _add_names(found, origin, library, with_needs=bool(code.entries))
    found.add_code(origin, code, owner)
    return found


class _FolderContents(Struct):
    """Files below a folder by their real paths, without duplicates."""

    metadata: list[str] = []
    conda: list[str] = []
    libraries: dict[str, None] = {}
    kernels: dict[str, None] = {}


def _walk(root: str) -> _FolderContents:
    def refuse(error: OSError) -> None:
        if error.filename == root:
            raise BadInput(f"cannot be read: {error.strerror}", field=root) from None

    there = _FolderContents()
    count = 0
    for folder, names, files in os.walk(root, onerror=refuse):
        names.sort()
        there.metadata += (
            os.path.join(folder, n) for n in names if f"/{n}".endswith(METADATA_FOLDERS)
        )
        if os.path.basename(folder) == "conda-meta":
            there.conda += (os.path.join(folder, n) for n in files if n.endswith(".json"))
        count += len(files)
        for name in sorted(files):
            kind = there.libraries if is_any_library(name) else None
            kind = there.kernels if is_loaded_kernel(name) else kind
            if kind is None:
                continue
            real = os.path.realpath(os.path.join(folder, name))
            if real.startswith(root.rstrip(os.sep) + os.sep) and _is_regular_file(real):
                kind[real] = None
        if count > MAX_FILES or len(there.libraries) > MAX_LIBRARIES:
            what = f"holds more than {MAX_FILES} files or {MAX_LIBRARIES} libraries"
            raise BadInput(what, field=root, hint="name a smaller folder")
    return there


def _is_regular_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def _read_file(
    file: str,
    below: str,
    path: str,
    inventory: Inventory,
    found: Findings,
    unread: list[tuple[str, str]],
    owner: Callable[[str], str],
) -> None:
    """Read a library or kernel: its package, and the versions in its name, links and code."""
    origin = os.path.join(path, below)
    try:
        with open(file, "rb") as opened:
            if is_loaded_kernel(file):
                code = read_gpu_code(opened, name=origin)
                library, complete, torch = describe_code_file(below, code), True, NO_TORCH_SYMBOLS
            else:
                size = os.fstat(opened.fileno()).st_size
                reading = read_open_library(below, opened, size, origin)
                if reading is None:
                    return
                library, complete, code = reading.library, reading.complete, reading.code
                torch = reading.torch
                _add_names(found, origin, reading.library, with_needs=bool(code.entries))
    except (BadInput, NotFound, OSError) as error:
        why = error.problem if isinstance(error, CompatgateError) else error.strerror
        inventory.add_file(InstalledFile(below, origin, unread=True))
        unread.append((origin, why or "it cannot be opened"))
        return
    inventory.add_file(InstalledFile(below, origin, library, not complete, torch))
    found.add_code(origin, code, owner(below))


def _add_names(found: Findings, origin: str, library: Library, *, with_needs: bool) -> None:
    found.add_library(origin)
    if library.soname and library.soname != os.path.basename(origin):
        found.add_library(library.soname, how=f" (soname of {origin})")
    if with_needs:
        found.add_needed(origin, library.needs)


def _add_metadata(inventory: Inventory, root: str, folder: str, path: str) -> None:
    one = inventory.distribution(os.path.relpath(folder, root))
    for name in sorted(METADATA_FILES):
        largest = LARGEST_LIST if name in FILE_LISTS else LARGEST_METADATA_FILE
        if data := _read_bytes(os.path.join(folder, name), largest):
            one.take(name, data, path)
    if one.files is not None:
        one.files = frozenset(
            os.path.relpath(os.path.realpath(os.path.join(root, file)), root) for file in one.files
        )
    # folders of editable installs are those of this machine, not below the root that is read
    real = {below: os.path.realpath(os.sep + below) for below in one.folders}
    one.folders = tuple(
        os.path.relpath(there, root) if there.startswith(root.rstrip(os.sep) + os.sep) else below
        for below, there in real.items()
    )


def _read_bytes(path: str, largest: int) -> bytes:
    try:
        if not _is_regular_file(path):
            return b""
        with open(path, "rb") as file:
            return file.read(largest)
    except OSError:
        return b""
