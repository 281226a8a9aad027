"""Folders: site-packages or an installation prefix, with distributions and shared libraries."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from msgspec import Struct

from compatgate.core.facts import CudaArch
from compatgate.core.facts.packages import FILES_ARE_READ, Packages
from compatgate.core.facts.records import Library
from compatgate.discovery.gpucode import read_gpu_code
from compatgate.discovery.gpucode.dynamic import read_dynamic
from compatgate.discovery.gpucode.pe import MAGIC as PE
from compatgate.discovery.gpucode.source import Source
from compatgate.discovery.installed import File, Inventory
from compatgate.discovery.installed_metadata import (
    FILES,
    FOLDERS,
    LARGEST,
    LARGEST_LIST,
    LISTS,
    of_conda,
)
from compatgate.discovery.stack import Findings
from compatgate.discovery.wheel import is_any_library
from compatgate.discovery.wheels.families import is_loaded_kernel
from compatgate.discovery.wheels.kernels import of_code
from compatgate.discovery.wheels.library import read_open_library
from compatgate.discovery.wheels.measure import toolkits_of_ptx
from compatgate.discovery.wheels.torch_symbols import NONE
from compatgate.errors import BadInput, CompatgateError, NotFound

MOST_FILES = 1_000_000
MOST_LIBRARIES = 50_000


def find_in_folder(
    path: str, known: Packages = FILES_ARE_READ, facts: CudaArch | None = None
) -> Findings:
    """Distributions with what their files hold, CUDA libraries and GPU code below a folder.

    Symbolic links to folders are not followed, those to files only within the folder. A library
    that cannot be read leaves its package open, or becomes a conflict where it belongs to none, and
    the others are still read.

    Args:
        path: of the folder.
        known: what the facts say of packages.
        facts: toolkits and their PTX.

    Raises:
        BadInput: the folder cannot be read, or holds more than is read.
    """
    found = Findings()
    root = os.path.realpath(path)
    there = _walk(root)
    inventory = Inventory()
    for folder in there.metadata:
        _add_metadata(inventory, root, folder, path)
    for file in there.conda:
        _add_conda(inventory, root, file, path)
    listed = {file for one in inventory.distributions.values() for file in one.files or ()}
    kernels = [file for file in there.kernels if os.path.relpath(file, root) in listed]
    owner = inventory.owner_names()
    unread: list[tuple[str, str]] = []
    for file in (*there.libraries, *kernels):
        _read_file(file, os.path.relpath(file, root), path, inventory, found, unread, owner)
    installed = inventory.installed(known, toolkits_of_ptx(facts) if facts else {})
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
    """GPU code, name and needs of one library, object, fatbinary, cubin or PTX file.

    Raises:
        BadInput: it is damaged, or of no kind that may hold GPU code.
        NotFound: there is no such file.
    """
    found = Findings()
    origin = origin or path
    code = read_gpu_code(path, name=origin)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        dynamic = read_dynamic(Source(file, origin, size=size, seekable=True))
        library = Library(path, soname=dynamic.soname, needs=dynamic.needed)
        file.seek(0)
        if file.read(len(PE)) == PE:
            file.seek(0)
            reading = read_open_library(path, file, size, origin)
            library = reading.library if reading else library
    _add_names(found, origin, library, with_needs=bool(code.entries))
    found.add_code(origin, code, owner)
    return found


class _There(Struct):
    """What is below a folder; real paths of files, each once.

    Attributes:
        metadata: folders with the metadata of a distribution.
        conda: records of conda.
    """

    metadata: list[str] = []
    conda: list[str] = []
    libraries: dict[str, None] = {}
    kernels: dict[str, None] = {}


def _walk(root: str) -> _There:
    there = _There()
    count = 0
    for folder, names, files in os.walk(root, onerror=_unreadable(root)):
        names.sort()
        there.metadata += (os.path.join(folder, n) for n in names if f"/{n}".endswith(FOLDERS))
        if os.path.basename(folder) == "conda-meta":
            there.conda += (os.path.join(folder, n) for n in files if n.endswith(".json"))
        count += len(files)
        for name in sorted(files):
            kind = there.libraries if is_any_library(name) else None
            kind = there.kernels if is_loaded_kernel(name) else kind
            if kind is None:
                continue
            real = os.path.realpath(os.path.join(folder, name))
            if real.startswith(root.rstrip(os.sep) + os.sep) and _regular(real):
                kind[real] = None
        if count > MOST_FILES or len(there.libraries) > MOST_LIBRARIES:
            what = f"holds more than {MOST_FILES} files or {MOST_LIBRARIES} libraries"
            raise BadInput(what, field=root, hint="name a folder further down")
    return there


def _unreadable(root: str) -> Callable[[OSError], None]:
    def handle(error: OSError) -> None:
        if error.filename == root:
            raise BadInput(f"cannot be read: {error.strerror}", field=root) from None

    return handle


def _regular(path: str) -> bool:
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
    """Read a library or kernel for its package, and for what its name, links and code tell."""
    origin = os.path.join(path, below)
    try:
        with open(file, "rb") as opened:
            if is_loaded_kernel(file):
                code = read_gpu_code(opened, name=origin)
                library, complete, torch = of_code(below, code), True, NONE
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
        inventory.add_file(File(below, origin, unread=True))
        unread.append((origin, why or "it cannot be opened"))
        return
    inventory.add_file(File(below, origin, library, not complete, torch))
    found.add_code(origin, code, owner(below))


def _add_names(found: Findings, origin: str, library: Library, *, with_needs: bool) -> None:
    """Take what the name of a library, its soname and its needs tell of versions."""
    found.add_library(origin)
    if library.soname and library.soname != os.path.basename(origin):
        found.add_library(library.soname, how=f" (soname of {origin})")
    if with_needs:
        found.add_needed(origin, library.needs)


def _add_metadata(inventory: Inventory, root: str, folder: str, path: str) -> None:
    """Take the files of a folder of metadata."""
    one = inventory.distribution(os.path.relpath(folder, root))
    for name in sorted(FILES):
        largest = LARGEST_LIST if name in LISTS else LARGEST
        if data := _read(os.path.join(folder, name), largest):
            one.take(name, data, path)
    if one.files is not None:
        one.files = frozenset(_real(root, file) for file in one.files)
    one.folders = tuple(_within(root, folder) for folder in one.folders)


def _real(root: str, file: str) -> str:
    """Return a listed file as it is met: by its real path, which links may lead to."""
    return os.path.relpath(os.path.realpath(os.path.join(root, file)), root)


def _within(root: str, folder: str) -> str:
    """Return the folder of an editable install below the root, of an image or of a host."""
    real = os.path.realpath(os.sep + folder)
    inside = real.startswith(root.rstrip(os.sep) + os.sep)
    return os.path.relpath(real, root) if inside else folder


def _add_conda(inventory: Inventory, root: str, file: str, path: str) -> None:
    below = os.path.relpath(file, root)
    if found := of_conda(below, _read(file, LARGEST_LIST), path):
        inventory.distributions[below] = found


def _read(path: str, largest: int) -> bytes:
    try:
        if not _regular(path):
            return b""
        with open(path, "rb") as file:
            return file.read(largest)
    except OSError:
        return b""
