"""Put together the GPU packages of an image, folder or environment from their own files.

Metadata and libraries come in any order, as the members of a layer do. They are gathered here
and assembled at the end: which distribution owns which file, what the record of each package
is, and which packages belong in the stack. An extension is compared with the torch installed
in the same folder: does that torch define what the extension asks for?

Sources: PyPA specifications, "Recording installed projects" (``RECORD``, ``INSTALLER``,
``direct_url.json``); conda documentation, "conda-meta".
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.components import is_framework
from compatgate.core.facts.packages import Packages
from compatgate.core.facts.records import Library, Record
from compatgate.core.stack_facts import CONDA
from compatgate.discovery.installed_metadata import Distribution
from compatgate.discovery.lockfiles import stack_components
from compatgate.discovery.lockfiles.stack_components import is_toolkit
from compatgate.discovery.observations import Observation, is_version
from compatgate.discovery.wheels.members import group_kernels
from compatgate.discovery.wheels.names import (
    NO_TORCH_SYMBOLS,
    TorchSymbols,
    add_toolkits,
    drop_package_links,
    file_name,
    find_alternatives,
    find_torch_release,
    hash_symbol,
    is_kernel_file,
    uses_gpu_libraries,
)

_PACKAGES_WITHOUT_CODE = ("nothing", "options")
"""Packages without GPU code that a stack needs, whatever their names: their files decide."""
_REQUIRED_LIBRARIES = (
    frozenset(("libc10.so", "libtorch_cpu.so", "libtorch_python.so")),
    frozenset(("c10.dll", "torch_cpu.dll", "torch_python.dll")),
)
"""Libraries that must be readable, on Linux and Windows; a build for CUDA has more."""
_TORCH_LIBRARY = re.compile(r"lib(?:torch|c10|shm|caffe2)\w*\.so|(?:torch|c10|shm|caffe2)\w*\.dll")
_MAX_NAMED = 3
_LONGEST = 256
MAX_FILES = 100_000
"""Libraries and kernels that are gathered; past this number no file is assigned to a package."""


class InstalledFile(Struct, frozen=True):
    """A file below the root, and its GPU code; None if it could not be read, or holds nothing."""

    path: str
    origin: str
    library: Library | None = None
    unread: bool = False
    torch: TorchSymbols = NO_TORCH_SYMBOLS


class InstalledPackages(Struct, frozen=True):
    """The installed GPU packages."""

    observations: tuple[Observation, ...] = ()
    measured: dict[str, Record] = {}
    owned: dict[str, str] = {}


class _InstalledPart(Struct):
    """A package or framework, with those of its files that were read."""

    name: str
    distribution: Distribution
    files: list[InstalledFile] = []

    def as_torch(self) -> InstalledTorch | None:
        """Return the part as torch with its symbols; None for other parts and unread libraries."""
        own = [file for file in self.files if _TORCH_LIBRARY.fullmatch(file_name(file.path))]
        read = {file_name(file.path) for file in own if file.library and not file.unread}
        if self.name != "torch" or any(file.unread for file in own):
            return None
        if not any(read >= needed for needed in _REQUIRED_LIBRARIES):
            return None
        defines: frozenset[int] = frozenset().union(*(file.torch.defines for file in own))
        one = self.distribution
        return InstalledTorch(one.root, one.version.partition("+")[0], defines)


class Inventory(Struct):
    """Distributions and files that were read so far."""

    distributions: dict[str, Distribution] = {}
    files: dict[str, InstalledFile] = {}

    def distribution(self, folder: str) -> Distribution:
        """Return the distribution of a metadata folder; create it at first use."""
        return self.distributions.setdefault(folder, Distribution.at(folder))

    def add_file(self, file: InstalledFile) -> None:
        """Add a file; the first file of a path hides later ones."""
        if len(self.files) < MAX_FILES:
            self.files.setdefault(file.path, file)

    def installed(self, known: Packages, toolkits: Mapping[str, str]) -> InstalledPackages:
        """Assemble the packages from distributions and files."""
        measured: dict[str, Record] = {}
        observations: list[Observation] = []
        owned: dict[str, str] = {}
        parts = list(self._parts(known))
        torches = [torch for part in parts if (torch := part.as_torch())]
        others = frozenset[int]().union(
            *(file.torch.defines for part in parts if part.name != "torch" for file in part.files)
        )
        for part in parts:
            record = _record(part, toolkits)
            if record is not None:
                record = add_missing_symbols(
                    record, part.files, part.distribution.root, torches, others
                )
            carries = known.carries(part.name)
            holds = record is not None and bool(record.libraries or record.unread)
            without_code = carries in _PACKAGES_WITHOUT_CODE
            named = holds or (
                not without_code
                and (
                    carries is not None
                    or (record is None and known.why_named(part.name) is not None)
                )
            )
            if named and not is_framework(part.name):
                one = part.distribution
                label = f"+{CONDA}" if one.is_conda and "+" not in one.version else ""
                version = f"{one.version}{label}"
                observations.append(Observation(part.name, version, one.origin, "metadata"))
            irrelevant = is_framework(part.name) or carries is None or without_code
            if record is None or not (named or part.files) or (irrelevant and not holds):
                continue
            before = measured.setdefault(part.name, record)
            if before.version != record.version:
                continue  # another distribution decides; these files belong to no package
            paths = {library.path for library in before.libraries}
            more = tuple(library for library in record.libraries if library.path not in paths)
            measured[part.name] = replace(before, libraries=(*before.libraries, *more))
            owned.update((file.origin, part.name) for file in part.files)
        return InstalledPackages(tuple(observations), dict(sorted(measured.items())), owned)

    def owner_names(self) -> Callable[[str], str]:
        """Return a function that names the owner of a path; ``""`` where no owner is known."""
        owners = _Owners(self.distributions.values())
        return lambda path: owner.name if (owner := owners.of(path)) else ""

    def _parts(self, known: Packages) -> Iterator[_InstalledPart]:
        """Yield the packages and frameworks with their files, in reading order."""
        owners = _Owners(self.distributions.values())
        files: dict[str, list[InstalledFile]] = {}
        for file in self.files.values():
            if owner := owners.of(file.path):
                files.setdefault(owner.folder, []).append(file)
        by_python = {one.name for one in self.distributions.values() if not one.by_conda}
        for distribution in self.distributions.values():
            name = distribution.name
            if not name or (distribution.by_conda and name in by_python):
                continue  # not known, or the same package, whose own metadata says more
            # NVIDIA's libraries that are components (cuDNN, NCCL, cuBLAS) and parts of a framework
            # (jaxlib) are no packages; CUDA's own come with ``cuda`` where conda installed them.
            if resolved := stack_components.find_pypi_component(name):
                name = resolved[0].name if resolved[0].kind == "framework" else ""
            elif stack_components.belongs_to_component(name) or (
                distribution.is_conda and is_toolkit(name)
            ):
                name = ""
            if name and is_version(name, distribution.version):
                yield _InstalledPart(name, distribution, files.get(distribution.folder, []))


class _Owners:
    """Maps files to the distributions that own them.

    ``RECORD`` and conda's own lists decide; then the folder of an egg or of an editable install. A
    distribution without such a list owns the top-level folder of its name.
    """

    def __init__(self, distributions: Iterable[Distribution]) -> None:
        self._by_path: dict[str, Distribution] = {}
        self._below: dict[str, Distribution] = {}
        for one in distributions:
            for path in one.files or ():
                held = self._by_path.get(path)
                if held is None or (held.by_conda and not one.by_conda):
                    self._by_path[path] = one
            for folder in one.folders:
                self._below.setdefault(folder, one)
            if one.files is None and one.name:
                name = one.name
                stem = name.replace("-", "_")
                for module in (stem, name, f"{stem}.libs"):
                    self._below.setdefault(posixpath.join(one.root, module), one)

    def of(self, path: str) -> Distribution | None:
        if found := self._by_path.get(path):
            return found
        folder = path
        while folder:
            if found := self._below.get(folder):
                return found
            stem = folder.partition(".")[0]  # a module that is one file, flash_attn_2_cuda.so
            if folder == path and (found := self._below.get(stem)):
                return found
            folder = posixpath.dirname(folder)
        return None


def _record(part: _InstalledPart, toolkits: Mapping[str, str]) -> Record | None:
    one = part.distribution
    if not part.files and one.files != frozenset():
        return None  # no list of files, or listed files were excluded or are in unread layers
    read = [file.library for file in part.files if file.library]
    shared = [library for library in read if not is_kernel_file(library.path)]
    libraries = drop_package_links(
        shared, [library for library in shared if uses_gpu_libraries(library)]
    )
    libraries = [
        replace(
            library,
            path=_path_inside(library.path, one),
            torch=None if part.name == "torch" else library.torch,
            opens=(),
        )
        for library in [*libraries, *group_kernels(read)]
    ]
    libraries.sort(key=lambda library: library.path)
    # An unread file leaves its package open; for torch only the code matters.
    unread = [f for f in part.files if f.unread and not (part.name == "torch" and f.library)]
    version = one.version
    return Record(
        package=part.name,
        version=version,
        wheel=one.wheel,
        verified="members",
        requires=one.requires,
        libraries=add_toolkits(libraries, toolkits),
        alternatives=find_alternatives(library.path for library in libraries),
        unread=tuple(sorted(_path_inside(file.path, one) for file in unread)),
        built_for_torch=find_torch_release(one.requires, version),
    )


def _path_inside(path: str, distribution: Distribution) -> str:
    return path.removeprefix(f"{distribution.root}/") if distribution.root else path


class InstalledTorch(Struct, frozen=True):
    """An installed torch."""

    root: str
    version: str
    defines: frozenset[int]


def add_missing_symbols(
    record: Record,
    files: Iterable[InstalledFile],
    root: str,
    torches: Sequence[InstalledTorch],
    others: frozenset[int],
) -> Record:
    """Return a record with the symbols that its libraries need and the installed torch lacks.

    The torch in the same folder counts, otherwise the only one.
    """
    asked = frozenset[bytes]().union(*(file.torch.asks for file in files))
    beside = [torch for torch in torches if torch.root == root] or list(torches)
    if record.package == "torch" or not asked or len(beside) != 1:
        return record
    there = beside[0].defines | others
    missing = sorted(name for name in asked if hash_symbol(name) not in there)
    named = tuple(name[:_LONGEST].decode("ascii", "replace") for name in missing[:_MAX_NAMED])
    return replace(record, torch_beside=beside[0].version, torch_missing=named)
