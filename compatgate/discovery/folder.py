"""Folders: site-packages or an installation prefix, with distributions and shared libraries."""

from __future__ import annotations

import csv
import os
import stat
from collections.abc import Callable, Iterator
from io import StringIO

from compatgate.discovery.gpucode import read_gpu_code
from compatgate.discovery.gpucode.dynamic import read_dynamic
from compatgate.discovery.gpucode.source import Source
from compatgate.discovery.stack import Findings
from compatgate.discovery.wheel import LARGEST_METADATA, is_library, name_and_version
from compatgate.errors import BadInput, NotFound

MOST_FILES = 1_000_000
MOST_LIBRARIES = 50_000
LARGEST_RECORD = 64 * 1024 * 1024
_LARGEST_NAME = 256

_METADATA = {".dist-info": "METADATA", ".egg-info": "PKG-INFO"}


def find_in_folder(path: str) -> Findings:
    """Distributions, CUDA libraries and GPU code below a folder.

    Symbolic links to folders are not followed, those to files only within the folder. A library
    that cannot be read becomes a conflict, and the others are still read.

    Raises:
        BadInput: the folder cannot be read, or holds more than is read.
    """
    found = Findings()
    root = os.path.realpath(path)
    metadata, libraries = _walk(root)
    owners: dict[str, str] = {}
    packages: dict[str, str] = {}
    conda: list[str] = []
    for folder in metadata:
        named = _named(folder)
        if named:
            packages.setdefault(*named)
            if _read(os.path.join(folder, "INSTALLER"), _LARGEST_NAME).strip() == b"conda":
                conda.append(named[0])
            owners.update((file, named[0]) for file in _recorded(folder))
    found.add_packages(packages, path, conda)
    for file in libraries:
        _read_library(file, os.path.join(path, os.path.relpath(file, root)), owners, found)
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
    found.add_library(origin)
    with open(path, "rb") as file:
        source = Source(file, origin, size=os.fstat(file.fileno()).st_size, seekable=True)
        dynamic = read_dynamic(source)
    if dynamic.soname and dynamic.soname != os.path.basename(path):
        found.add_library(dynamic.soname, how=f" (soname of {origin})")
    if code.entries:
        found.add_needed(origin, dynamic.needed)
    found.add_code(origin, code, owner)
    return found


def _walk(root: str) -> tuple[list[str], list[str]]:
    """Folders with metadata, and real paths of libraries, each once."""
    metadata: list[str] = []
    libraries: dict[str, None] = {}
    count = 0
    for folder, names, files in os.walk(root, onerror=_unreadable(root)):
        names.sort()
        metadata += (os.path.join(folder, n) for n in names if n.endswith(tuple(_METADATA)))
        count += len(files)
        for name in sorted(filter(is_library, files)):
            real = os.path.realpath(os.path.join(folder, name))
            if real.startswith(root.rstrip(os.sep) + os.sep) and _regular(real):
                libraries[real] = None
        if count > MOST_FILES or len(libraries) > MOST_LIBRARIES:
            what = f"holds more than {MOST_FILES} files or {MOST_LIBRARIES} libraries"
            raise BadInput(what, field=root, hint="name a folder further down")
    return metadata, list(libraries)


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


def _read_library(file: str, origin: str, owners: dict[str, str], found: Findings) -> None:
    try:
        with open(file, "rb") as opened:
            if opened.read(4) != b"\x7fELF":
                return
        more = find_in_file(file, origin, owners.get(file, ""))
    except (BadInput, NotFound) as error:
        found.add_unread(origin, error.problem)
    except OSError as error:
        found.add_unread(origin, error.strerror or "it cannot be opened")
    else:
        found.extend(more)


def _named(folder: str) -> tuple[str, str] | None:
    name = _METADATA[os.path.splitext(folder)[1]]
    data = _read(os.path.join(folder, name), LARGEST_METADATA)
    return name_and_version(data)


def _recorded(folder: str) -> Iterator[str]:
    """Real paths of the libraries in a distribution's ``RECORD``."""
    text = _read(os.path.join(folder, "RECORD"), LARGEST_RECORD).decode("utf-8", "replace")
    parent = os.path.dirname(folder)
    try:
        for row in csv.reader(StringIO(text)):
            if row and is_library(row[0]):
                yield os.path.realpath(os.path.join(parent, row[0]))
    except csv.Error:
        return


def _read(path: str, largest: int) -> bytes:
    try:
        if not _regular(path):
            return b""
        with open(path, "rb") as file:
            return file.read(largest)
    except OSError:
        return b""
