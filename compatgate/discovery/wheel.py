"""Wheels: metadata and shared libraries, read in place; nothing is unpacked to disk.

Source: Python packaging user guide, "Binary distribution format" (``*.dist-info/METADATA``).
"""

from __future__ import annotations

import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from email.parser import BytesHeaderParser
from lzma import LZMAError

from packaging.utils import canonicalize_name

from compatgate.discovery.gpucode import read_gpu_code
from compatgate.discovery.observed import Observation
from compatgate.discovery.stack import Findings
from compatgate.errors import BadInput

MOST_MEMBERS = 200_000
LARGEST_TOTAL = 64 * 1024**3
"""Bytes of shared libraries, decompressed, in the largest wheel that is read."""
LARGEST_METADATA = 4 * 1024 * 1024

_RUNTIME = re.compile(
    r"(?P<name>nvidia-cuda-runtime(?:-cu\d\d)?|cuda-toolkit)(?:\[[^]]*\])?\s*\(?==\s*(?P<cuda>\d[\d.]*\d)"
)

DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    LZMAError,
    struct.error,
    EOFError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    ValueError,
)
"""What the standard library raises for damaged, encrypted or unusual zip files."""


def is_wheel(path: str) -> bool:
    """Whether the file is a zip file that calls itself a wheel."""
    return os.path.isfile(path) and path.endswith(".whl")


def find_in_wheel(path: str) -> Findings:
    """Name, version, CUDA libraries and GPU code of a wheel.

    Memory is bounded as `read_gpu_code` says, plus the wheel's table of contents.

    Raises:
        BadInput: it cannot be read, is damaged, or is no wheel.
    """
    found = Findings()
    label = os.path.basename(path)
    with _understood(path), zipfile.ZipFile(path) as wheel:
        members = wheel.infolist()
        libraries = [m for m in members if is_any_library(m.filename)]
        total = sum(member.file_size for member in libraries)
        if len(members) > MOST_MEMBERS or total > LARGEST_TOTAL:
            what = f"holds {len(members)} files and {total} bytes of libraries: more than is read"
            raise BadInput(what, field=path)
        metadata = list(_metadata(wheel, members))
        packages = dict(named for text in metadata if (named := name_and_version(text)))
        if not packages:
            raise BadInput("has no *.dist-info/METADATA: it is no wheel", field=path)
        found.add_packages(packages, label)
        found.observations += [o for text in metadata for o in _runtime(text, label)]
        for member in libraries:
            _read_library(wheel, member, f"{label}: {member.filename}", found, next(iter(packages)))
    return found


def is_library(path: str) -> bool:
    """Whether a file name is that of a shared library: ``x.so``, ``libx.so.1.2``."""
    name = path.rpartition("/")[2]
    return name.endswith(".so") or (".so." in name and name[-1:].isdecimal())


def is_windows_library(path: str) -> bool:
    """Whether a file name is that of a library of Windows: ``x.dll``, ``_C.pyd``."""
    return path.lower().endswith((".dll", ".pyd"))


def is_any_library(path: str) -> bool:
    """Whether a file name is that of a shared library, of Linux or Windows."""
    return is_library(path) or is_windows_library(path)


def name_and_version(metadata: bytes) -> tuple[str, str] | None:
    """Normalised name and version of a distribution, None when its metadata lacks one."""
    headers = BytesHeaderParser().parsebytes(metadata)
    name, version = headers.get("Name"), headers.get("Version")
    if not name or not version:
        return None
    return canonicalize_name(str(name)), str(version).strip()


def _metadata(wheel: zipfile.ZipFile, members: list[zipfile.ZipInfo]) -> Iterator[bytes]:
    for member in members:
        folder, _, name = member.filename.partition("/")
        if name == "METADATA" and folder.endswith(".dist-info"):
            with wheel.open(member) as file:
                yield file.read(LARGEST_METADATA)


def _runtime(metadata: bytes, label: str) -> Iterator[Observation]:
    """The CUDA runtime that a wheel pins: its code may be of several toolkits, this is what runs.

    PyTorch 2.15 for CUDA 13.2 carries kernels that CUDA 13.4 compiled.
    """
    for requirement in BytesHeaderParser().parsebytes(metadata).get_all("Requires-Dist", []):
        text = str(requirement)
        if (match := _RUNTIME.match(text)) and "extra" not in text.partition(";")[2]:
            origin = f"{label}: requires {match['name']} {match['cuda']}"
            yield Observation("cuda", match["cuda"], origin, "metadata")
            return


def _read_library(
    wheel: zipfile.ZipFile, member: zipfile.ZipInfo, origin: str, found: Findings, owner: str
) -> None:
    found.add_library(origin)
    with wheel.open(member) as file:
        if not file.read(4).startswith((b"\x7fELF", b"MZ")):
            return
    with wheel.open(member) as file:
        code = read_gpu_code(file, size=member.file_size, name=origin, stream=True)
        found.add_code(origin, code, owner)


@contextmanager
def _understood(path: str) -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        raise BadInput(f"is no wheel, or a damaged one: {error}", field=path) from None
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror or error}", field=path) from None
