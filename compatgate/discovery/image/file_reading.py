"""Read the content of one file of a layer, and keep what a layer holds under its digest.

A record depends on the bytes of its layer alone, and is stored once their digest was verified, so
that a shared base is read once. It has every member and the content of every file of interest,
since the layers above, which hide some of them, differ from image to image.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from compatgate import version
from compatgate.core.facts.records import Library
from compatgate.discovery import cache
from compatgate.discovery.findings import CodeFile
from compatgate.discovery.gpucode import GpuCode, read_gpu_code
from compatgate.discovery.gpucode.source import ByteReader
from compatgate.discovery.image import files
from compatgate.discovery.image.files import FileKind, is_cached, kind_of_file
from compatgate.discovery.image.layer import Layer, PeekedSource
from compatgate.discovery.image.layer_findings import finish_digest, is_hashed
from compatgate.discovery.image.tar import Content, Member
from compatgate.discovery.installed_metadata import (
    FILE_LISTS,
    LARGEST_LIST,
    LARGEST_METADATA_FILE,
    trim_metadata,
)
from compatgate.discovery.signals import Signals
from compatgate.discovery.wheels.members import StreamOpener, describe_code_file, read_library
from compatgate.discovery.wheels.names import NO_TORCH_SYMBOLS, TorchSymbols
from compatgate.discovery.wheels.stream_windows import MissedBytes
from compatgate.errors import BadInput, quote_error

_ELF = b"\x7fELF"
CODE = ("code", "kernel")
DATABASES = ("dpkg", "apk", "rpm", "rpm-log")
LARGEST_TEXTS: dict[FileKind, int] = {
    "dist-info": LARGEST_METADATA_FILE,
    "conda": LARGEST_LIST,
    "torch": files.LARGEST_TEXT,
    "toolkit": files.LARGEST_TEXT,
    "library-path": files.LARGEST_TEXT,
    "venv": files.LARGEST_TEXT,
    "path-file": files.LARGEST_TEXT,
}
"""Bytes of the files that are read as a whole, by their kind."""
SCHEMA = "layer-record/2"
"""Version of the stored form; raise it when what is read of a file changes."""
SMALLEST = 16 * 1024 * 1024
"""Bytes of a layer from which on it is recorded; smaller ones are read again."""
MOST_MEMBERS = 200_000
MOST_BYTES = 32 * 1024 * 1024
"""Bytes of what the files of a layer say; a layer that has more is read again."""
_FILE_BYTES, _SYMBOL_BYTES = 400, 24
"""About what one file of interest and one symbol take in memory."""


class FileCode(Struct, frozen=True, omit_defaults=True):
    """The GPU code and links of a file; ``library`` is None for programs and unreadable files."""

    code: CodeFile
    library: Library | None = None
    unread: bool = False
    why: str = ""
    torch: TorchSymbols = NO_TORCH_SYMBOLS

    @property
    def counts(self) -> bool:
        """Return whether the file holds GPU code, or may hold some."""
        return bool(self.code.arch or self.code.linked or self.why)


class FileReading(Struct, frozen=True, omit_defaults=True):
    """What the content of a file says, by the kind of the file.

    It is a small text, the packages in a database that may be components, the code of a library,
    program or kernel, or the digest of a file that belongs to the GPU content. A
    ``program`` begins as one does; a script may start any other.
    """

    text: bytes | None = None
    packages: list[tuple[str, str]] = []
    why: str = ""
    code: FileCode | None = None
    digest: str | None = None
    program: bool = False


def largest_text(kind: FileKind, file: str) -> int:
    """Return how many bytes of a small text file are read."""
    return LARGEST_LIST if file in FILE_LISTS else LARGEST_TEXTS[kind]


class FileReader:
    """Reads the files of layers by their kind."""

    def __init__(self, signals: Signals, check: Callable[[], None]) -> None:
        self._signals = signals
        self._check = check

    def read(self, kind: FileKind | None, member: Member, content: Content) -> FileReading:
        """Read a file that is of interest; a link has no content."""
        if member.kind == "symlink" or (member.kind == "hardlink" and kind not in DATABASES):
            return FileReading()
        if kind in LARGEST_TEXTS:
            file = member.path.rpartition("/")[2]
            data = content.read_all(largest_text(kind, file))
            if data is not None and kind == "dist-info" and file not in FILE_LISTS:
                data = trim_metadata(file, data)
            return FileReading(text=data)
        if kind in DATABASES:
            return self._read_packages(kind, content)
        content.begin_digest()
        code = _read_code(kind, member, content) if kind in CODE else None
        head = content.read(min(len(_ELF), content.left)) if kind is None else b""
        owned = code is not None and code.counts and not is_cached(member.path)
        digest = finish_digest(content) if owned or is_hashed(member) else None
        return FileReading(code=code, digest=digest, program=head == _ELF or code is not None)

    def _read_packages(self, kind: FileKind, content: Content) -> FileReading:
        if kind == "rpm-log":
            return FileReading()
        try:
            found = files.read_package_database(kind, content, self._signals, self._check)
        except ValueError as error:
            return FileReading(why=quote_error(error))
        return FileReading(packages=found)


def _read_code(kind: FileKind, member: Member, content: Content) -> FileCode | None:
    """Read a library, program or kernel in one pass; return None for other files."""
    path, size = member.path, content.left
    head = content.read(min(len(_ELF), size))
    if head != _ELF and kind != "kernel":
        return None
    begun = PeekedSource(head, content)
    try:
        if kind == "kernel" or ".so" not in path.rpartition("/")[2]:
            code = read_gpu_code(begun, size=size, name=path)
            library = describe_code_file(path, code) if kind == "kernel" else None
            return FileCode(CodeFile.of(path, "", code), library)
        reading = read_library(path, size, _stream_opener(begun), path, named_only=True)
    except BadInput as error:
        return FileCode(CodeFile.of(path, "", GpuCode()), None, True, error.problem)
    assert reading is not None  # noqa: S101 - its first bytes are those of an ELF file
    code_file = CodeFile.of(path, "", reading.code)
    return FileCode(code_file, reading.library, not reading.complete, torch=reading.torch)


def _stream_opener(begun: ByteReader) -> StreamOpener:
    """Return an opener for a member of a stream, which can be read only once."""

    def opener(read: Callable[[ByteReader], None], /, *, whole: bool) -> None:
        if not whole:
            raise MissedBytes
        read(begun)

    return opener


class LayerRecord(Struct):
    """The readings of a layer's files, by the number of the member, and its decompressed bytes."""

    members: list[Member] = field(default_factory=list)
    files: dict[int, FileReading] = field(default_factory=dict)
    unpacked: int = 0


class LayerRecords:
    """The records of layers in a folder."""

    def __init__(self, folder: str | None, signals: Signals, reader: FileReader) -> None:
        self._folder = folder
        self._reader = reader
        self._packages = [(pattern.pattern, component) for pattern, component in signals.packages]

    def find(self, layer: Layer) -> LayerRecord | None:
        """Return the record of a layer; None where none is stored, or a damaged one."""
        if not self._folder or layer.descriptor.size < SMALLEST:
            return None
        return cache.read_struct(self._folder, self._name(layer), LayerRecord)

    def begin(self, layer: Layer) -> Recording | None:
        """Begin to record a layer; None for one that is not kept."""
        return (
            Recording(self._reader) if self._folder and layer.descriptor.size >= SMALLEST else None
        )

    def keep(self, layer: Layer, recording: Recording, unpacked: int) -> None:
        """Store the record of a layer whose digests were verified."""
        if not self._folder or recording.full:
            return
        recording.record.unpacked = unpacked
        try:
            cache.write_entry(self._folder, self._name(layer), recording.record)
        except UnicodeEncodeError:  # a path that is no UTF-8
            return

    def _name(self, layer: Layer) -> str:
        stated = [layer.descriptor.size, layer.descriptor.media_type]
        return cache.entry_key(
            layer.descriptor.digest, [SCHEMA, version(), stated, layer.diff_id, self._packages]
        )


class Recording:
    """A record while its layer is read; ``full`` if the layer has more than is kept."""

    def __init__(self, reader: FileReader) -> None:
        self.record = LayerRecord()
        self.full = False
        self._reader = reader
        self._bytes = 0

    def take(self, member: Member, content: Content) -> Content | FileReading:
        """Record a member; return its reading, where its content was read for it."""
        if self.full:
            return content
        number = len(self.record.members)
        self.record.members.append(member)
        reading: Content | FileReading = content
        kind = kind_of_file(member)
        if not member.sparse and (kind is not None or is_hashed(member)):
            reading = self.record.files[number] = self._reader.read(kind, member, content)
            self._bytes += _size_of(reading)
        if number >= MOST_MEMBERS or self._bytes > MOST_BYTES:
            self.full = True
            self.record = LayerRecord()
        return reading


def _size_of(reading: FileReading) -> int:
    size = _FILE_BYTES + len(reading.text or b"")
    size += sum(len(name) + len(version) for name, version in reading.packages)
    if reading.code:
        symbols = reading.code.torch
        size += (len(symbols.defines) + len(symbols.asks)) * _SYMBOL_BYTES
        size += sum(map(len, symbols.asks))
    return size
