"""Find the root filesystem in a Singularity Image Format (SIF) file of Apptainer or Singularity.

Source: apptainer/sif ``pkg/sif/sif.go`` and ``descriptor.go`` (layout of the global header and of
the descriptors; version 01 is the only one).
"""

from __future__ import annotations

import struct
from typing import Any, BinaryIO

from msgspec import Struct

from compatgate.discovery.registry.limits import damaged_error
from compatgate.errors import BadInput

MAGIC, MAGIC_AT = b"SIF_MAGIC\0", 32
_HEADER = struct.Struct("<32s10s3s3s16sqqqqqqqq")
_DESCRIPTOR = struct.Struct("<i?IIIqqqqqqq128s384s")
_PARTITION = struct.Struct("<ii3s")
_MAX_DESCRIPTORS = 4096
_PARTITION_TYPE, _OCI_INDEX = 0x4004, 0x400A
_SQUASHFS, _PRIMARY, _OVERLAY = 1, 2, 4
_FILESYSTEMS = {1: "SquashFS", 2: "ext3", 3: "an archive", 4: "raw data", 5: "encrypted SquashFS"}
_ARCHITECTURES = {b"01": "386", b"02": "amd64", b"03": "arm", b"04": "arm64"}


class SifPartition(Struct, frozen=True):
    """The partition with the root filesystem.

    Attributes:
        offset: first byte in the file.
        size: in bytes.
        architecture: as images name it (``amd64``); empty where the file does not say.
        overlay: whether a writable layer lies over it.
    """

    offset: int
    size: int
    architecture: str
    overlay: bool


def find_partition(file: BinaryIO, size: int) -> SifPartition:
    """Return the primary partition of a SIF file.

    Args:
        file: seekable file.
        size: bytes of the file.

    Raises:
        BadInput: the file has no primary partition, or none that can be read.
        Damaged: the file is truncated or contradicts itself.
    """
    file.seek(0)
    head = file.read(_HEADER.size)
    if len(head) < _HEADER.size or head[MAGIC_AT : MAGIC_AT + len(MAGIC)] != MAGIC:
        raise damaged_error("the file ends within its SIF header")
    fields = _HEADER.unpack(head)
    version, architecture = fields[2].rstrip(b"\0"), fields[3].rstrip(b"\0")
    count, place = fields[8], fields[9]
    if version != b"01":
        shown = version.decode("ascii", "replace")
        raise BadInput(
            f"is SIF of version {shown!r}", field="image", hint="only version 01 is supported"
        )
    if not 0 <= count <= _MAX_DESCRIPTORS or not 0 <= place <= size:
        raise damaged_error(f"the SIF header states {count} descriptors at byte {place}")
    file.seek(place)
    table = file.read(count * _DESCRIPTOR.size)
    if len(table) < count * _DESCRIPTOR.size:
        raise damaged_error("the SIF file ends within its descriptors")
    descriptors = list(map(_descriptor, _DESCRIPTOR.iter_unpack(table)))
    return _choose(descriptors, _ARCHITECTURES.get(architecture, ""), size)


class _Descriptor(Struct, frozen=True):
    """A descriptor: type of its data, whether it is in use, and where the data lie."""

    kind: int
    used: bool
    offset: int
    size: int
    extra: bytes


def _descriptor(fields: tuple[Any, ...]) -> _Descriptor:
    return _Descriptor(fields[0], fields[1], fields[5], fields[6], fields[-1])


def _choose(descriptors: list[_Descriptor], architecture: str, size: int) -> SifPartition:
    used = [one for one in descriptors if one.used]
    if any(one.kind == _OCI_INDEX for one in used):
        hint = "build a SIF with one SquashFS partition, or name the OCI image"
        raise BadInput("is an OCI-SIF, whose layers are not read", field="image", hint=hint)
    partitions = [
        (one, _PARTITION.unpack(one.extra[: _PARTITION.size]))
        for one in used
        if one.kind == _PARTITION_TYPE
    ]
    primary = [(one, extra) for one, extra in partitions if extra[1] == _PRIMARY]
    if len(primary) != 1:
        what = f"has {len(primary)} primary partitions"
        raise BadInput(what, field="image", hint="use a SIF image that can run")
    one, (filesystem, _, own) = primary[0]
    if filesystem != _SQUASHFS:
        kind = _FILESYSTEMS.get(filesystem, f"filesystem {filesystem}")
        hint = "build the image without encryption and with SquashFS, as apptainer build does"
        raise BadInput(f"has a root filesystem in {kind}", field="image", hint=hint)
    if not (0 < one.offset <= size and 0 < one.size <= size - one.offset):
        problem = f"its partition has {one.size} bytes at byte {one.offset}, the file {size}"
        raise damaged_error(f"the SIF file is truncated: {problem}")
    overlay = any(extra[1] == _OVERLAY for _, extra in partitions)
    stated = _ARCHITECTURES.get(own.rstrip(b"\0"), architecture)
    return SifPartition(one.offset, one.size, stated, overlay)
