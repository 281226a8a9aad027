"""Read the metadata folders of installed distributions."""

from __future__ import annotations

import csv
import posixpath
import re
from collections.abc import Iterable, Iterator
from email.parser import BytesHeaderParser
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct
from packaging.utils import canonicalize_name

from compatgate.discovery.wheels.archive import parse_metadata
from compatgate.discovery.wheels.names import is_any_library, is_loaded_kernel
from compatgate.strict_json import DECODE_ERRORS

LARGEST_METADATA_FILE = 4 * 1024 * 1024
"""Bytes of metadata; the longest descriptions have some 200 kB."""
LARGEST_LIST = 64 * 1024 * 1024
"""Bytes of ``RECORD``, or of a file below ``conda-meta``."""
_MAX_REQUIREMENTS = 2000
METADATA_FILES = frozenset(
    (
        "METADATA",
        "PKG-INFO",
        "RECORD",
        "WHEEL",
        "INSTALLER",
        "direct_url.json",
        "installed-files.txt",
    )
)
"""Names of the files that are read in a metadata folder."""
FILE_LISTS = ("RECORD", "installed-files.txt")
_NAMES_CODE = re.compile(rb"\.(?:so|cubin|fatbin|ptx|(?i:dll|pyd))")
METADATA_FOLDERS = (".dist-info", ".egg-info", "/EGG-INFO")


class Distribution(Struct):
    """An installed distribution; its normalised name is empty until it is known.

    ``folder`` has its metadata, below the root and without leading slash; for conda it is the path
    of the record. Paths of files are relative to ``root``; ``files`` are the libraries and kernels
    in its list of files, None without a list. Of ``by_conda`` only a record of conda is known.
    """

    folder: str
    root: str
    name: str = ""
    version: str = ""
    origin: str = ""
    requires: tuple[str, ...] = ()
    files: frozenset[str] | None = None
    folders: tuple[str, ...] = ()
    is_conda: bool = False
    by_conda: bool = False
    tags: tuple[str, ...] = ()

    @classmethod
    def at(cls, folder: str) -> Distribution:
        """Start a distribution with its metadata folder, whose name may state its name."""
        above = posixpath.dirname(folder)
        return cls(folder, above, folders=(above,) if folder.endswith("/EGG-INFO") else ())

    @property
    def wheel(self) -> str:
        """Return the file name of the installed wheel; ``""`` where it is not known."""
        if not self.tags or not self.name or not self.version:
            return ""
        kinds = ([], [], [])  # type: tuple[list[str], list[str], list[str]]
        for tag in self.tags:
            for kind, part in zip(kinds, tag.split("-"), strict=True):
                if part not in kind:
                    kind.append(part)
        return f"{self.name.replace('-', '_')}-{self.version}-{'-'.join(map('.'.join, kinds))}.whl"

    def take(self, file: str, data: bytes, origin: str) -> None:
        """Read one of `METADATA_FILES`."""
        if file in ("METADATA", "PKG-INFO"):
            if stated := parse_metadata(data):
                self.identify(stated.package, stated.version, origin)
                self.requires = stated.requires[:_MAX_REQUIREMENTS]
        elif file == "RECORD":
            self._list(_record_paths(data), self.root)
        elif file == "installed-files.txt":
            self._list(data.decode("utf-8", "replace").splitlines(), self.folder)
        elif file == "WHEEL":
            tags = BytesHeaderParser().parsebytes(data).get_all("Tag", [])
            self.tags = tuple(t for tag in tags[:64] if (t := str(tag).strip()).count("-") == 2)
        elif file == "INSTALLER":
            self.is_conda = self.is_conda or data.strip() == b"conda"
        elif file == "direct_url.json" and (folder := _editable_folder(data)):
            self.folders = (*self.folders, folder)

    def identify(self, name: str, version: str, origin: str) -> None:
        """Set name and version where they are not known yet."""
        self.name = self.name or str(canonicalize_name(name))
        self.version = self.version or version
        self.origin = self.origin or origin

    def _list(self, paths: Iterable[str], relative_to: str) -> None:
        self.files = frozenset(
            _join_path(path, relative_to) for path in paths if _is_code_file(path)
        )


class _CondaRecord(Struct):
    name: str
    version: str
    build: str = ""
    files: tuple[str, ...] = ()


def read_conda_record(path: str, data: bytes, origin: str) -> Distribution | None:
    """Read a record below ``conda-meta``; None where it is malformed."""
    try:
        record = msgspec.json.decode(data, type=_CondaRecord)
    except DECODE_ERRORS:
        return None
    prefix = posixpath.dirname(posixpath.dirname(path))
    files = frozenset(_join_path(file, prefix) for file in record.files if _is_code_file(file))
    name = str(canonicalize_name(record.name))
    return Distribution(
        path, prefix, name, record.version, origin, files=files, is_conda=True, by_conda=True
    )


def metadata_folder(path: str) -> str | None:
    """Return the metadata folder of a file; None for other files."""
    folder, _, name = path.rpartition("/")
    return folder if name in METADATA_FILES and folder.endswith(METADATA_FOLDERS) else None


def _record_paths(data: bytes) -> Iterator[str]:
    """Yield paths in a ``RECORD``; skip lines that name no library."""
    for line in trim_metadata("RECORD", data).decode("utf-8", "replace").splitlines():
        try:
            row = next(csv.reader([line]), [])
        except csv.Error:
            continue
        if row:
            yield row[0]


def trim_metadata(file: str, data: bytes) -> bytes:
    """Return the parts of a metadata file that are needed if the package is installed."""
    if file in ("METADATA", "PKG-INFO"):
        return data.partition(b"\n\n")[0] + b"\n\n"
    if file in FILE_LISTS:
        return b"\n".join(line for line in data.splitlines() if _NAMES_CODE.search(line))
    return data


def _is_code_file(path: str) -> bool:
    return is_any_library(path) or is_loaded_kernel(path)


def _join_path(path: str, folder: str) -> str:
    return posixpath.normpath(posixpath.join("/", folder, path)).lstrip("/")


def _editable_folder(data: bytes) -> str:
    """Return the folder of an editable install (``pip install -e``), empty for other installs."""
    try:
        document = msgspec.json.decode(data)
    except DECODE_ERRORS:
        return ""
    if not isinstance(document, dict) or not isinstance(document.get("url"), str):
        return ""
    details = document.get("dir_info")
    url = urlsplit(document["url"])
    if not isinstance(details, dict) or details.get("editable") is not True or url.scheme != "file":
        return ""
    return unquote(url.path).strip("/")
