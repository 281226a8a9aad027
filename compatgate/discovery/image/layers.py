"""Read layers from the top down, each as a stream, and gather findings file by file."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from compatgate.discovery.image import files
from compatgate.discovery.image.file_reading import (
    DATABASES,
    LARGEST_TEXTS,
    FileCode,
    FileReader,
    FileReading,
    LayerRecords,
    largest_text,
)
from compatgate.discovery.image.files import FileKind, find_owner, is_cached, kind_of_file
from compatgate.discovery.image.layer import Budget, Layer, LayerSource, open_layer
from compatgate.discovery.image.layer_findings import LayerFindings, WitnessKind, is_hashed
from compatgate.discovery.image.reading import INTERPRETER
from compatgate.discovery.image.tar import Content, Member, read_members
from compatgate.discovery.image.visibility import Visibility
from compatgate.discovery.installed_metadata import (
    FILE_LISTS,
    Distribution,
    read_conda_record,
    trim_metadata,
)
from compatgate.discovery.installed_packages import InstalledFile
from compatgate.discovery.libraries import observe_major
from compatgate.discovery.registry.limits import Deadline, ImageOptions, too_large_error
from compatgate.discovery.signals import CUDA_COMPAT, Signals, observe_package

_SYSTEM_PACKAGES = re.compile(rb"(?im)^\s*include-system-site-packages\s*=\s*true")
_MOST_TEXT_BYTES = 64 * 1024 * 1024
"""Bytes of a layer's metadata that are remembered for hard links to it."""
_MOST_FOLDERS = 256
"""Folders of a ``.pth`` file that count."""
_LIBRARY_HELP = "the names of its libraries were read"


class LayerScan:
    """A scan of an image's layers; ``watched`` are folders whose links are recorded, if known."""

    def __init__(self, signals: Signals, options: ImageOptions, deadline: Deadline) -> None:
        self.seen = LayerFindings()
        self.count = 0
        self.verified = True
        self.watched: frozenset[str] | None = None
        self._signals = signals
        self._options = options
        self._deadline = deadline
        self._budget = Budget(options.limits, self._check)
        self._reader = FileReader(signals, self._check)
        self._records = LayerRecords(options.cache, signals, self._reader)
        self._layer = ""
        self._visibility = Visibility(
            options.limits,
            lambda what: self.seen.note(
                f"{self._layer} {what}: which file a container gets depends on its runtime"
            ),
        )
        self._members = 0
        self._wanted = 0
        self._linked: dict[str, FileCode] = {}  # code of this layer's files, for links
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
        if record := self._records.find(layer):
            nothing = FileReading()
            with layer.named():
                self._budget.take(record.unpacked, record.unpacked, layer.descriptor.size)
                for number, member in enumerate(record.members):
                    self._take(layer, member, record.files.get(number, nothing))
            return
        recording = self._records.begin(layer)
        with open_layer(layer, registry, self._budget) as (blob, feed):
            with layer.named():
                for member, content in read_members(feed):
                    reading = recording.take(member, content) if recording else content
                    self._take(layer, member, reading)
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
        if recording:
            self._records.keep(layer, recording, feed.position)

    def _has_all(self) -> bool:
        needs = self._options.needs
        return bool(needs) and self.seen.components().issuperset(needs)

    def _check(self) -> None:
        self._deadline.check("reading the image")

    def _take(self, layer: Layer, member: Member, content: Content | FileReading) -> None:
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
        visible = self._visibility.visible(member.path)
        if visible:
            self._visibility.count(member.path)
        elif not is_cached(member.path):  # links lead to files in caches
            return
        if member.sparse:
            self.seen.note(f"{layer.name}: {member.path} is a sparse file, which is not read")
            return
        self._wanted += 1
        if self._wanted > self._options.limits.wanted:
            raise too_large_error(f"the image has more than {self._wanted - 1} files of interest")
        if isinstance(content, FileReading):
            reading = content
        else:
            reading = self._reader.read(kind, member, content)
        origin = f"{layer.name}: {member.path}"
        if kind is not None and not is_cached(member.path):
            self.seen.paths[origin] = member.path
        if kind in LARGEST_TEXTS:
            reading = FileReading(text=self._text(kind, member, reading.text, origin))
        elif member.kind == "hardlink" and kind in DATABASES:
            self.seen.note(f"{origin} is a hard link, which is not read")
        if kind is not None and (visible or kind != "dist-info"):
            _READERS[kind](self, kind, member, reading, origin)
        if hashed:
            self._add_content(member, reading.digest)
        if reading.program and member.path in self.seen.interpreters:
            self.seen.interpreters[member.path] = ""

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
            if not is_program:
                self.seen.links[path] = member.link
                return
            found = self.seen.interpreters  # a file is a script until it was read
            linked = found.get(member.link) if member.kind == "hardlink" else None
            found[path] = member.link if link else "" if linked == "" else None

    def _text(self, kind: FileKind, member: Member, text: bytes | None, origin: str) -> bytes:
        """Return the text of a small file, also where it is a hard link to an earlier one."""
        file = member.path.rpartition("/")[2]
        why = f"is larger than {largest_text(kind, file)} bytes"
        if member.kind == "hardlink":
            text, why = self._texts.get(member.link), "is a hard link to a file that was not read"
        elif text is not None:
            trimmed = trim_metadata(file, text) if kind == "dist-info" else text
            self._text_bytes += len(trimmed)
            if self._text_bytes <= _MOST_TEXT_BYTES:
                self._texts[member.path] = trimmed
        if text is None:
            self.seen.note(f"{origin} {why}")
        return text or b""

    def _add_content(self, member: Member, digest: str | None) -> None:
        """Add a file to the GPU content, by its digest."""
        if member.kind == "symlink":
            digest = f"link:{member.link}"
        elif member.kind == "hardlink":
            digest = self._digests.get(member.link)
        elif digest:
            self._digests[member.path] = digest
        self.seen.content.add_file(member.path, digest)

    def _distribution(self, _: FileKind, member: Member, reading: FileReading, origin: str) -> None:
        folder, file = posixpath.split(member.path)
        data = reading.text
        cached = is_cached(member.path)
        one = Distribution.at(folder) if cached else self.seen.inventory.distribution(folder)
        if data:
            one.take(file, data, origin)
            if file in FILE_LISTS and not cached:
                self.seen.content.add_list(folder, data)
        if file not in ("METADATA", "PKG-INFO"):
            return
        if not one.name and (named := files.parse_folder_name(folder)):
            one.identify(*named, origin)
        if not one.name:
            return
        distribution = files.observe_distribution(one.name, one.version, origin)
        if cached:
            self.seen.cached += distribution
            return
        self.seen.add_distribution(one.name, member.path)
        self.seen.add(WitnessKind.WHEEL, distribution)
        self.seen.add(WitnessKind.LABEL, files.read_cuda_label(distribution))

    def _observe(self, kind: FileKind, member: Member, reading: FileReading, origin: str) -> None:
        """Read a small text file, or a library whose name states its version."""
        path, seen, text = member.path, self.seen, reading.text or b""
        if kind == "toolkit":
            version = files.read_toolkit_version(path, text, origin)
            seen.add(WitnessKind.TOOLKIT, [version])
        elif kind == "library-path":
            seen.add(WitnessKind.LIBRARY, files.read_library_path(text, origin))
        elif kind == "venv":
            seen.venvs[posixpath.dirname(path)] = _SYSTEM_PACKAGES.search(text) is None
        elif is_cached(path):
            return
        elif kind == "path-file":
            lines = (line.strip() for line in text.decode("utf-8", "replace").splitlines())
            folders = [
                one for one in lines if one and not one.startswith(("#", "import ", "import\t"))
            ]
            seen.path_files[path] = folders[:_MOST_FOLDERS]
        elif kind == "torch":
            seen.add(WitnessKind.FRAMEWORK, files.read_torch_version(text, origin))
        elif kind == "conda":
            seen.add(WitnessKind.CONDA, files.observe_conda_package(path, origin, self._signals))
            if record := read_conda_record(path, text, origin):
                seen.inventory.distributions[path] = record
        else:
            library = files.observe_library_file(path, origin)
            seen.add(WitnessKind.LIBRARY, [library])
            if library is None and (major := observe_major(path)):
                seen.majors.append(replace(major, origin=origin))
            elif library is None and files.is_toolkit_compat(path):
                seen.note(f"{origin} does not say for which CUDA it is")

    def _packages(self, kind: FileKind, member: Member, reading: FileReading, origin: str) -> None:
        if kind == "rpm-log":
            if member.size:  # rpm empties this log when it closes the database
                what = "holds changes of the package database, which were not read"
                self.seen.note(f"{origin} {what}; {_LIBRARY_HELP}")
            return
        if reading.why:
            self.seen.note(
                f"the package database {origin} was not read: {reading.why}; {_LIBRARY_HELP}"
            )
        notes: list[str] = []
        for name, version in reading.packages:
            where = f"{origin}: {name} {version}"
            package = observe_package(name, version, where, self._signals, notes)
            if package and package.component != CUDA_COMPAT:  # which its library shows
                self.seen.add(WitnessKind.PACKAGE, [package])
        for sentence in notes:
            self.seen.note(sentence)

    def _code(self, kind: FileKind, member: Member, reading: FileReading, origin: str) -> None:
        known = reading.code
        if member.kind == "hardlink":
            known = self._linked.get(member.link)
            if known is None and hash(member.link) not in self._skipped:
                self.seen.note(f"{origin} is a hard link to a file that was not read")
        elif known:
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
        if known.counts and not is_hashed(member):
            self._add_content(member, reading.digest)
        if known.code.arch or known.code.linked:
            code = replace(known.code, origin=origin, owner=find_owner(member.path))
            self.seen.codes.append(code)


_Reader = Callable[[LayerScan, FileKind, Member, FileReading, str], None]
_READERS: dict[FileKind, _Reader] = {
    "dist-info": LayerScan._distribution,
    **dict.fromkeys(("torch", "conda", "library", "toolkit"), LayerScan._observe),
    **dict.fromkeys(("library-path", "venv", "path-file"), LayerScan._observe),
    **dict.fromkeys(("dpkg", "apk", "rpm", "rpm-log"), LayerScan._packages),
    **dict.fromkeys(("code", "kernel"), LayerScan._code),
}
