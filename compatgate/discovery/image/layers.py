"""Reads layers from the top down, each as a stream, and takes from them what tells something."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts.records import Library
from compatgate.discovery.gpucode import GpuCode, read_gpu_code
from compatgate.discovery.gpucode.source import Readable
from compatgate.discovery.image import files
from compatgate.discovery.image.deadline import Deadline
from compatgate.discovery.image.feed import Content, Member
from compatgate.discovery.image.layer import Blobs, Layer, opened
from compatgate.discovery.image.options import ImageOptions
from compatgate.discovery.image.problems import too_large
from compatgate.discovery.image.seen import Seen, Witness
from compatgate.discovery.image.stream import Budget
from compatgate.discovery.image.tar import members
from compatgate.discovery.image.visibility import Visibility
from compatgate.discovery.image.wanted import Kind, is_cached, owner, wanted
from compatgate.discovery.installed import File
from compatgate.discovery.installed_metadata import LARGEST, LARGEST_LIST, LISTS, of_conda, trimmed
from compatgate.discovery.libraries import major_observation
from compatgate.discovery.signals import Signals
from compatgate.discovery.stack import CodeFile
from compatgate.discovery.wheels.kept import Missed
from compatgate.discovery.wheels.kernels import of_code
from compatgate.discovery.wheels.library import Opener, read_library
from compatgate.discovery.wheels.torch_symbols import NONE, TorchSymbols
from compatgate.errors import BadInput

_ELF = b"\x7fELF"
_LIBRARY_HELP = "the names of its libraries were read"


class Scan:
    """One image's layers.

    Attributes:
        seen: what they tell.
        count: layers that were begun.
        verified: every layer that was begun was read to its end and is what its digest says.
    """

    def __init__(self, signals: Signals, options: ImageOptions, deadline: Deadline) -> None:
        self.seen = Seen()
        self.count = 0
        self.verified = True
        self._signals = signals
        self._options = options
        self._deadline = deadline
        self._budget = Budget(options.limits, self._check)
        self._visibility = Visibility(options.limits)
        self._members = 0
        self._wanted = 0
        self._linked: dict[str, _Code] = {}  # code of this layer's files, for links
        self._texts: dict[str, bytes] = {}  # metadata in caches, likewise

    def read(self, layers: Sequence[Layer], registry: Blobs) -> None:
        """Read layers, the highest first, until what is needed has been seen.

        Raises:
            CompatgateError: as reading a blob does, or a layer is no tar archive or too large.
        """
        if len(layers) > self._options.limits.layers:
            raise too_large(f"the image has {len(layers)} layers")
        for layer in layers:
            if self._has_all():
                return
            self.count += 1
            self._read_layer(layer, registry)
            self._visibility.next_layer()
            if self._visibility.full:
                self.seen.note(
                    f"{layer.name} has so many files that not all are remembered; some below may "
                    "count that it replaces"
                )
            self._linked.clear()
            self._texts.clear()

    def _read_layer(self, layer: Layer, registry: Blobs) -> None:
        with opened(layer, registry, self._budget) as (blob, feed):
            with layer.named():
                for member, content in members(feed):
                    self._take(layer, member, content)
                    if self._has_all():
                        self.verified = False
                        self.seen.note(
                            f"{layer.name} was read up to byte {blob.position} of "
                            f"{layer.descriptor.size}, where everything needed had been seen; "
                            "its digest was not checked"
                        )
                        return
                feed.drain()
            blob.drain()

    def _has_all(self) -> bool:
        needs = self._options.needs
        return bool(needs) and self.seen.components().issuperset(needs)

    def _check(self) -> None:
        self._deadline.check("reading the image")

    def _take(self, layer: Layer, member: Member, content: Content) -> None:
        self._members += 1
        if self._members > self._options.limits.members:
            raise too_large(f"the image has more than {self._members - 1} files")
        if self._visibility.whiteout(member.path):
            return
        kind = wanted(member)
        self._visibility.take(member, wanted=kind is not None)
        if kind is not None and self._visibility.visible(member.path):
            self._wanted += 1
            if self._wanted > self._options.limits.wanted:
                raise too_large(f"the image has more than {self._wanted - 1} files of interest")
            _READERS[kind](self, kind, member, content, f"{layer.name}: {member.path}")

    def _distribution(self, _: Kind, member: Member, content: Content, origin: str) -> None:
        file = member.path.rpartition("/")[2]
        data = content.read_all(LARGEST_LIST if file in LISTS else LARGEST)
        if is_cached(member.path):  # an installed file may be a hard link to it
            self._texts[member.path] = trimmed(file, data or b"")
            return
        data = data or self._texts.get(member.link)
        folder = member.path.rpartition("/")[0]
        one = self.seen.inventory.distribution(folder)
        if data:
            one.take(file, data, origin)
        if file not in ("METADATA", "PKG-INFO"):
            return
        if not one.name and (named := files.named_by_folder(folder)):
            one.identify(*named, origin)
        if not one.name:
            return
        found = files.of_distribution(one.name, one.version, origin)
        self.seen.add_distribution(one.name, member.path)
        self.seen.add(Witness.WHEEL, found)
        self.seen.add(Witness.LABEL, files.cuda_label(found))

    def _torch(self, _: Kind, member: Member, content: Content, origin: str) -> None:
        if not is_cached(member.path):
            self.seen.add(Witness.FRAMEWORK, files.torch_version(content, origin))

    def _conda(self, _: Kind, member: Member, content: Content, origin: str) -> None:
        if not is_cached(member.path):
            found = files.conda_package(member.path, origin, self._signals)
            self.seen.add(Witness.CONDA, found)
            record = of_conda(member.path, content.read_all(LARGEST_LIST) or b"", origin)
            if record:
                self.seen.inventory.distributions[member.path] = record

    def _library(self, _: Kind, member: Member, content: Content, origin: str) -> None:
        if is_cached(member.path):
            return
        found = files.library(member.path, origin)
        self.seen.add(Witness.LIBRARY, [found])
        if found is None and (major := major_observation(member.path)):
            self.seen.majors.append(replace(major, origin=origin))

    def _toolkit(self, _: Kind, member: Member, content: Content, origin: str) -> None:
        self.seen.add(Witness.TOOLKIT, [files.toolkit(member.path, content, origin)])

    def _library_path(self, _: Kind, member: Member, content: Content, origin: str) -> None:
        self.seen.add(Witness.LIBRARY, files.library_path(content, origin))

    def _packages(self, kind: Kind, member: Member, content: Content, origin: str) -> None:
        try:
            found, left = files.packages(kind, content, origin, self._signals, self._check)
        except ValueError as error:
            self.seen.note(f"the package database {origin} was not read: {error}; {_LIBRARY_HELP}")
        else:
            self.seen.add(Witness.PACKAGE, found)
            for sentence in left:
                self.seen.note(sentence)

    def _package_log(self, _: Kind, member: Member, content: Content, origin: str) -> None:
        if content.left:  # rpm empties it when it closes the database
            self.seen.note(
                f"{origin} holds changes of the package database, which were not read; "
                f"{_LIBRARY_HELP}"
            )

    def _code(self, kind: Kind, member: Member, content: Content, origin: str) -> None:
        if member.kind == "hardlink":
            known = self._linked.get(member.link)
        else:
            known = self._read_code(kind, member.path, content, origin)
            if known:
                self._linked[member.path] = known
        if known is None or is_cached(member.path):
            return
        if known.why:
            self.seen.unread.append((origin, known.why))
        library = known.library and replace(known.library, path=member.path)
        self.seen.inventory.add_file(File(member.path, origin, library, known.unread, known.torch))
        if known.code.arch or known.code.linked:
            code = replace(known.code, origin=origin, owner=owner(member.path))
            self.seen.codes.append(code)

    def _read_code(self, kind: Kind, path: str, content: Content, origin: str) -> _Code | None:
        """Read a library, program or kernel in one pass; None for what is none of them."""
        size = content.left
        head = content.read(min(len(_ELF), size))
        if head != _ELF and kind != "kernel":
            return None
        begun = _Begun(head, content)
        try:
            if kind == "kernel" or ".so" not in path.rpartition("/")[2]:
                code = read_gpu_code(begun, size=size, name=origin)
                library = of_code(path, code) if kind == "kernel" else None
                return _Code(CodeFile.of(origin, "", code), library)
            reading = read_library(path, size, _once(begun), origin, named_only=True)
        except BadInput as error:
            return _Code(CodeFile.of(origin, "", GpuCode()), None, True, error.problem)
        assert reading is not None  # noqa: S101 - its first bytes are those of an ELF file
        code_file = CodeFile.of(origin, "", reading.code)
        return _Code(code_file, reading.library, not reading.complete, torch=reading.torch)


class _Code(Struct, frozen=True):
    """What one file gave.

    Attributes:
        code: of the file.
        library: what stands in a record; None for programs, and where the file could not be read.
        unread: it, or its tables, could not be read.
        why: it could not be read.
        torch: what it asks torch for, and what it defines.
    """

    code: CodeFile
    library: Library | None = None
    unread: bool = False
    why: str = ""
    torch: TorchSymbols = NONE


def _once(begun: Readable) -> Opener:
    """Open a member of a stream, which passes once: what was missed of it stays missed."""

    def opener(read: Callable[[Readable], None], /, *, whole: bool) -> None:
        if not whole:
            raise Missed
        read(begun)

    return opener


_Reader = Callable[[Scan, Kind, Member, Content, str], None]
_READERS: dict[Kind, _Reader] = {
    "dist-info": Scan._distribution,
    "torch": Scan._torch,
    "conda": Scan._conda,
    "library": Scan._library,
    "toolkit": Scan._toolkit,
    "dpkg": Scan._packages,
    "apk": Scan._packages,
    "rpm": Scan._packages,
    "rpm-log": Scan._package_log,
    "code": Scan._code,
    "kernel": Scan._code,
    "library-path": Scan._library_path,
}


class _Begun:
    """A content whose first bytes were taken."""

    def __init__(self, head: bytes, content: Content) -> None:
        self._head = head
        self._content = content

    def read(self, size: int, /) -> bytes:
        """Up to ``size`` bytes; none at the end."""
        head, self._head = self._head[:size], self._head[size:]
        return head or self._content.read(size)
