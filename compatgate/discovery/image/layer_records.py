"""Keep what a layer holds under its digest, so that a shared base is read once.

A record depends on the bytes of its layer alone, and is stored once their digest was verified. It
has every member and the content of every file of interest, since the layers above, which hide
some of them, differ from image to image.
"""

from __future__ import annotations

from msgspec import Struct, field

from compatgate import version
from compatgate.discovery import cache
from compatgate.discovery.image.content import is_hashed
from compatgate.discovery.image.file_reading import FileReader, FileReading
from compatgate.discovery.image.files import kind_of_file
from compatgate.discovery.image.tar import Content, Member
from compatgate.discovery.registry.image_spec import Descriptor
from compatgate.discovery.signals import Signals

SCHEMA = "layer-record/1"
"""Version of the stored form; raise it when what is read of a file changes."""
SMALLEST = 16 * 1024 * 1024
"""Bytes of a layer from which on it is recorded; smaller ones are read again."""
MOST_MEMBERS = 200_000
MOST_BYTES = 32 * 1024 * 1024
"""Bytes of what the files of a layer say; a layer that has more is read again."""
_FILE_BYTES, _SYMBOL_BYTES = 400, 24
"""About what one file of interest and one symbol take in memory."""


class LayerRecord(Struct):
    """What a layer holds.

    Attributes:
        files: the readings of files, by the number of the member.
        unpacked: decompressed bytes of the layer.
    """

    members: list[Member] = field(default_factory=list)
    files: dict[int, FileReading] = field(default_factory=dict)
    unpacked: int = 0


class LayerRecords:
    """The records of layers in a folder."""

    def __init__(self, folder: str | None, signals: Signals, reader: FileReader) -> None:
        self._folder = folder
        self._reader = reader
        self._packages = [(one.pattern.pattern, one.component) for one in signals.packages]

    def find(self, layer: Descriptor) -> LayerRecord | None:
        """Return the record of a layer; None where none is stored, or a damaged one."""
        if not self._folder or layer.size < SMALLEST:
            return None
        return cache.read_struct(self._folder, self._name(layer), LayerRecord)

    def begin(self, layer: Descriptor) -> Recording | None:
        """Begin to record a layer; None for one that is not kept."""
        return Recording(self._reader) if self._folder and layer.size >= SMALLEST else None

    def keep(self, layer: Descriptor, recording: Recording, unpacked: int) -> None:
        """Store the record of a layer whose digest was verified."""
        if not self._folder or recording.full:
            return
        recording.record.unpacked = unpacked
        try:
            cache.write_entry(self._folder, self._name(layer), recording.record)
        except UnicodeEncodeError:  # a path that is no UTF-8
            return

    def _name(self, layer: Descriptor) -> str:
        return cache.entry_key(
            layer.digest, [SCHEMA, version(), layer.size, layer.media_type, self._packages]
        )


class Recording:
    """A record while its layer is read.

    Attributes:
        full: the layer has more than is kept.
    """

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
