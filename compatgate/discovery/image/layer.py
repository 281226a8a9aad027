"""Stream one layer of an image: fetched, decompressed and checked ahead of use, in bounded memory.

A thread prepares pieces ahead of use: fetching, hashing and decompressing release the GIL. At most
`DEPTH` pieces wait, so that memory and needless fetching stay small.

The first bytes tell gzip, zstd or none; the media type is ignored, because registries hold gzip
under every name; what the type calls uncompressed must be.

Sources: RFC 1952 (gzip; members may follow each other), RFC 8878 (zstd; so may frames).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import IO, Protocol, cast

from isal import isal_zlib  # a third of zlib's time
from msgspec import Struct

from compatgate.background import BackgroundReader
from compatgate.discovery.gpucode.source import ByteReader
from compatgate.discovery.image.tar import ByteFeed
from compatgate.discovery.registry.image_spec import Descriptor, is_digest
from compatgate.discovery.registry.limits import Limits, damaged_error, too_large_error
from compatgate.errors import BadInput, CompatgateError, quote_error


class Layer(Struct, frozen=True):
    """A layer, and its number from the lowest, 1.

    Attributes:
        diff_id: digest of the decompressed layer that the config states; empty without.
    """

    number: int
    descriptor: Descriptor
    label: str = ""
    diff_id: str = ""

    @property
    def name(self) -> str:
        """Return ``layer 3 (sha256:0123456789ab)``, or the label."""
        if self.label:
            return self.label
        algorithm, _, digits = self.descriptor.digest.partition(":")
        return f"layer {self.number} ({algorithm}:{digits[:12]})"

    @contextmanager
    def named(self) -> Iterator[None]:
        """Name the layer in errors about its content."""
        try:
            yield
        except CompatgateError as error:
            error.field = f"image: {self.name}"
            raise


class LayerStream(Protocol):
    """A layer's bytes, read once."""

    @property
    def position(self) -> int:
        """Return how many bytes were read."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes; ``b""`` at the end."""

    def drain(self) -> None:
        """Read the remaining bytes, and check their digest."""


class LayerSource(Protocol):
    """A source of layers: a registry, or a container engine."""

    def blob(self, descriptor: Descriptor) -> AbstractContextManager[LayerStream]:
        """Open a layer."""


@contextmanager
def open_layer(
    layer: Layer, registry: LayerSource, budget: Budget
) -> Iterator[tuple[LayerStream, ByteFeed]]:
    """Open a layer: its bytes as they arrive, and the decompressed pieces."""
    if layer.descriptor.media_type.endswith("+encrypted"):
        raise BadInput(f"{layer.name} is encrypted", field="image")
    # containerd goes by the type here, Docker by the content
    plain = layer.descriptor.media_type.endswith(".tar")
    with registry.blob(layer.descriptor) as blob:
        verifies = layer.diff_id and not (plain and layer.diff_id == layer.descriptor.digest)
        with read_ahead(decompress(blob, budget, plain=plain)) as pieces:
            # Here, not ahead: it hashes more than is fetched, while the next piece is prepared.
            content = verify_content(pieces, layer.diff_id) if verifies else pieces
            yield blob, ByteFeed(content)


def verify_content(pieces: Iterable[bytes], diff_id: str) -> Iterator[bytes]:
    """Yield a layer's content, and check at its end that the config states its digest.

    Runtimes find unpacked layers by that digest: where a node has the content that it names, that
    one runs, and the layer is not even fetched.

    Source: containerd/containerd ``core/unpack/unpacker.go``.
    """
    if not is_digest(diff_id):
        raise damaged_error(f"the config states {diff_id[:100]!r} as the digest of a layer")
    found = hashlib.new(diff_id.partition(":")[0])
    for piece in pieces:
        found.update(piece)
        yield piece
    if f"{found.name}:{found.hexdigest()}" != diff_id:
        what = f"has the digest {found.name}:{found.hexdigest()} decompressed"
        raise damaged_error(f"a layer {what}, the config states {diff_id}")


DEPTH = 4
"""Number of pieces that wait."""
JOIN_TIMEOUT_S = 2.0
"""Seconds to wait for the thread's end; a thread that waits for a socket ends with the socket."""


@contextmanager
def read_ahead(pieces: Iterable[bytes]) -> Iterator[Iterator[bytes]]:
    """Iterate over pieces that a thread prepares; leaving the block stops the thread.

    An error in the thread is raised at the next piece.
    """
    items = (piece for piece in pieces)
    reader = BackgroundReader(items, most=DEPTH, name="compatgate-layer")
    try:
        yield iter(reader)
    finally:
        reader.close(JOIN_TIMEOUT_S)


PIECE = 256 * 1024
"""Most decompressed bytes per piece."""
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = b"\x2a\x4d\x18"
_GZIP_WINDOW = 31  # number for gzip with the largest window


class Budget:
    """A count of the bytes that all layers so far unpack to, against decompression bombs."""

    def __init__(self, limits: Limits, check: Callable[[], None] = lambda: None) -> None:
        self.limits = limits
        self.check = check
        self.unpacked = 0

    def take(self, count: int, unpacked: int, packed: int) -> None:
        """Count bytes of a layer that had ``packed`` bytes so far and ``unpacked`` decompressed."""
        limits = self.limits
        self.check()
        self.unpacked += count
        if self.unpacked > limits.unpacked:
            what = f"its layers decompress to more than the {limits.unpacked} bytes that are read"
            raise too_large_error(what)
        if unpacked > limits.ratio_from and unpacked > packed * limits.ratio:
            what = f"{packed} bytes of a layer decompress to {unpacked}: a decompression bomb"
            raise too_large_error(what)


class PeekedSource:
    """A source that returns its peeked first bytes again, and counts the bytes that it returned."""

    def __init__(self, head: bytes, source: ByteReader) -> None:
        self._head, self._source = head, source
        self.count = 0

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes; ``b""`` at the end."""
        data, self._head = self._head[:size], self._head[size:]
        data = data or self._source.read(size)
        self.count += len(data)
        return data


def is_compressed(head: bytes) -> bool:
    """Return whether a file with these first bytes is an archive compressed by gzip or zstd."""
    return head.startswith((_GZIP, _ZSTD))


def decompress(source: ByteReader, budget: Budget, *, plain: bool = False) -> Iterator[bytes]:
    """Yield the content of a layer in pieces of at most `PIECE` bytes."""
    head = b""
    while len(head) < 4 and (more := source.read(PIECE)):
        head += more
    peeked = PeekedSource(head, source)
    if head.startswith(_GZIP):
        pieces = _gunzip(peeked)
    elif head.startswith(_ZSTD) or head[1:4] == _SKIPPABLE:
        pieces = _unzstd(peeked, budget.limits.window)
    else:
        pieces = iter(lambda: peeked.read(PIECE), b"")
    compressed = (_GZIP, _ZSTD, *(bytes([n]) + _SKIPPABLE for n in range(0x50, 0x60)))
    if plain and head.startswith(compressed):
        raise damaged_error("a layer is compressed, its media type says that it is not")
    unpacked = 0
    for piece in pieces:
        unpacked += len(piece)
        budget.take(len(piece), unpacked, peeked.count)
        yield piece


def _gunzip(source: ByteReader) -> Iterator[bytes]:
    member, padded = isal_zlib.decompressobj(_GZIP_WINDOW), False
    try:
        while data := source.read(PIECE):
            while data:
                if member.eof:  # another gzip member, or padding
                    padded = padded or data[:1] == b"\0"
                    data = data.lstrip(b"\0")
                    if not data:
                        break
                    if padded:  # some programs read on, others stop
                        raise damaged_error("a layer's gzip data continue after padding")
                    member = isal_zlib.decompressobj(_GZIP_WINDOW)
                yield member.decompress(data, PIECE)
                data = member.unused_data if member.eof else member.unconsumed_tail
        yield member.flush()
    except isal_zlib.error as error:  # type: ignore[misc]  # its stub names an instance
        raise damaged_error(f"a layer's gzip data are damaged: {quote_error(error)}") from None
    if not member.eof:
        raise damaged_error("a layer's gzip data end early")


def _unzstd(source: ByteReader, window: int) -> Iterator[bytes]:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=window)
    try:
        with decompressor.stream_reader(
            cast("IO[bytes]", source),  # the decompressor only calls read(size)
            read_size=PIECE,
            read_across_frames=True,
        ) as reader:
            while piece := reader.read(PIECE):
                yield piece
    except zstandard.ZstdError as error:
        if "too much memory" in quote_error(error).lower():
            what = f"a layer is compressed with a zstd window larger than {window} bytes"
            raise too_large_error(what) from None
        raise damaged_error(f"a layer's zstd data are damaged: {quote_error(error)}") from None
