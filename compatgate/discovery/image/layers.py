"""Read layers from the top down, each as a stream, and gather findings file by file."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts.records import Library
from compatgate.discovery.findings import CodeFile
from compatgate.discovery.gpucode import GpuCode, read_gpu_code
from compatgate.discovery.gpucode.source import ByteReader
from compatgate.discovery.image import files
from compatgate.discovery.image.content import finish_digest, is_hashed
from compatgate.discovery.image.files import FileKind, find_owner, is_cached, kind_of_file
from compatgate.discovery.image.layer import Budget, Layer, LayerSource, open_layer
from compatgate.discovery.image.layer_findings import LayerFindings, WitnessKind
from compatgate.discovery.image.reading import INTERPRETER
from compatgate.discovery.image.tar import ByteFeed, Content, Member, read_members
from compatgate.discovery.image.visibility import Visibility
from compatgate.discovery.installed_metadata import (
    FILE_LISTS,
    LARGEST_LIST,
    LARGEST_METADATA_FILE,
    read_conda_record,
    trim_metadata,
)
from compatgate.discovery.installed_packages import InstalledFile
from compatgate.discovery.libraries import observe_major
from compatgate.discovery.registry.limits import Deadline, ImageOptions, too_large_error
from compatgate.discovery.signals import Signals
from compatgate.discovery.wheels.members import StreamOpener, describe_code_file, read_library
from compatgate.discovery.wheels.names import NO_TORCH_SYMBOLS, TorchSymbols
from compatgate.discovery.wheels.stream_windows import MissedBytes
from compatgate.errors import BadInput, quote_error

_ELF = b"\x7fELF"
_CODE = ("code", "kernel")
_SYSTEM_PACKAGES = re.compile(rb"(?im)^\s*include-system-site-packages\s*=\s*true")
_DATABASES = ("dpkg", "apk", "rpm", "rpm-log")
_LARGEST_TEXTS: dict[FileKind, int] = {
    "dist-info": LARGEST_METADATA_FILE,
    "conda": LARGEST_LIST,
    "torch": files.LARGEST_TEXT,
    "toolkit": files.LARGEST_TEXT,
    "library-path": files.LARGEST_TEXT,
    "venv": files.LARGEST_TEXT,
}
"""Bytes of the files that are read as a whole, by their kind."""
_MOST_TEXT_BYTES = 64 * 1024 * 1024
"""Bytes of a layer's metadata that are remembered for hard links to it."""
_LIBRARY_HELP = "the names of its libraries were read"


class LayerScan:
    """A scan of one image's layers.

    Attributes:
        watched: folders of which links are recorded; None where they are not known.
    """

    def __init__(self, signals: Signals, options: ImageOptions, deadline: Deadline) -> None:
        self.seen = LayerFindings()
        self.count = 0
        self.verified = True
        self.watched: frozenset[str] | None = None
        self._signals = signals
        self._options = options
        self._deadline = deadline
        self._budget = Budget(options.limits, self._check)
        self._layer = ""
        self._visibility = Visibility(
            options.limits,
            lambda what: self.seen.note(
                f"{self._layer} {what}: which file a container gets depends on its runtime"
            ),
        )
        self._members = 0
        self._wanted = 0
        self._linked: dict[str, _FileCode] = {}  # code of this layer's files, for links
        self._digests: dict[str, str] = {}  # of this layer's files, for links
        self._texts: dict[str, bytes] = {}  # metadata of this layer, for links
        self._text_bytes = 0
        self._skipped: set[int] = set()  # libraries of this layer without code, for links

    def read(self, layers: Sequence[Layer], registry: LayerSource) -> None:
        """Read layers, the highest first, until all needed components were found."""
        if len(layers) > self._options.limits.layers:
            raise too_large_error(f"the image has {len(layers)} layers")
        for layer in layers:
            if self._has_all():
                return
            self.count += 1
            self._layer = layer.name
            self._read_layer(layer, registry)
            self._visibility.next_layer()
            if self._visibility.full:
                self.seen.note(
                    f"{layer.name} has too many files to remember; replaced files below may "
                    "count that it replaces"
                )
            self._linked.clear()
            self._digests.clear()
            self._texts.clear()
            self._skipped.clear()
            self._text_bytes = 0

    def read_members(self, layer: Layer, members: Iterable[tuple[Member, Content]]) -> None:
        """Read files that come from no tar archive, as one layer."""
        self.count += 1
        self._layer = layer.name
        with layer.named():
            for member, content in members:
                self._take(layer, member, content)

    def _read_layer(self, layer: Layer, registry: LayerSource) -> None:
        with open_layer(layer, registry, self._budget) as (blob, feed):
            with layer.named():
                for member, content in read_members(feed):
                    self._take(layer, member, content)
                    if self._has_all():
                        self.verified = False
                        self.seen.note(
                            f"{layer.name} was read up to byte {blob.position} of "
                            f"{layer.descriptor.size}, where all needed components were found; "
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
            raise too_large_error(f"the image has more than {self._members - 1} files")
        if self._visibility.whiteout(member.path):
            return
        kind = kind_of_file(member)
        hashed = is_hashed(member)
        self._visibility.take(member, wanted=kind is not None or hashed)
        if member.kind == "symlink" or "python" in member.path[-14:]:
            self._take_program(member)
        if kind is None and member.kind == "file" and ".so" in member.path:
            self._skipped.add(hash(member.path))
        if kind is None and not hashed:
            return
        if self._visibility.visible(member.path):
            self._visibility.count(member.path)
        elif not is_cached(member.path):  # links lead to files in caches
            return
        if member.sparse:
            self.seen.note(f"{layer.name}: {member.path} is a sparse file, which is not read")
            return
        self._wanted += 1
        if self._wanted > self._options.limits.wanted:
            raise too_large_error(f"the image has more than {self._wanted - 1} files of interest")
        if hashed or kind in _CODE:
            content.begin_digest()
        origin = f"{layer.name}: {member.path}"
        if kind is not None and not is_cached(member.path):
            self.seen.paths[origin] = member.path
        if kind is not None and kind in _LARGEST_TEXTS:
            content = self._text(kind, member, content, origin)
        elif member.kind == "hardlink" and kind in _DATABASES:
            self.seen.note(f"{origin} is a hard link, which is not read")
        if kind is not None:
            _READERS[kind](self, kind, member, content, origin)
        if hashed:
            self._add_content(member, content)

    def _take_program(self, member: Member) -> None:
        """Record interpreters, and links among the watched folders."""
        path, link = member.path, member.kind == "symlink"
        at = path.rfind("/") + 1
        is_program = path.startswith("python", at) and (link or member.kind in ("file", "hardlink"))
        is_program = is_program and INTERPRETER.fullmatch(path, at) is not None
        if not (is_program or (link and self.watched and path in self.watched)):
            return
        if self._visibility.visible(path):
            self._visibility.count(path)
            found = self.seen.interpreters if is_program else self.seen.links
            found[path] = member.link if link else ""

    def _text(self, kind: FileKind, member: Member, content: Content, origin: str) -> Content:
        """Return the content of a small file, also where it is a hard link to an earlier one."""
        file = member.path.rpartition("/")[2]
        data: bytes | None
        if member.kind == "hardlink":
            data, why = self._texts.get(member.link), "is a hard link to a file that was not read"
        else:
            largest = LARGEST_LIST if file in FILE_LISTS else _LARGEST_TEXTS[kind]
            data, why = content.read_all(largest), f"is larger than {largest} bytes"
            if data is not None:
                text = trim_metadata(file, data) if kind == "dist-info" else data
                self._text_bytes += len(text)
                if self._text_bytes <= _MOST_TEXT_BYTES:
                    self._texts[member.path] = text
        if data is None:
            self.seen.note(f"{origin} {why}")
            data = b""
        return Content(ByteFeed([data]), replace(member, size=len(data)))

    def _add_content(self, member: Member, content: Content) -> None:
        """Add a file to the GPU content, by its digest."""
        if member.kind == "symlink":
            self.seen.content.add_file(member.path, f"link:{member.link}")
        elif member.kind == "hardlink":
            self.seen.content.add_file(member.path, self._digests.get(member.link))
        else:
            self._digests[member.path] = digest = finish_digest(content)
            self.seen.content.add_file(member.path, digest)

    def _distribution(self, _: FileKind, member: Member, content: Content, origin: str) -> None:
        if is_cached(member.path):
            return
        folder, file = posixpath.split(member.path)
        data = content.read_all(LARGEST_LIST)
        one = self.seen.inventory.distribution(folder)
        if data:
            one.take(file, data, origin)
            if file in FILE_LISTS:
                self.seen.content.add_list(folder, data)
        if file not in ("METADATA", "PKG-INFO"):
            return
        if not one.name and (named := files.parse_folder_name(folder)):
            one.identify(*named, origin)
        if not one.name:
            return
        distribution = files.observe_distribution(one.name, one.version, origin)
        self.seen.add_distribution(one.name, member.path)
        self.seen.add(WitnessKind.WHEEL, distribution)
        self.seen.add(WitnessKind.LABEL, files.read_cuda_label(distribution))

    def _observe(self, kind: FileKind, member: Member, content: Content, origin: str) -> None:
        """Read a small text file, or a library whose name states its version."""
        path, seen = member.path, self.seen
        if kind == "toolkit":
            version = files.read_toolkit_version(path, content, origin)
            seen.add(WitnessKind.TOOLKIT, [version])
        elif kind == "library-path":
            seen.add(WitnessKind.LIBRARY, files.read_library_path(content, origin))
        elif kind == "venv":
            text = content.read_all(files.LARGEST_TEXT) or b""
            seen.venvs[posixpath.dirname(path)] = _SYSTEM_PACKAGES.search(text) is None
        elif is_cached(path):
            return
        elif kind == "torch":
            seen.add(WitnessKind.FRAMEWORK, files.read_torch_version(content, origin))
        elif kind == "conda":
            seen.add(WitnessKind.CONDA, files.observe_conda_package(path, origin, self._signals))
            record = read_conda_record(path, content.read_all(LARGEST_LIST) or b"", origin)
            if record:
                seen.inventory.distributions[path] = record
        else:
            library = files.observe_library_file(path, origin)
            seen.add(WitnessKind.LIBRARY, [library])
            if library is None and (major := observe_major(path)):
                seen.majors.append(replace(major, origin=origin))

    def _packages(self, kind: FileKind, _: Member, content: Content, origin: str) -> None:
        if kind == "rpm-log":
            if content.left:  # rpm empties this log when it closes the database
                what = "holds changes of the package database, which were not read"
                self.seen.note(f"{origin} {what}; {_LIBRARY_HELP}")
            return
        try:
            found, left = files.read_package_database(
                kind, content, origin, self._signals, self._check
            )
        except ValueError as error:
            self.seen.note(
                f"the package database {origin} was not read: {quote_error(error)}; {_LIBRARY_HELP}"
            )
        else:
            self.seen.add(WitnessKind.PACKAGE, found)
            for sentence in left:
                self.seen.note(sentence)

    def _code(self, kind: FileKind, member: Member, content: Content, origin: str) -> None:
        if member.kind == "hardlink":
            known = self._linked.get(member.link)
            if known is None and hash(member.link) not in self._skipped:
                self.seen.note(f"{origin} is a hard link to a file that was not read")
        elif known := self._read_code(kind, member.path, content, origin):
            self._linked[member.path] = known
        else:
            self._skipped.add(hash(member.path))
        if known is None or is_cached(member.path):
            return
        if known.why:
            self.seen.unread.append((origin, known.why))
        library = known.library and replace(known.library, path=member.path)
        self.seen.inventory.add_file(
            InstalledFile(member.path, origin, library, known.unread, known.torch)
        )
        if (known.code.arch or known.code.linked or known.why) and not is_hashed(member):
            self._add_content(member, content)
        if known.code.arch or known.code.linked:
            code = replace(known.code, origin=origin, owner=find_owner(member.path))
            self.seen.codes.append(code)

    def _read_code(
        self, kind: FileKind, path: str, content: Content, origin: str
    ) -> _FileCode | None:
        """Read a library, program or kernel in one pass; return None for other files."""
        size = content.left
        head = content.read(min(len(_ELF), size))
        if head != _ELF and kind != "kernel":
            return None
        begun = _PeekedContent(head, content)
        try:
            if kind == "kernel" or ".so" not in path.rpartition("/")[2]:
                code = read_gpu_code(begun, size=size, name=origin)
                library = describe_code_file(path, code) if kind == "kernel" else None
                return _FileCode(CodeFile.of(origin, "", code), library)
            reading = read_library(path, size, _stream_opener(begun), origin, named_only=True)
        except BadInput as error:
            return _FileCode(CodeFile.of(origin, "", GpuCode()), None, True, error.problem)
        assert reading is not None  # noqa: S101 - its first bytes are those of an ELF file
        code_file = CodeFile.of(origin, "", reading.code)
        return _FileCode(code_file, reading.library, not reading.complete, torch=reading.torch)


class _FileCode(Struct, frozen=True):
    """The GPU code and links of one file.

    Attributes:
        library: entry for a record; None for programs and unreadable files.
    """

    code: CodeFile
    library: Library | None = None
    unread: bool = False
    why: str = ""
    torch: TorchSymbols = NO_TORCH_SYMBOLS


def _stream_opener(begun: ByteReader) -> StreamOpener:
    """Return an opener for a member of a stream, which can be read only once."""

    def opener(read: Callable[[ByteReader], None], /, *, whole: bool) -> None:
        if not whole:
            raise MissedBytes
        read(begun)

    return opener


_Reader = Callable[[LayerScan, FileKind, Member, Content, str], None]
_READERS: dict[FileKind, _Reader] = {
    "dist-info": LayerScan._distribution,
    **dict.fromkeys(("torch", "conda", "library", "toolkit"), LayerScan._observe),
    **dict.fromkeys(("library-path", "venv"), LayerScan._observe),
    **dict.fromkeys(("dpkg", "apk", "rpm", "rpm-log"), LayerScan._packages),
    **dict.fromkeys(("code", "kernel"), LayerScan._code),
}


class _PeekedContent:
    """A content that returns its peeked first bytes again."""

    def __init__(self, head: bytes, content: Content) -> None:
        self._head = head
        self._content = content

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes; ``b""`` at the end."""
        head, self._head = self._head[:size], self._head[size:]
        return head or self._content.read(size)
