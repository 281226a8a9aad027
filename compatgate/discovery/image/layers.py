"""Reads layers from the top down, each as a stream, and takes from them what tells something."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from compatgate.discovery.gpucode import GpuCode, read_gpu_code
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
from compatgate.discovery.libraries import major_observation
from compatgate.discovery.signals import Signals
from compatgate.discovery.stack import CodeFile
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
        self._linked: dict[str, CodeFile] = {}  # code of this layer's files, for links

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
        named = files.distribution(member.path, content)
        if named is None or is_cached(member.path):
            return
        found = files.of_distribution(*named, origin)
        self.seen.add_distribution(named[0], member.path)
        self.seen.add(Witness.WHEEL, found)
        self.seen.add(Witness.LABEL, files.cuda_label(found))

    def _torch(self, _: Kind, member: Member, content: Content, origin: str) -> None:
        if not is_cached(member.path):
            self.seen.add(Witness.FRAMEWORK, files.torch_version(content, origin))

    def _conda(self, _: Kind, member: Member, content: Content, origin: str) -> None:
        if not is_cached(member.path):
            found = files.conda_package(member.path, origin, self._signals)
            self.seen.add(Witness.CONDA, found)

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

    def _code(self, _: Kind, member: Member, content: Content, origin: str) -> None:
        if member.kind == "hardlink":
            known = self._linked.get(member.link)
        else:
            known = CodeFile.of(origin, "", self._code_of(content, origin))
            self._linked[member.path] = known
        if known and (known.arch or known.linked) and not is_cached(member.path):
            self.seen.codes.append(replace(known, origin=origin, owner=owner(member.path)))

    def _code_of(self, content: Content, origin: str) -> GpuCode:
        size = content.left
        head = content.read(min(len(_ELF), size))
        if head != _ELF:
            return GpuCode()
        try:
            return read_gpu_code(_Begun(head, content), size=size, name=origin)
        except BadInput as error:
            self.seen.note(f"{origin} cannot be read and may hold GPU code: {error.problem}")
            return GpuCode()


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
