"""A folder of an image, as its containers see it: streamed from its layers, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from compatgate.discovery.image.deadline import Deadline
from compatgate.discovery.image.feed import Content, Member
from compatgate.discovery.image.layer import Layer, opened
from compatgate.discovery.image.manifest import parse_platform
from compatgate.discovery.image.options import ImageOptions
from compatgate.discovery.image.problems import too_large
from compatgate.discovery.image.read import DEADLINE_S, resolve
from compatgate.discovery.image.reference import parse_reference
from compatgate.discovery.image.registry import Registry, places
from compatgate.discovery.image.stream import Budget
from compatgate.discovery.image.tar import members
from compatgate.discovery.image.transport import Transport
from compatgate.discovery.image.visibility import Visibility
from compatgate.errors import BadInput


class Kept(Struct, frozen=True):
    """A file of the folder.

    Attributes:
        executable: any of its execute bits is set.
    """

    data: bytes
    executable: bool


class Folder(Struct, frozen=True):
    """The folder.

    Attributes:
        digest: of the image's manifest.
        files: by path below the folder; empty where the image has no such folder.
    """

    digest: str
    files: dict[str, Kept]


def read_folder(
    reference: str,
    path: str,
    *,
    most_files: int,
    most_bytes: int,
    platform: str = "linux/amd64",
    options: ImageOptions | None = None,
    deadline_s: float = DEADLINE_S,
) -> Folder:
    """Read a folder out of an image in its registry.

    Args:
        reference: ``registry.example/team/app:1.2``, ``app@sha256:...``.
        path: of the folder, without leading slash.
        most_files: that it may hold.
        most_bytes: that they may have together.
        platform: which image of an index is meant.
        options: mirrors, TLS, credentials, limits.
        deadline_s: seconds that all of it may take.

    Raises:
        BadInput: the reference is none, or the folder holds a link or something else than files.
        NotFound: the registry has no such image.
        TooLarge: the folder, or the image, holds more than is read.
        Unavailable: the registry does not answer in time, or refuses.
        Damaged: a layer is not what its digest says.
    """
    options = options or ImageOptions()
    name = parse_reference(reference)
    with Deadline(deadline_s) as deadline, Transport(options, deadline) as transport:
        found = resolve(places(name, transport, options), name, parse_platform(platform), deadline)
        layers = [Layer(n, d) for n, d in enumerate(found.manifest.layers, 1)]
        if len(layers) > options.limits.layers:
            raise too_large(f"the image has {len(layers)} layers")
        reader = _Reader(path, most_files, most_bytes, options, deadline)
        for layer in reversed(layers):
            reader.read(layer, found.registry)
        return Folder(found.digest, dict(sorted(reader.files.items())))


class _Reader:
    """Takes the folder's files from the layers, the highest first."""

    def __init__(
        self, path: str, most_files: int, most_bytes: int, options: ImageOptions, deadline: Deadline
    ) -> None:
        self.files: dict[str, Kept] = {}
        self._path = path
        self._most_files = most_files
        self._left = most_bytes
        self._members = 0
        self._limits = options.limits
        check: Callable[[], None] = lambda: deadline.check("reading the image")  # noqa: E731
        self._budget = Budget(options.limits, check)
        self._visibility = Visibility(options.limits)

    def read(self, layer: Layer, registry: Registry) -> None:
        """Read a layer to its end, so that it is known to be what its digest says."""
        with opened(layer, registry, self._budget) as (blob, feed):
            with layer.named():
                for member, content in members(feed):
                    self._take(member, content)
                feed.drain()
            blob.drain()
        self._visibility.next_layer()
        if self._visibility.full:
            raise too_large("the image has so many files that not all hidden ones are remembered")

    def _take(self, member: Member, content: Content) -> None:
        self._members += 1
        if self._members > self._limits.members:
            raise too_large(f"the image has more than {self._members - 1} files")
        if self._visibility.whiteout(member.path):
            return
        inside = member.path == self._path or member.path.startswith(f"{self._path}/")
        self._visibility.take(member, wanted=inside)
        if inside and member.kind != "dir" and self._visibility.visible(member.path):
            self._keep(member, content)

    def _keep(self, member: Member, content: Content) -> None:
        below = member.path.removeprefix(f"{self._path}/")
        if member.kind != "file" or below == self._path or not _is_plain(below):
            hint = "links and devices are not copied; put the file itself there"
            raise BadInput(f"/{member.path} is not a plain file", field="image", hint=hint)
        data = content.read_all(self._left)
        if data is None or len(self.files) >= self._most_files:
            what = f"/{self._path} holds more than {self._most_files} files or too many bytes"
            raise too_large(what)
        self._left -= len(data)
        self.files[below] = Kept(data, member.executable)


def _is_plain(path: str) -> bool:
    """Whether a path leads nowhere else, and can be written."""
    return "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))
