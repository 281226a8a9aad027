"""Find the Python distributions whose files a process has loaded.

Their metadata states versions that file names lack. Files are read as the process sees them: below
its root, and through its mappings.
"""

from __future__ import annotations

import csv
import errno
import os
import posixpath
import re
import stat
from collections.abc import Collection, Iterator
from io import StringIO

from msgspec import Struct
from packaging.utils import canonicalize_name

from compatgate.core.components import find_component
from compatgate.core.facts.packages import FILES_ARE_READ
from compatgate.core.vocabulary import FOLDERS
from compatgate.discovery.image.files import torch_version
from compatgate.discovery.image.tar import Content, Feed, Member
from compatgate.discovery.local import LARGEST_METADATA, name_and_version
from compatgate.discovery.observations import Observation
from compatgate.discovery.python_env import read_answer
from compatgate.discovery.wheels.names import is_library

_MOST_LINKS = 40


class Files:
    """The file system of a process.

    Args:
        root: path of the process's root directory, ``/proc/17/root``; empty for this process.
    """

    def __init__(self, root: str = "") -> None:
        self.root = root

    def find(self, path: str) -> str:
        """Return the path from here to a path of the process.

        Symbolic links resolve as in the process, so that a link in a container never leads to a
        file of the host.

        Raises:
            OSError: the path has too many links.
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
            if links > _MOST_LINKS:
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
    """Return the first bytes of a regular file, without waiting for pipes or devices.

    Raises:
        OSError: the file cannot be opened, or is not a regular file.
    """
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

    Attributes:
        versions: by installation folder: normalised name to version.
        owners: loaded file to normalised name.
        unknown: frameworks loaded from a folder without metadata: component to file.
        stated: versions in files of packages; they win over metadata, which lacks build labels.
    """

    versions: dict[str, dict[str, str]]
    owners: dict[str, str]
    unknown: dict[str, str]
    stated: list[Observation]


def packages_of(paths: Collection[str], files: Files) -> Packages:
    """Return the distributions of loaded files that matter to a stack.

    Args:
        paths: paths of files in the process.
        files: file system of the process.
    """
    sites: dict[str, list[str]] = {}
    for path in paths:
        if match := _SITE.match(path):
            sites.setdefault(match[1], []).append(path)
    found = Packages({}, {}, {}, [])
    for site, loaded in sites.items():
        _look(site, loaded, files, found)
    return found


def packaged(packages: Packages) -> list[Observation]:
    """Return the versions that distributions state."""
    return packages.stated + [
        seen
        for site, versions in packages.versions.items()
        for seen in read_answer({"packages": versions}, site, FILES_ARE_READ).observations
        if seen.component != "python"
    ]


def _look(site: str, loaded: list[str], files: Files, found: Packages) -> None:
    versions: dict[str, str] = {}
    plugins: dict[str, str] = {}
    for folder in files.names(site)[:_MOST]:
        if not folder.endswith(".dist-info") or not _matters(folder):
            continue
        metadata = files.read(f"{site}/{folder}/METADATA", LARGEST_METADATA)
        named = name_and_version(metadata) or _of_folder(folder)
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
        found.stated.extend(_torch(origin, files.read(origin, _LARGEST_TEXT)))
    for path in loaded:
        match = _SITE.match(path)
        component = FOLDERS.get(match["first"]) if match and path not in found.owners else None
        if component:
            found.unknown.setdefault(component, path)


def _torch(origin: str, data: bytes) -> list[Observation]:
    content = Content(Feed([data]), Member(origin, "file", len(data), False))
    return torch_version(content, origin)


def _matters(folder: str) -> bool:
    name = _of_folder(folder)[0]
    if name in _HELPERS or name.startswith("jax"):
        return True
    return find_component(name) is not None


def _of_folder(folder: str) -> tuple[str, str]:
    name, _, version = folder.removesuffix(".dist-info").partition("-")
    return canonicalize_name(name), version


def _recorded(site: str, folder: str, files: Files) -> Iterator[str]:
    """Yield the libraries that a distribution has installed."""
    text = files.read(f"{site}/{folder}/RECORD", _LARGEST_RECORD).decode("utf-8", "replace")
    try:
        for row in csv.reader(StringIO(text)):
            if row and is_library(row[0]):
                yield posixpath.normpath(posixpath.join(site, row[0]))
    except csv.Error:
        return
