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
    """The symbols that an extension needs of libtorch and libc10, which have no symbol versions."""

    # it uses torch's C functions (``aoti_torch_*``, ``torch_*``) and no C++ symbol of torch, so
    # that it runs with later releases, too
    stable: bool = False
    # its symbols use the new C++ ABI of libstdc++; None where nothing shows it
    cxx11: bool | None = None
    symbols: int = 0  # undefined C++ symbols of torch (``c10``, ``at``, ``torch``, ``caffe2``)
    digest: str = ""  # digest of their sorted names, to tell two builds apart


class Library(Struct, frozen=True, omit_defaults=True, dict=True):
    """A file of a wheel that holds GPU code or links against CUDA, ROCm, torch or JAX."""

    path: str  # inside the wheel; ``folder/*.cubin`` for all such files of a folder together
    # name by which other objects ask for it (``DT_SONAME``); None if it has none
    soname: str | None = None
    # sonames that the dynamic linker must find (``DT_NEEDED``), without those of the C and C++
    # runtime of the system and of libraries that the wheel brings and that do not matter
    needs: tuple[str, ...] = ()
    # sonames of GPU libraries that stand in its data, so that it may open them at run time
    # (``dlopen``); a missing one need not fail
    opens: tuple[str, ...] = ()
    # versions in the names of undefined symbols, by soname of the library that has to define them:
    # ``{"libnvJitLink.so.12": ["12_4"]}`` for ``__nvJitLinkCreate_12_4``
    symbols: dict[str, tuple[str, ...]] = {}
    # versions in the names of symbols that it defines itself, ascending
    defines: tuple[str, ...] = ()
    sass: dict[str, int] = {}  # translation units (fatbinaries) with machine code, by architecture
    ptx: dict[str, int] = {}  # translation units with PTX, by architecture
    # translation units with code that a driver can run. Relocatable objects that were linked count
    # as one.
    units: int = 0
    # how many units have the same code, by that code: ``{"sm_80+compute_90": 14}``; empty where all
    # units have the same code. They say how many units run on a device.
    profiles: dict[str, int] = {}
    # newest version of the PTX language here, as ``8.7``; None without PTX
    ptx_isa: str | None = None
    # toolkit that made the newest PTX, as ``12.8``: as the text records it, otherwise the first one
    # with that version of the language, which a driver must be able to compile; None without PTX or
    # unknown
    ptx_cuda: str | None = None
    torch: TorchAbi | None = None  # the torch that it was built against, by its undefined symbols

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
    """The measured content of one wheel."""

    package: str  # normalised name, as on the package index
    version: str
    wheel: str  # file name; its tags say the Python and platform
    # digest of the wheel, as the index states it or as read from the whole file; None where the
    # wheel was read in parts and the index states none
    sha256: str | None = None
    # ``whole`` where the SHA-256 of all bytes was compared or computed; ``members`` where each
    # member that was read agrees with its CRC-32 and the wheel's own RECORD
    verified: Literal["whole", "members"] = "whole"
    requires: tuple[str, ...] = ()  # requirements (PEP 508) from its metadata
    requires_python: str | None = None
    # files with GPU code or GPU links; empty when the wheel carries nothing
    libraries: tuple[Library, ...] = ()
    alternatives: tuple[tuple[str, ...], ...] = ()  # groups of paths of which the package loads one
    kernel_sources: int = 0  # files of CUDA source that it brings (``.cu``, ``.cuh``)
    # members with names or content for GPUs that could not be read (Windows libraries); their
    # content is not known
    unread: tuple[str, ...] = ()
    # torch release that its metadata or file name say it was built for, as ``2.9``; None where
    # neither says it
    built_for_torch: str | None = None
    # torch release installed in the same place, whose libraries were searched for the symbols that
    # this package needs; None for wheels, and where torch was unreadable
    torch_beside: str | None = None
    torch_missing: tuple[str, ...] = ()  # some of the symbols that this torch does not define
    # libraries that the question did not need and that were not read; a catalog's record has none
    skipped: tuple[str, ...] = ()
    source: str = ""  # where it was read, for people; the digest is the proof

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
    """GPU code that a build script makes."""

    code: tuple[Arch, ...]  # GPU code of every file that it compiles
    # toolkits with which it makes this code (PEP 440); None for each that can build it
    cuda: str | None = None


class ProjectWheels(Struct, frozen=True):
    """GPU code of the wheels that a project builds."""

    # version labels of the wheels, ``cu118`` or ``cu12torch2.8cxx11abiTRUE``; ``none``: the wheel
    # without a label
    labels: tuple[str, ...]
    code: tuple[Arch, ...]  # GPU code that its build script makes
    # processor of the wheels; None for every processor
    cpu: Literal["x86_64", "aarch64"] | None = None
    pythons: tuple[str, ...] = ()  # Python versions with wheels; empty where they are not known
    # whether they have the new C++ ABI whatever their labels say; None: as these say
    new_abi: bool | None = None
    os: tuple[Literal["linux", "windows"], ...] = ("linux",)  # systems of the wheels
    cuda: Pair | None = None  # toolkit that builds them; None where the label says it
    torch: str | None = None  # the torch that they are built for, where it is one
    own_cuda: bool = False  # they bring their CUDA libraries, as programs and images do


class Statement(Struct, frozen=True, omit_defaults=True):
    """A statement of sources, build scripts or documentation about releases.

    It denies what it excludes, and proves nothing: the builder of a package decides its content.
    For wheels that the project itself builds and labels, the project's build script decides.
    """

    versions: str  # releases that it concerns (PEP 440)
    # ``install`` where its GPU code is compiled when it is built or installed, ``run`` where it
    # compiles for the GPU that it finds, ``shipped`` where it brings code for all GPUs from
    # ``least_capability`` to ``last_capability``, ``nothing`` where it has no GPU code of its own;
    # None where nothing is stated
    compiled: Literal["install", "run", "shipped", "nothing"] | None
    source: Source
    says: str = ""  # quotation about the GPUs, for messages
    least_capability: Pair | None = None  # lowest compute capability that it runs on
    # highest compute capability that it runs on; None where none is named
    last_capability: Pair | None = None
    builds: tuple[BuildList, ...] = ()  # what its build script compiles, unless the builder chooses
    fixed: bool = False  # the build script takes no other list of architectures
    # requirements (PEP 508) that the source states, also on ``cuda`` and ``cudnn``
    requires: tuple[str, ...] = ()
    # torch releases for which the project publishes wheels of its own
    torch_wheels: tuple[str, ...] = ()
    # GPU code that the project's build script puts into the wheels of its own index
    wheels: tuple[ProjectWheels, ...] = ()
    # what it gives to the driver where it compiles for the GPU that it finds: machine code
    # (``cubin``), which an older driver of the toolkit's major takes, or ``ptx``, which needs a
    # driver of the toolkit; None where nothing is stated
    makes: Made | None = None
    unless: tuple[str, ...] = ()  # packages with which it makes machine code in the place of PTX
    cuda: str = ""  # CUDA, or its major, that its wheels on the package index are built for
    # libraries of CUDA that it opens by name and cannot work without, ``cublas``
    opens: tuple[str, ...] = ()
    # CUDAs that a channel of conda builds it for, ascending: the solver takes the newest that the
    # driver supports
    toolkits: tuple[Pair, ...] = ()
    # systems that it is published for, ``linux`` for WSL; empty where none is stated
    systems: tuple[Literal["linux", "windows"], ...] = ()
    # parts of a stack that its own installer or image brings, by name: the versions for each CUDA
    # that the project offers, the usual one first
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
    """

    name: str
    packages: tuple[str, ...]
    # ``index`` (PEP 503, without the package), ``page`` (a page that links the wheels) or ``file``
    # (the folder of the file; ``files`` are its names)
    kind: Literal["index", "page", "file"]
    url: str
    source: Source
    labels: str = ""  # regular expression of the whole label; empty: wheels without one
    # names of the wheel that were seen, for ``file``; a name with ``win`` is for Windows
    files: tuple[str, ...] = ()
    # hosts that its links and redirects may lead to, with that of ``url``
    hosts: tuple[str, ...] = ()


class FoundPlace(Struct, frozen=True):
    """A place with its address for one release."""

    place: WheelPlace
    url: str
    fields: dict[str, str]  # values of the texts in braces, but for those of the platform


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
