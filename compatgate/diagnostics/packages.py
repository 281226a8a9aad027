"""Python distributions of which files are loaded: their metadata tell versions that names do not.

The CUDA libraries of wheels are called ``libcudnn.so.9``; which 9 it is, the metadata of
``nvidia-cudnn-cu12`` beside them say.
"""

from __future__ import annotations

import csv
import posixpath
import re
from collections.abc import Collection, Iterator
from io import StringIO

from msgspec import Struct
from packaging.utils import canonicalize_name

from compatgate.core.components import find_component
from compatgate.core.facts.packages import FILES_ARE_READ
from compatgate.core.vocabulary import FOLDERS
from compatgate.diagnostics.files import Files
from compatgate.discovery.image.feed import Content, Feed, Member
from compatgate.discovery.image.files import torch_version
from compatgate.discovery.observed import Observation
from compatgate.discovery.python_env import read_answer
from compatgate.discovery.wheel import LARGEST_METADATA, is_library, name_and_version

_SITE = re.compile(r"(.*/(?:site|dist)-packages)/(?P<first>[^/]+)")
_LARGEST_TEXT = 64 * 1024
_LARGEST_RECORD = 16 * 1024 * 1024
_MOST = 10_000
_HELPERS = ("jaxlib", "onnxruntime")
"""Distributions that tell something of a component of another name, or that it is not this one."""


class Packages(Struct, frozen=True):
    """Distributions that loaded files belong to.

    Attributes:
        versions: by the folder that they are installed in, normalised name to version.
        owners: loaded file to normalised name.
        unknown: frameworks that are loaded from a folder without metadata: component to file.
        stated: by files of the packages; they decide over metadata, which lack the build's label.
    """

    versions: dict[str, dict[str, str]]
    owners: dict[str, str]
    unknown: dict[str, str]
    stated: list[Observation]


def packages_of(paths: Collection[str], files: Files) -> Packages:
    """The distributions of loaded files that matter to a stack.

    Args:
        paths: of files, as the process knows them.
        files: its file system.
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
    """What those distributions state."""
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
    if "jaxlib" in versions:  # JAX itself has no library; what it loads is jaxlib's
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
    """The libraries that a distribution installed."""
    text = files.read(f"{site}/{folder}/RECORD", _LARGEST_RECORD).decode("utf-8", "replace")
    try:
        for row in csv.reader(StringIO(text)):
            if row and is_library(row[0]):
                yield posixpath.normpath(posixpath.join(site, row[0]))
    except csv.Error:
        return
