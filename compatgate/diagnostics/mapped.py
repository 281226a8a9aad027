"""Read the files that a process has mapped: libraries, Python distributions and GPU code.

The metadata of distributions states versions that file names lack. Files are read as the process
sees them: below its root, and through its mappings. NCCL's file has its version as text,
``NCCL version 2.21.5+cuda12.4``.
"""

from __future__ import annotations

import csv
import errno
import os
import posixpath
import re
import stat
from collections.abc import Iterator, Sequence
from io import StringIO

from msgspec import Struct
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from compatgate.core.components import find_component
from compatgate.core.facts.nvidia import CudaArch
from compatgate.core.facts.packages import NO_KNOWN_PACKAGES
from compatgate.core.vocabulary import FOLDERS
from compatgate.diagnostics.document import json_text
from compatgate.diagnostics.loaded import Library, MappedFile, libraries_of, sort_libraries
from compatgate.discovery.findings import Findings, Inspection, conclude
from compatgate.discovery.gpucode.object_files import read_sections
from compatgate.discovery.gpucode.source import Source
from compatgate.discovery.image.files import read_torch_version
from compatgate.discovery.local import find_in_file
from compatgate.discovery.observations import Observation
from compatgate.discovery.python_env import read_answer
from compatgate.discovery.wheels.archive import LARGEST_METADATA, parse_metadata
from compatgate.discovery.wheels.names import is_library
from compatgate.errors import BadInput, NotFound, quote_error

_MAX_LINKS = 40


class Files:
    """The file system of a process, below ``/proc/17/root``; ``root`` is empty for this process."""

    def __init__(self, root: str = "") -> None:
        self.root = root

    def find(self, path: str) -> str:
        """Return the path from here to a path of the process.

        Symbolic links resolve as in the process, so that a link in a container never leads to a
        file of the host.
        """
        if not self.root:
            return path
        rest = path.split("/")[::-1]
        place = ""
        links = 0
        while rest:
            name = rest.pop()
            if name in ("", "."):
                continue
            if name == "..":
                place = place.rpartition("/")[0]
                continue
            try:
                target = os.readlink(f"{self.root}{place}/{name}")
            except OSError:
                place = f"{place}/{name}"
                continue
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            place = "" if target.startswith("/") else place
            rest += target.split("/")[::-1]
        return self.root + (place or "/")

    def names(self, folder: str) -> list[str]:
        """List a folder; empty if it cannot be read."""
        try:
            return sorted(os.listdir(self.find(folder)))
        except OSError:
            return []

    def read(self, path: str, largest: int) -> bytes:
        """Return the start of a regular file; empty if it cannot be read."""
        try:
            return read_regular(self.find(path), largest)
        except OSError:
            return b""


def read_regular(path: str, largest: int) -> bytes:
    """Return the first bytes of a regular file, without waiting for pipes or devices."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        return file.read(largest)


_SITE = re.compile(r"(.*/(?:site|dist)-packages)/(?P<first>[^/]+)")
_LARGEST_TEXT = 64 * 1024
_LARGEST_RECORD = 16 * 1024 * 1024
_MOST = 10_000
_HELPERS = ("jaxlib", "onnxruntime")
"""Distributions that state facts about a component of another name, or rule one out."""


class Packages(Struct, frozen=True):
    """Distributions of loaded files.

    ``versions`` are by installation folder and normalised name, ``owners`` by loaded file.
    ``unknown`` has the file of each framework that is loaded from a folder without metadata,
    ``stated`` the versions in files of packages, which win over metadata without build labels.
    """

    versions: dict[str, dict[str, str]]
    owners: dict[str, str]
    unknown: dict[str, str]
    stated: list[Observation]


def _look(site: str, loaded: list[str], files: Files, found: Packages) -> None:
    versions: dict[str, str] = {}
    plugins: dict[str, str] = {}
    for folder in files.names(site)[:_MOST]:
        if not folder.endswith(".dist-info"):
            continue
        name = _split_folder(folder)[0]
        if name not in _HELPERS and not name.startswith("jax") and not find_component(name):
            continue
        metadata = files.read(f"{site}/{folder}/METADATA", LARGEST_METADATA)
        stated = parse_metadata(metadata)
        named = (stated.package, stated.version) if stated else _split_folder(folder)
        if named[0].startswith("jax"):
            plugins[named[0]] = named[1]
        recorded = set(_recorded(site, folder, files))
        own = [path for path in loaded if path in recorded]
        if own:
            versions[named[0]] = named[1]
            found.owners.update(dict.fromkeys(own, named[0]))
    if "jaxlib" in versions:  # JAX has no library; it loads jaxlib's
        versions |= plugins
    found.versions[site] = versions
    if any(path.startswith(f"{site}/torch/") for path in loaded):
        origin = f"{site}/torch/version.py"
        data = files.read(origin, _LARGEST_TEXT)
        found.stated.extend(read_torch_version(data, origin))
    for path in loaded:
        match = _SITE.match(path)
        component = FOLDERS.get(match["first"]) if match and path not in found.owners else None
        if component:
            found.unknown.setdefault(component, path)


def _split_folder(folder: str) -> tuple[str, str]:
    name, _, version = folder.removesuffix(".dist-info").partition("-")
    return canonicalize_name(name), version


def _recorded(site: str, folder: str, files: Files) -> Iterator[str]:
    text = files.read(f"{site}/{folder}/RECORD", _LARGEST_RECORD).decode("utf-8", "replace")
    try:
        for row in csv.reader(StringIO(text)):
            if row and is_library(row[0]):
                yield posixpath.normpath(posixpath.join(site, row[0]))
    except csv.Error:
        return


_ELF = b"\x7fELF"
_NO_FILES = re.compile(r"/memfd:|/dev/(?!shm/)|/SYSV|/anon_hugepage")
"""The kernel's names for memory without a file; programs keep compiled libraries in /dev/shm."""
_OF_SYSTEM = ("/lib", "/usr/lib", "/usr/bin", "/bin")
_PYTHON = re.compile(r"/(?:lib)?python(\d\.\d{1,2})(?:t|d)?(?:/|\.so|$)")
_OF_NVIDIA = re.compile(
    r"lib(?:cublas(?:Lt)?|cuda(?:rt|debugger)?|cudnn\w*|cufftw?|cufile\w*|cuinj64|cupti|curand|"
    r"cusolver(?:Mg)?|cusparse(?:Lt)?|cutensor\w*|nccl|nvinfer\w*|nvidia-[\w-]+|nvrtc(?:-builtins)?|"
    r"nvJitLink|npp\w+|nvjpeg|nvshmem\w*|nvvm|nvfatbin)[-.].*"
)


class Reader:
    """A reader of the mapped files of one process."""

    def __init__(self, folder: str, mapped: list[MappedFile], files: Files) -> None:
        self.folder = folder
        self.files = files
        self.mapped = mapped
        self.libraries: list[Library] = []
        self.notes: list[str] = []

    def seen(self, facts: CudaArch | None) -> Inspection:
        """Read all mapped files."""
        sites: dict[str, list[str]] = {}
        for file in self.mapped:
            if match := _SITE.match(file.path):
                sites.setdefault(match[1], []).append(file.path)
        packages = Packages({}, {}, {}, [])
        for site, loaded in sites.items():
            _look(site, loaded, self.files, packages)
        self.libraries = sort_libraries(libraries_of(self.mapped))
        found = conclude(self._findings(packages), facts)
        unknown = tuple(
            f"{name}: {json_text(path)} is loaded, but no metadata states its version"
            for name, path in packages.unknown.items()
            if name not in found.stack
        )
        return replace(found, open=(*found.open, *unknown))

    def _findings(self, packages: Packages) -> Findings:
        found = Findings()
        found.observations += packages.stated
        for site, versions in packages.versions.items():
            answer = read_answer({"packages": versions}, site, NO_KNOWN_PACKAGES)
            found.observations += (o for o in answer.observations if o.component != "python")
        spans = {file.path: file for file in self.mapped}
        for library in self.libraries:
            path = json_text(library.path)
            found.add_library(path)
            if library.component != "nccl":
                continue
            try:
                if version := nccl_version(self._reach(spans[library.path])):
                    found.observations.append(Observation("nccl", version, path, "metadata"))
            except (OSError, BadInput) as error:
                self.notes.append(f"{path} cannot be read: {quote_error(error)}")
        for file in self.mapped:
            if not _OF_NVIDIA.fullmatch(os.path.basename(file.path)):
                self._add_code(file, packages.owners.get(file.path, ""), found)
        python = python_of("", self.mapped)
        if python:
            found.observations.append(Observation("python", python, self.folder, "derived"))
        return found

    def _add_code(self, file: MappedFile, owner: str, found: Findings) -> None:
        if _NO_FILES.match(file.path):
            return
        origin = json_text(file.path)
        try:
            path = self._reach(file)
            if read_regular(path, len(_ELF)) == _ELF:
                found.extend(find_in_file(path, origin, owner))
        except (BadInput, NotFound) as error:
            found.add_unread(origin, error.problem)
        except OSError as error:
            if file.path.startswith(_OF_SYSTEM) and "-packages/" not in file.path:
                self.notes.append(f"{origin}: {error.strerror}")
            else:
                found.add_unread(origin, error.strerror or "it cannot be opened")

    def _reach(self, file: MappedFile) -> str:
        """Return the path to open: the mapped inode if the kernel permits, else the file's path."""
        first, _, last = file.span.partition("-")
        # The names in map_files have no leading zeros
        exact = f"{self.folder}/map_files/{int(first, 16):x}-{int(last, 16):x}"
        for path in (exact, self.files.find(file.path)):
            if file.deleted and path != exact:
                break
            try:
                read_regular(path, 1)
                return path
            except OSError:
                continue
        raise OSError(errno.ENOENT, "the file was replaced, or permission is denied")


def python_of(executable: str, mapped: Sequence[MappedFile]) -> str | None:
    """Return the version of the (embedded) interpreter, such as ``3.11``."""
    for path in (executable, *(file.path for file in mapped)):
        if match := _PYTHON.search(path):
            return match[1]
    return None


_TEXT = re.compile(rb"NCCL version (\d+\.\d+\.\d+)[a-z0-9.]*\+cuda(\d{1,2})\.(\d)")
_LARGEST = 64 * 1024 * 1024


def nccl_version(path: str) -> str | None:
    """Return NCCL's version, ``2.21.5+cu124``; None if the file lacks the text."""
    with open(path, "rb") as file:
        source = Source(file, path, size=os.fstat(file.fileno()).st_size, seekable=True)
        for section in read_sections(source, 0, source.size or 0) or ():
            if (section.name or "").startswith(".rodata"):
                source.seek(section.start)
                data = source.read(min(section.end - section.start, _LARGEST))
                if match := _TEXT.search(data):
                    return f"{match[1].decode()}+cu{match[2].decode()}{match[3].decode()}"
    return None
