"""Read what ``pip inspect`` and ``pip install --report`` print, in JSON.

* An installation report lists what pip would install, with the URL and digest of each file. Source:
  https://pip.pypa.io/en/stable/reference/installation-report/ (version 1).
* An inspection lists what is installed. Source:
  https://pip.pypa.io/en/stable/reference/inspect-report/ (version 1). Both were written on one
  machine, which they describe by the variables of environment markers.

The report of ``python -m torch.utils.collect_env`` is text, with the same lists in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from compatgate.core.request import CPU_NAMES
from compatgate.discovery.lockfiles.interface import (
    ListedPackage,
    LockContents,
    LockFile,
    LockFormat,
)
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.text import (
    Table,
    TableLock,
    list_texts,
    read_nested,
    read_table,
    read_table_lock,
)
from compatgate.discovery.lockfiles.wheel_builds import select_wheels
from compatgate.errors import BadInput, InconclusiveInput, quote_error
from compatgate.strict_json import DECODE_ERRORS, DuplicateKeyError, decode_strict

_REPORT_SHAPE = re.compile(r'"pip_version"\s*:')
_INSTALL_SHAPE = re.compile(r'"install"\s*:\s*\[')
_INSTALLED_SHAPE = re.compile(r'"installed"\s*:\s*\[')
_REQUIRED_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_SYSTEMS = {"win32": "windows", "linux": "linux", "darwin": "macOS"}

_TORCH = re.compile(r"^\s*PyTorch version: (\S+)\s*$", re.MULTILINE)
_BUILT = re.compile(r"^\s*CUDA used to build PyTorch: ", re.MULTILINE)
_PIP = re.compile(r"^\s*\[pip\d?\]\s+([A-Za-z0-9][\w.-]*)==([^\s;]+)\s*$", re.MULTILINE)
_CONDA = re.compile(
    r"^\s*\[conda\]\s+([A-Za-z0-9][\w.-]*)\s+(\d\S*)\s+(\S+)(?:[ \t]+(\S+))?\s*$", re.MULTILINE
)


def _load(file: LockFile, _: Platform) -> Table:
    try:
        document = decode_strict(file.text.encode())
    except DuplicateKeyError as error:
        raise BadInput(str(error), field=file.name) from None
    except (*DECODE_ERRORS, ValueError) as error:
        raise BadInput(f"is not valid JSON: {quote_error(error)}", field=file.name) from None
    if not isinstance(document, dict):
        raise BadInput("must be a JSON object", field=file.name)
    return document


def _load_report(file: LockFile, platform: Platform) -> Table:
    """Read a document of pip; refuse one that was written on another system or processor."""
    document = _load(file, platform)
    version = str(document.get("version", ""))
    if version.partition(".")[0] != "1":
        what = f"has version {version!r} of pip's format"
        raise BadInput(what, field=file.name, hint="use version 1")
    machine = read_nested(document, file.name, "environment", "platform_machine")
    cpu = CPU_NAMES.get(machine.lower(), machine)
    name = read_nested(document, file.name, "environment", "sys_platform")
    system = _SYSTEMS.get(name, name)
    wanted = "linux" if platform.os == "wsl" else platform.os
    if (system and system != wanted) or (cpu and cpu != platform.cpu):
        what = f"is for {system} {cpu}, the target is {platform}"
        hint = "write it on a machine like those of the target"
        raise InconclusiveInput(what, field=file.name, hint=hint)
    return document


def _described_packages(key: str, source: str, lock: TableLock) -> Iterator[ListedPackage]:
    """Yield packages by their metadata, and the files that ``source`` says they came from."""
    for entry in lock.tables(key):
        download = read_table(entry.get(source), source, lock.file)
        url = lock.text(download, "url")
        archive = read_table(download.get("archive_info"), "archive_info", lock.file)
        metadata = read_table(entry.get("metadata"), "metadata", lock.file)
        name, version = lock.text(metadata, "name"), lock.text(metadata, "version")
        if not name or not version:
            field = f"{lock.file}: metadata"
            raise BadInput("must state name and version", field=field, value=name)
        depends = map(_REQUIRED_NAME.match, list_texts(metadata.get("requires_dist")))
        yield ListedPackage(
            name,
            f"{lock.file}: {name}",
            version=version,
            sources=(url,) if url else (),
            wheels=tuple(select_wheels([{**archive, "url": url}], lock.platform)),
            depends=tuple(dict.fromkeys(match[1] for match in depends if match)),
        )


def _read_torch_report(file: LockFile, _: Platform) -> LockContents:
    """Return the installed packages; PyTorch's own version has its CUDA build.

    What the machine has is for ``--nvidia-smi``.
    """
    found: dict[str, ListedPackage] = {}
    for match in _CONDA.finditer(file.text):
        name, version, build, channel = match.groups()
        if build.startswith("pypi"):
            continue
        origin = f"{file.name}: {name}"
        found[name.lower()] = ListedPackage(
            name, origin, version, build=build, ecosystem="conda", channel=channel or ""
        )
    for name, version in _PIP.findall(file.text):
        found.setdefault(name.lower(), ListedPackage(name, f"{file.name}: {name}", version))
    torch = _TORCH.search(file.text)
    conda = "pytorch" in found or getattr(found.get("torch"), "ecosystem", "") == "conda"
    if torch and torch[1][:1].isdigit() and not conda:
        found["torch"] = ListedPackage("torch", f"{file.name}: PyTorch version", torch[1])
    return LockContents(tuple(found.values()))


def _read_python(document: Table, file: str) -> str:
    """Return the constraint on the one Python that a document names."""
    python = read_nested(document, file, "environment", "python_version")
    return f"=={python}.*" if python else ""


_read_report = partial(read_table_lock, load=_load_report, requires=_read_python)
PIP_REPORT = LockFormat(
    "pip installation report",
    partial(_read_report, packages=partial(_described_packages, "install", "download_info")),
    (_REPORT_SHAPE, _INSTALL_SHAPE),
)
PIP_INSPECTION = LockFormat(
    "pip inspect",
    partial(_read_report, packages=partial(_described_packages, "installed", "direct_url")),
    (_REPORT_SHAPE, _INSTALLED_SHAPE),
)
TORCH_REPORT = LockFormat("collect_env", _read_torch_report, (_TORCH, _BUILT))
