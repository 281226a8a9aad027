"""One layer of an image: where it comes from, and what it unpacks to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from msgspec import Struct

from compatgate.discovery.image.ahead import ahead
from compatgate.discovery.image.feed import Feed
from compatgate.discovery.image.manifest import Descriptor
from compatgate.discovery.image.stream import Budget, decompressed
from compatgate.errors import BadInput, CompatgateError


class Layer(Struct, frozen=True):
    """A layer, and its number from the lowest, 1."""

    number: int
    descriptor: Descriptor

    @property
    def name(self) -> str:
        """``layer 3 (sha256:0123456789ab)``."""
        algorithm, _, digits = self.descriptor.digest.partition(":")
        return f"layer {self.number} ({algorithm}:{digits[:12]})"

    @contextmanager
    def named(self) -> Iterator[None]:
        """What goes wrong with what the layer holds is said of it."""
        try:
            yield
        except CompatgateError as error:
            error.field = f"image: {self.name}"
            raise


class Blob(Protocol):
    """A layer's bytes, read once."""

    @property
    def position(self) -> int:
        """Bytes that were read."""

    def read(self, size: int, /) -> bytes:
        """Up to ``size`` bytes; none at the end."""

    def drain(self) -> None:
        """Read what is left, and check it."""


class Blobs(Protocol):
    """Where layers come from: a registry, or a container engine."""

    def blob(self, descriptor: Descriptor) -> AbstractContextManager[Blob]:
        """Open a layer."""


@contextmanager
def opened(layer: Layer, registry: Blobs, budget: Budget) -> Iterator[tuple[Blob, Feed]]:
    """A layer's bytes as they come, and what they unpack to.

    Raises:
        BadInput: the layer is encrypted.
    """
    if layer.descriptor.media_type.endswith("+encrypted"):
        raise BadInput(f"{layer.name} is encrypted", field="image")
    with registry.blob(layer.descriptor) as blob, ahead(decompressed(blob, budget)) as pieces:
        yield blob, Feed(pieces)
