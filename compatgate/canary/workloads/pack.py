"""Collect a workload's files: those in its digest, and those copied into its container."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from msgspec import Struct

from compatgate.canary.workload import Workload
from compatgate.errors import BadInput
from compatgate.resources import canary_dir, package_dir

LIBRARY = "lib"
"""Folder of the shared modules, next to the programs."""
SAMPLES = "samples"
"""Folder of earlier measurements; not part of the program."""
MOST_FILES = 2000
MOST_BYTES = 256 << 20
_PAGE = "README.md"


class Packed(Struct, frozen=True):
    """A file of a workload.

    Attributes:
        path: relative, with ``/``.
        executable: its owner may execute it.
        content: its bytes.
    """

    path: str
    executable: bool
    content: bytes


def files_of(folder: Path) -> list[Packed]:
    """Return a folder's files by path, without samples, caches and hidden files.

    Raises:
        BadInput: a link or another special file, or too many files.
    """
    found: list[Packed] = []
    size = 0
    for path in _walk(folder):
        found.append(_packed(folder, path))
        size += len(found[-1].content)
        if len(found) > MOST_FILES or size > MOST_BYTES:
            raise BadInput(
                f"{folder} is too large for a workload",
                field=folder.name,
                hint="use at most 2,000 files and 256 MiB; put larger data into the image",
            )
    return found


def digest_of(folder: Path) -> str:
    """Return ``sha256:...`` of the folder's files without its page, and of shared modules used.

    A shared module counts if a file names it. A change of the timing module changes a measurement;
    a change of a module that only other workloads use does not.

    Raises:
        BadInput: a link or another special file, or too many files.
    """
    own = [file for file in files_of(folder) if file.path != _PAGE]
    whole = hashlib.sha256()
    for file in [*own, *_shared_by(own)]:
        one = hashlib.sha256(file.content).hexdigest()
        whole.update(f"{file.path}\0{int(file.executable)}\0{one}\n".encode())
    return f"sha256:{whole.hexdigest()}"


def _shared_by(own: Sequence[Packed]) -> list[Packed]:
    """Return the shared modules that files name, directly or through other modules."""
    left = {file.path: file for file in shared_modules()}
    found: list[Packed] = []
    naming = list(own)
    while naming:
        text = naming.pop().content
        named = [path for path in left if PurePosixPath(path).stem.encode() in text]
        found += (more := [left.pop(path) for path in named])
        naming += more
    return sorted(found, key=lambda file: file.path)


def container_files(workload: Workload) -> list[Packed]:
    """Return the files of `compatgate.canary.workload.FOLDER`: the folder, and the shared modules.

    A module of the same name in the folder takes precedence.
    """
    own = files_of(workload.folder) if workload.folder else []
    taken = {file.path for file in own}
    return own + [file for file in shared_modules() if file.path not in taken]


def shared_modules() -> Iterator[Packed]:
    """Yield the modules that any workload may import from ``lib``."""
    folder = canary_dir() / LIBRARY
    for path in sorted(folder.glob("*.py")):
        yield Packed(f"{LIBRARY}/{path.name}", False, path.read_bytes())
    # Programs outside containers use the same file, so it stays in the package.
    loaded = package_dir() / "diagnostics" / "loaded.py"
    if loaded.exists():
        yield Packed(f"{LIBRARY}/{loaded.name}", False, loaded.read_bytes())


def archive(files: list[Packed]) -> bytes:
    """Return an uncompressed, reproducible tar of the files, readable for everybody."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for folder in _folders(files):
            member = tarfile.TarInfo(folder)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(member)
        for file in files:
            member = tarfile.TarInfo(file.path)
            member.mode = 0o755 if file.executable else 0o644
            member.size = len(file.content)
            tar.addfile(member, io.BytesIO(file.content))
    return buffer.getvalue()


def _folders(files: list[Packed]) -> list[str]:
    found: set[str] = set()
    for file in files:
        parts = file.path.split("/")[:-1]
        found |= {"/".join(parts[: depth + 1]) for depth in range(len(parts))}
    return sorted(found)


def _walk(folder: Path) -> Iterator[Path]:
    for current, folders, names in os.walk(folder):
        left_out = {"__pycache__"} | ({SAMPLES} if current == str(folder) else set())
        folders[:] = sorted(n for n in folders if n not in left_out and not n.startswith("."))
        for name in sorted([*names, *(n for n in folders if (Path(current) / n).is_symlink())]):
            if not name.startswith("."):
                yield Path(current) / name


def _packed(folder: Path, path: Path) -> Packed:
    relative = path.relative_to(folder).as_posix()
    if path.is_symlink() or not path.is_file():
        raise BadInput(
            f"{path} is not a plain file",
            field=relative,
            hint="links and devices are not copied into a container; use a regular copy",
        )
    try:
        executable = bool(path.stat().st_mode & 0o100)
        return Packed(relative, executable, path.read_bytes())
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}", field=relative) from None
