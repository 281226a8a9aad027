"""Read the files that a process has mapped: libraries, packages, GPU code.

NCCL's file has its version as text, ``NCCL version 2.21.5+cuda12.4``.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence

from msgspec.structs import replace

from compatgate.core.facts.nvidia import CudaArch
from compatgate.diagnostics.compose import printable
from compatgate.diagnostics.loaded import Library, Mapped, in_order, libraries_of
from compatgate.diagnostics.packages import Files, Packages, packaged, packages_of, read_regular
from compatgate.discovery.findings import Findings, Inspection, conclude
from compatgate.discovery.gpucode.object_files import read_sections
from compatgate.discovery.gpucode.source import Source
from compatgate.discovery.local import find_in_file
from compatgate.discovery.observations import Observation
from compatgate.errors import BadInput, NotFound

_ELF = b"\x7fELF"
_NO_FILES = ("/memfd:", "/dev/", "/SYSV", "/anon_hugepage")
"""Prefixes of the kernel's names for memory without a file."""
_OF_SYSTEM = ("/lib", "/usr/lib", "/usr/bin", "/bin")
_PYTHON = re.compile(r"/(?:lib)?python(\d\.\d{1,2})(?:t|d)?(?:/|\.so|$)")
_OF_NVIDIA = re.compile(
    r"lib(?:cublas(?:Lt)?|cuda(?:rt|debugger)?|cudnn\w*|cufftw?|cufile\w*|cuinj64|cupti|curand|"
    r"cusolver(?:Mg)?|cusparse(?:Lt)?|cutensor\w*|nccl|nvinfer\w*|nvidia-[\w-]+|nvrtc(?:-builtins)?|"
    r"nvJitLink|npp\w+|nvjpeg|nvshmem\w*|nvvm|nvfatbin)[-.].*"
)


class Reader:
    """A reader of the mapped files of one process.

    Attributes:
        libraries: CUDA libraries, set by `seen`.
        notes: files that could not be read.

    Args:
        folder: folder of the process in procfs.
        mapped: mapped files, as the process names them.
        files: file system of the process.
    """

    def __init__(self, folder: str, mapped: list[Mapped], files: Files) -> None:
        self.folder = folder
        self.files = files
        self.mapped = mapped
        self.libraries: list[Library] = []
        self.notes: list[str] = []

    def seen(self, facts: CudaArch | None) -> Inspection:
        """Read all mapped files."""
        packages = packages_of([file.path for file in self.mapped], self.files)
        self.libraries = in_order(libraries_of(self.mapped))
        found = conclude(self._findings(packages), facts)
        unknown = tuple(
            f"{name}: {printable(path)} is loaded, but no metadata states its version"
            for name, path in packages.unknown.items()
            if name not in found.stack
        )
        return replace(found, open=(*found.open, *unknown))

    def _findings(self, packages: Packages) -> Findings:
        found = Findings()
        found.observations += packaged(packages)
        spans = {file.path: file for file in self.mapped}
        for library in self.libraries:
            path = printable(library.path)
            found.add_library(path)
            version = self._text_of(spans[library.path]) if library.component == "nccl" else None
            if version:
                found.observations.append(Observation("nccl", version, path, "metadata"))
        for file in self.mapped:
            if not _OF_NVIDIA.fullmatch(os.path.basename(file.path)):
                self._add_code(file, packages.owners.get(file.path, ""), found)
        python = python_of("", self.mapped)
        if python:
            found.observations.append(Observation("python", python, self.folder, "derived"))
        return found

    def _text_of(self, file: Mapped) -> str | None:
        try:
            return nccl_version(self._reach(file))
        except (OSError, BadInput) as error:
            self.notes.append(f"{printable(file.path)} cannot be read: {error}")
            return None

    def _add_code(self, file: Mapped, owner: str, found: Findings) -> None:
        if file.path.startswith(_NO_FILES):
            return
        origin = printable(file.path)
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

    def _reach(self, file: Mapped) -> str:
        """Return the path to open: the mapped inode if the kernel permits, else the file's path.

        Raises:
            OSError: neither can be opened, or the file was replaced since.
        """
        exact = f"{self.folder}/map_files/{_span(file.span)}"
        for path in (exact, self.files.find(file.path)):
            if file.deleted and path != exact:
                break
            try:
                read_regular(path, 1)
                return path
            except OSError:
                continue
        raise OSError(errno.ENOENT, "the file was replaced, or permission is denied")


def _span(span: str) -> str:
    """Return an address range without leading zeros, as in ``map_files``."""
    first, _, last = span.partition("-")
    return f"{int(first, 16):x}-{int(last, 16):x}"


def python_of(executable: str, mapped: Sequence[Mapped]) -> str | None:
    """Return the version of the (embedded) interpreter, such as ``3.11``."""
    for path in (executable, *(file.path for file in mapped)):
        if match := _PYTHON.search(path):
            return match[1]
    return None


_TEXT = re.compile(rb"NCCL version (\d+\.\d+\.\d+)[a-z0-9.]*\+cuda(\d{1,2})\.(\d)")
_LARGEST = 64 * 1024 * 1024


def nccl_version(path: str) -> str | None:
    """Return NCCL's version, ``2.21.5+cu124``; None if the file lacks the text.

    Raises:
        OSError: the file cannot be opened.
        BadInput: the ELF file is damaged.
    """
    with open(path, "rb") as file:
        source = Source(file, path, size=os.fstat(file.fileno()).st_size, seekable=True)
        for section in read_sections(source, 0, source.size or 0) or ():
            if (section.name or "").startswith(".rodata"):
                source.seek(section.start)
                data = source.read(min(section.end - section.start, _LARGEST))
                if match := _TEXT.search(data):
                    return f"{match[1].decode()}+cu{match[2].decode()}{match[3].decode()}"
    return None
