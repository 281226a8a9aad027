"""Hold records of measured wheels, statements about packages that cannot be measured, and places.

The JSON form of `Record` is a contract: ``compatgate facts measure`` prints it, and the record
files below ``matrix/facts/packages/`` hold it. Absent fields mean "none", never "not read":
``unread`` names what could not be read. A place has wheels beside the package index.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct, json

from compatgate.core.facts.frameworks import Made
from compatgate.core.facts.nvidia import Pair, Source
from compatgate.core.gpu_code import Arch
from compatgate.core.performance import lazy_property


class TorchAbi(Struct, frozen=True, omit_defaults=True):
    """The symbols that an extension needs of libtorch and libc10, which have no symbol versions.

    Attributes:
        stable: it uses torch's C functions (``aoti_torch_*``, ``torch_*``) and no C++ symbol of
            torch, so that it runs with later releases, too.
        cxx11: its symbols use the new C++ ABI of libstdc++; None where nothing shows it.
        symbols: undefined C++ symbols of torch (``c10``, ``at``, ``torch``, ``caffe2``).
        digest: digest of their sorted names, to tell two builds apart.
    """

    stable: bool = False
    cxx11: bool | None = None
    symbols: int = 0
    digest: str = ""


class Library(Struct, frozen=True, omit_defaults=True, dict=True):
    """A file of a wheel that holds GPU code or links against CUDA, ROCm, torch or JAX.

    Attributes:
        path: inside the wheel; ``folder/*.cubin`` for all such files of a folder together.
        soname: name by which other objects ask for it (``DT_SONAME``); None if it has none.
        needs: sonames that the dynamic linker must find (``DT_NEEDED``), without those of the C and
            C++ runtime of the system and of libraries that the wheel brings and that do not matter.
        opens: sonames of GPU libraries that stand in its data, so that it may open them at run time
            (``dlopen``); a missing one need not fail.
        symbols: versions in the names of undefined symbols, by soname of the library that has to
            define them: ``{"libnvJitLink.so.12": ["12_4"]}`` for ``__nvJitLinkCreate_12_4``.
        defines: versions in the names of symbols that it defines itself, ascending.
        sass: translation units (fatbinaries) with machine code, by architecture.
        ptx: translation units with PTX, by architecture.
        units: translation units with code that a driver can run. Relocatable objects that were
            linked count as one.
        profiles: how many units have the same code, by that code: ``{"sm_80+compute_90": 14}``;
            empty where all units have the same code. They say how many units run on a device.
        ptx_isa: newest version of the PTX language here, as ``8.7``; None without PTX.
        ptx_cuda: toolkit that made the newest PTX, as ``12.8``: as the text records it, otherwise
            the first one with that version of the language, which a driver must be able to compile;
            None without PTX or unknown.
        torch: the torch that it was built against, by its undefined symbols.
    """

    path: str
    soname: str | None = None
    needs: tuple[str, ...] = ()
    opens: tuple[str, ...] = ()
    symbols: dict[str, tuple[str, ...]] = {}
    defines: tuple[str, ...] = ()
    sass: dict[str, int] = {}
    ptx: dict[str, int] = {}
    units: int = 0
    profiles: dict[str, int] = {}
    ptx_isa: str | None = None
    ptx_cuda: str | None = None
    torch: TorchAbi | None = None

    @lazy_property
    def carries_code(self) -> bool:
        """Tell whether any GPU code is inside."""
        return bool(self.sass or self.ptx)

    @lazy_property
    def loaded(self) -> bool:
        """Tell whether a program can load it: static libraries and objects are to be linked."""
        return not self.path.endswith((".a", ".o"))

    @lazy_property
    def system(self) -> Literal["linux", "windows", ""]:
        """Return the system whose programs load it, by its name; empty for both systems."""
        name = self.path.lower()
        if name.endswith((".dll", ".pyd")):
            return "windows"
        return "linux" if name.endswith(".so") or ".so." in name else ""

    @lazy_property
    def code_of_units(self) -> tuple[tuple[tuple[str, ...], int], ...]:
        """Return each code with the number of units that have it; one code is one item."""
        if self.profiles:
            return tuple((tuple(code.split("+")), count) for code, count in self.profiles.items())
        return (((*self.sass, *self.ptx), self.units),) if self.units else ()


class Record(Struct, frozen=True, omit_defaults=True, dict=True):
    """The measured content of one wheel.

    Attributes:
        package: normalised name, as on the package index.
        wheel: file name; its tags say the Python and platform.
        sha256: digest of the wheel, as the index states it or as read from the whole file; None
            where the wheel was read in parts and the index states none.
        verified: ``whole`` where the SHA-256 of all bytes was compared or computed; ``members``
            where each member that was read agrees with its CRC-32 and the wheel's own RECORD.
        requires: requirements (PEP 508) from its metadata.
        libraries: files with GPU code or GPU links; empty when the wheel carries nothing.
        alternatives: groups of paths of which the package loads one.
        kernel_sources: files of CUDA source that it brings (``.cu``, ``.cuh``).
        unread: members with names or content for GPUs that could not be read (Windows libraries);
            their content is not known.
        built_for_torch: torch release that its metadata or file name say it was built for, as
            ``2.9``; None where neither says it.
        torch_beside: torch release installed in the same place, whose libraries were searched for
            the symbols that this package needs; None for wheels, and where torch was unreadable.
        torch_missing: some of the symbols that this torch does not define.
        skipped: libraries that the question did not need and that were not read; a catalog's record
            has none.
        source: where it was read, for people; the digest is the proof.
    """

    package: str
    version: str
    wheel: str
    sha256: str | None = None
    verified: Literal["whole", "members"] = "whole"
    requires: tuple[str, ...] = ()
    requires_python: str | None = None
    libraries: tuple[Library, ...] = ()
    alternatives: tuple[tuple[str, ...], ...] = ()
    kernel_sources: int = 0
    unread: tuple[str, ...] = ()
    built_for_torch: str | None = None
    torch_beside: str | None = None
    torch_missing: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    source: str = ""

    @lazy_property
    def memory(self) -> dict[Any, Any]:
        """Return the cache for values that are derived from the record alone."""
        return {}

    def to_json(self) -> dict[str, Any]:
        """Return the record for printing; the fields of the contract are there even when empty."""
        document: dict[str, Any] = json.decode(json.encode(self))
        libraries = [
            _REQUIRED_LIBRARY_FIELDS | library for library in document.pop("libraries", ())
        ]
        return _REQUIRED_FIELDS | document | {"libraries": libraries}

    def to_stack(self) -> dict[str, Any]:
        """Return the record as a stack carries it, below the name of its package."""
        document: dict[str, Any] = json.decode(json.encode(self))
        return {k: v for k, v in document.items() if k not in STACK_FIELDS and v != ""}


STACK_FIELDS = ("package", "version", "source", "verified")
"""Fields that a record in a stack leaves out: the stack states them, or they prove nothing."""

_REQUIRED_FIELDS: dict[str, Any] = {
    "package": "",
    "version": "",
    "wheel": "",
    "sha256": None,
    "requires": [],
    "requires_python": None,
    "libraries": [],
    "alternatives": [],
}
_REQUIRED_LIBRARY_FIELDS: dict[str, Any] = {"path": "", "needs": [], "sass": {}, "ptx": {}}


class BuildList(Struct, frozen=True):
    """GPU code that a build script makes.

    Attributes:
        code: GPU code of every file that it compiles.
        cuda: toolkits with which it makes this code (PEP 440); None for each that can build it.
    """

    code: tuple[Arch, ...]
    cuda: str | None = None


class ProjectWheels(Struct, frozen=True):
    """GPU code of the wheels that a project builds.

    Attributes:
        labels: version labels of the wheels, ``cu118`` or ``cu12torch2.8cxx11abiTRUE``; ``none``:
            the wheel without a label.
        code: GPU code that its build script makes.
        cpu: processor of the wheels; None for every processor.
        os: systems of the wheels.
        cuda: toolkit that builds them; None where the label says it.
        torch: the torch that they are built for, where it is one.
        pythons: Python versions with wheels; empty where they are not known.
        new_abi: whether they have the new C++ ABI whatever their labels say; None: as these say.
        own_cuda: they bring their CUDA libraries, as programs and images do.
    """

    labels: tuple[str, ...]
    code: tuple[Arch, ...]
    cpu: Literal["x86_64", "aarch64"] | None = None
    pythons: tuple[str, ...] = ()
    new_abi: bool | None = None
    os: tuple[Literal["linux", "windows"], ...] = ("linux",)
    cuda: Pair | None = None
    torch: str | None = None
    own_cuda: bool = False


class Statement(Struct, frozen=True, omit_defaults=True):
    """A statement of sources, build scripts or documentation about releases.

    It denies what it excludes, and proves nothing: the builder of a package decides its content.
    For wheels that the project itself builds and labels, the project's build script decides.

    Attributes:
        versions: releases that it concerns (PEP 440).
        compiled: ``install`` where its GPU code is compiled when it is built or installed, ``run``
            where it compiles for the GPU that it finds, ``shipped`` where it brings code for all
            GPUs from ``least_capability`` to ``last_capability``, ``nothing`` where it has no GPU
            code of its own; None where nothing is stated.
        says: quotation about the GPUs, for messages.
        least_capability: lowest compute capability that it runs on.
        last_capability: highest compute capability that it runs on; None where none is named.
        builds: what its build script compiles, unless the builder chooses.
        fixed: the build script takes no other list of architectures.
        requires: requirements (PEP 508) that the source states, also on ``cuda`` and ``cudnn``.
        torch_wheels: torch releases for which the project publishes wheels of its own.
        wheels: GPU code that the project's build script puts into the wheels of its own index.
        makes: what it gives to the driver where it compiles for the GPU that it finds: machine code
            (``cubin``), which an older driver of the toolkit's major takes, or ``ptx``, which needs
            a driver of the toolkit; None where nothing is stated.
        unless: packages with which it makes machine code in the place of PTX.
        cuda: CUDA, or its major, that its wheels on the package index are built for.
        opens: libraries of CUDA that it opens by name and cannot work without, ``cublas``.
        toolkits: CUDAs that a channel of conda builds it for, ascending: the solver takes the
            newest that the driver supports.
        systems: systems that it is published for, ``linux`` for WSL; empty where none is stated.
        brings: parts of a stack that its own installer or image brings, by name: the versions for
            each CUDA that the project offers, the usual one first.
    """

    versions: str
    compiled: Literal["install", "run", "shipped", "nothing"] | None
    source: Source
    says: str = ""
    least_capability: Pair | None = None
    last_capability: Pair | None = None
    builds: tuple[BuildList, ...] = ()
    fixed: bool = False
    requires: tuple[str, ...] = ()
    torch_wheels: tuple[str, ...] = ()
    wheels: tuple[ProjectWheels, ...] = ()
    makes: Made | None = None
    unless: tuple[str, ...] = ()
    cuda: str = ""
    opens: tuple[str, ...] = ()
    toolkits: tuple[Pair, ...] = ()
    systems: tuple[Literal["linux", "windows"], ...] = ()
    brings: dict[str, tuple[str, ...]] = {}


class PackageRecords(Struct, frozen=True):
    """Table ``packages/<name>``: the records of one package, newest release first."""

    records: tuple[Record, ...] = ()
    statements: tuple[Statement, ...] = ()


class WheelPlace(Struct, frozen=True):
    """A place of the wheels of some packages; texts in braces are filled in.

    ``{package}`` is the name as on an index, ``{name}`` as in file names, ``{version}`` without its
    label, ``{label}`` the label; groups of ``labels`` have their names. ``{py}`` (``311``) and
    ``{cpu}`` are of the platform.

    Attributes:
        kind: ``index`` (PEP 503, without the package), ``page`` (a page that links the wheels) or
            ``file`` (the folder of the file; ``files`` are its names).
        labels: regular expression of the whole label; empty: wheels without one.
        files: names of the wheel that were seen, for ``file``; a name with ``win`` is for Windows.
        hosts: hosts that its links and redirects may lead to, with that of ``url``.
    """

    name: str
    packages: tuple[str, ...]
    kind: Literal["index", "page", "file"]
    url: str
    source: Source
    labels: str = ""
    files: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


class FoundPlace(Struct, frozen=True):
    """A place with its address for one release.

    Attributes:
        fields: values of the texts in braces, but for those of the platform.
    """

    place: WheelPlace
    url: str
    fields: dict[str, str]


class WheelPlaces(Struct, frozen=True):
    """Table ``wheel_places``."""

    places: tuple[WheelPlace, ...]

    def find(self, package: str, version: str) -> Iterator[FoundPlace]:
        """Yield the places of a release, ``torch`` and ``2.4.1+cu118``."""
        public, _, label = version.partition("+")
        for place in self.places:
            match = re.fullmatch(place.labels, label)
            if package not in place.packages or match is None:
                continue
            fields = {name: text or "" for name, text in match.groupdict().items()}
            if torch := fields.get("torch"):  # 28 and 2.8 are one
                fields["torch"] = torch if "." in torch else f"{torch[0]}.{torch[1:]}"
            fields |= {"package": package, "name": package.replace("-", "_")}
            fields |= {"version": public, "label": label}
            yield FoundPlace(place, place.url.format_map(fields), fields)
