"""The files of a container, read as the layers of an image are: streamed, never unpacked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from compatgate.core.facts import Facts
from compatgate.diagnostics.engine import Container, Engine
from compatgate.discovery.image import ImageOptions
from compatgate.discovery.image.config import read_config
from compatgate.discovery.image.deadline import Deadline
from compatgate.discovery.image.layer import Layer
from compatgate.discovery.image.layers import Scan
from compatgate.discovery.image.manifest import Config, Descriptor, Settings
from compatgate.discovery.image.read import concluded
from compatgate.discovery.signals import read_signals
from compatgate.discovery.stack import Inspection

DEADLINE_S = 600.0


def seen_in_files(
    engine: Engine,
    container: Container,
    signals: Mapping[str, Any],
    facts: Facts,
    *,
    deadline_s: float = DEADLINE_S,
) -> Inspection:
    """What a container's config and files hold.

    Args:
        engine: that the container runs on.
        container: as it was found there.
        signals: the fact file ``image_signals``, as the catalog gives it.
        facts: where code runs, and which packages matter.
        deadline_s: seconds that it may take.

    Raises:
        Unavailable: the engine stops answering, or takes too long.
        TooLarge: there are more files than are read.
    """
    published = read_signals(signals)
    config = Config(config=Settings(container.environment, container.labels))
    stated = read_config(config, published, 0)
    with Deadline(deadline_s) as deadline:
        scan = Scan(published, ImageOptions(layers="all"), deadline)
        layer = _FileSystem(1, Descriptor("", 0), container.short)
        scan.read([layer], _Export(engine, container))
    return concluded(stated, scan.seen, facts.arch, facts.packages)


class _Export:
    """A container's file system, as `Scan` reads layers."""

    def __init__(self, engine: Engine, container: Container) -> None:
        self._engine = engine
        self._container = container

    @contextmanager
    def blob(self, _: Descriptor) -> Iterator[_Stream]:
        with self._engine.files(self._container) as pieces:
            yield _Stream(pieces)


class _Stream:
    """Pieces as a file that is read once."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.position = 0
        self._pieces = pieces
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._rest = piece
        data, self._rest = self._rest[:size], self._rest[size:]
        self.position += len(data)
        return data

    def drain(self) -> None:
        self._rest = b""
        for piece in self._pieces:
            self.position += len(piece)


class _FileSystem(Layer, frozen=True):
    label: str = ""

    @property
    def name(self) -> str:
        return self.label
