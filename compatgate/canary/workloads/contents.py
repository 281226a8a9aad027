"""Collect a workload's files, for its digest and its container, and read its Dockerfile."""

from __future__ import annotations

import hashlib
import io
import os
import re
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
MAX_FILES = 2000
MAX_BYTES = 256 << 20
_PAGE = "README.md"


class PackedFile(Struct, frozen=True):
    """A file of a workload."""

    path: str
    executable: bool
    content: bytes


def list_files(folder: Path) -> list[PackedFile]:
    """Return a folder's files by path, without samples, caches and hidden files."""
    results: list[PackedFile] = []
    size = 0
    for current, folders, names in os.walk(folder):
        left_out = {"__pycache__"} | ({SAMPLES} if current == str(folder) else set())
        folders[:] = sorted(n for n in folders if n not in left_out and not n.startswith("."))
        links = [name for name in folders if (Path(current) / name).is_symlink()]
        for name in sorted([*names, *links]):
            if name.startswith("."):
                continue
            results.append(_pack_file(folder, Path(current) / name))
            size += len(results[-1].content)
            if len(results) > MAX_FILES or size > MAX_BYTES:
                raise BadInput(
                    f"{folder} is too large for a workload",
                    field=folder.name,
                    hint="use at most 2,000 files and 256 MiB; put larger data into the image",
                )
    return results


def compute_digest(folder: Path) -> str:
    """Return ``sha256:...`` of the folder's files without its page, and of shared modules used.

    A shared module counts if a file names it. A change of the timing module changes a measurement;
    a change of a module that only other workloads use does not.
    """
    own = [file for file in list_files(folder) if file.path != _PAGE]
    whole = hashlib.sha256()
    for file in [*own, *_find_used_modules(own)]:
        one = hashlib.sha256(file.content).hexdigest()
        whole.update(f"{file.path}\0{int(file.executable)}\0{one}\n".encode())
    return f"sha256:{whole.hexdigest()}"


def _find_used_modules(own: Sequence[PackedFile]) -> list[PackedFile]:
    """Return the shared modules that files name, directly or through other modules."""
    left = [(PurePosixPath(file.path).stem.encode(), file) for file in list_shared_modules()]
    results: list[PackedFile] = []
    naming = list(own)
    while naming:
        text = naming.pop().content
        results += (more := [file for name, file in left if name in text])
        left = [(name, file) for name, file in left if name not in text]
        naming += more
    return sorted(results, key=lambda file: file.path)


_HARNESS = f"{LIBRARY}/canary_lines.py"
_TORCH = re.compile(rb"\bcanary_env\.torch\(")


def find_proofs(folder: Path) -> tuple[str, ...]:
    """Return what must answer a worker's challenge when a folder's program runs.

    ``python`` if the program uses the shared ``canary_lines``, and ``torch`` if it also starts
    PyTorch by `canary_env`; () if it prints its lines by itself, or by a module of its own.
    """
    own = [file for file in list_files(folder) if file.path != _PAGE]
    used = {file.path for file in _find_used_modules(own)} - {file.path for file in own}
    if _HARNESS not in used:
        return ()
    on_torch = any(_TORCH.search(file.content) for file in own if file.path.endswith(".py"))
    return ("python", "torch") if on_torch else ("python",)


def list_container_files(workload: Workload) -> list[PackedFile]:
    """Return the files of `compatgate.canary.workload.FOLDER`: the folder, and the shared modules.

    A module of the same name in the folder takes precedence.
    """
    own = list_files(workload.folder) if workload.folder else []
    taken = {file.path for file in own}
    return own + [file for file in list_shared_modules() if file.path not in taken]


def write_files(workload: Workload, folder: Path) -> None:
    """Write the files of `list_container_files` below a folder."""
    folder.mkdir(exist_ok=True)
    for file in list_container_files(workload):
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(0o755 if file.executable else 0o644)


def list_shared_modules() -> Iterator[PackedFile]:
    """Yield the modules that any workload may import from ``lib``."""
    folder = canary_dir() / LIBRARY
    for path in sorted(folder.glob("*.py")):
        yield PackedFile(f"{LIBRARY}/{path.name}", False, path.read_bytes())
    # Programs outside containers use the same file, so it stays in the package.
    loaded = package_dir() / "diagnostics" / "loaded.py"
    if loaded.exists():
        yield PackedFile(f"{LIBRARY}/{loaded.name}", False, loaded.read_bytes())


def make_archive(files: list[PackedFile]) -> bytes:
    """Return an uncompressed, reproducible tar of the files, readable for everybody."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        parents = [file.path.split("/")[:-1] for file in files]
        folders = {"/".join(parts[: n + 1]) for parts in parents for n in range(len(parts))}
        for folder in sorted(folders):
            member = tarfile.TarInfo(folder)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(member)
        for file in files:
            member = tarfile.TarInfo(file.path)
            member.mode = 0o755 if file.executable else 0o644
            member.size = len(file.content)
            tar.addfile(member, io.BytesIO(file.content))
    return buffer.getvalue()


def _pack_file(folder: Path, path: Path) -> PackedFile:
    relative = path.relative_to(folder).as_posix()
    if path.is_symlink() or not path.is_file():
        raise BadInput(
            f"{path} is not a plain file",
            field=relative,
            hint="links and devices are not copied into a container; use a regular file",
        )
    try:
        executable = bool(path.stat().st_mode & 0o100)
        return PackedFile(relative, executable, path.read_bytes())
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}", field=relative) from None


BASE_ARGUMENT = "BASE"
"""Argument that once named the image under test; nothing is built on that image."""
_ARG = re.compile(r"^\s*ARG\s+(.+)$", re.IGNORECASE | re.MULTILINE)
_FROM = re.compile(
    r"^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE | re.MULTILINE
)
_ADD = re.compile(r"^\s*ADD\s(.*)$", re.IGNORECASE | re.MULTILINE)
_SOURCE = re.compile(r"(?:[a-z]+://|git@)[^\s\"',\]]+", re.IGNORECASE)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))")


def find_arguments(text: str) -> dict[str, str | None]:
    """Return the build arguments with their defaults; None if there is no default."""
    results: dict[str, str | None] = {}
    for line in _ARG.findall(text):
        for part in line.split():
            name, equals, default = part.partition("=")
            results.setdefault(name, default.strip("\"'") if equals else None)
    return results


def find_base_images(text: str) -> list[str]:
    """Return the base images of the stages, with arguments replaced by their defaults.

    Leave out stages of the file itself, ``scratch``, and images that only an argument without a
    default names.
    """
    stages = {"scratch"}
    results: list[str] = []
    for named, stage in _find_stages(text):
        if named and named.lower() not in stages and named not in results:
            results.append(named)
        if stage:
            stages.add(stage.lower())
    return results


def find_downloads(text: str) -> list[str]:
    """Return the addresses that ``ADD`` fetches, for which the engine always has a network."""
    joined = re.sub(r"\\\r?\n", " ", text)
    return [source for line in _ADD.findall(joined) for source in _SOURCE.findall(line)]


def is_self_contained(text: str) -> bool:
    """Return whether the file itself names the base image of each stage.

    It does not if only an argument without a default would name an image.
    """
    return all(named for named, _ in _find_stages(text))


def _find_stages(text: str) -> Iterator[tuple[str, str]]:
    """Yield the base image of each stage, "" if it is not named, and the stage's name."""
    known = find_arguments(text)
    for image, stage in _FROM.findall(text):
        yield _VARIABLE.sub(lambda m: known.get(m[1] or m[3]) or m[2] or "", image), stage


def has_own_image(workload: Workload) -> bool:
    """Return whether the workload names an image, or its ``Dockerfile`` names its base image.

    A folder without a readable ``Dockerfile`` is another mistake, and counts as one that does.
    """
    own = workload.image
    if own.reference:
        return True
    if own.context is None:
        return False
    if workload.folder is None:
        return True
    try:
        text = (workload.folder / own.context / "Dockerfile").read_text(errors="replace")
    except OSError:
        return True
    return is_self_contained(text)
