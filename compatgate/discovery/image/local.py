"""Read the stack of an image in a file or folder, without an engine and without unpacking.

Read are OCI layouts (``oci:DIR[:REF]``, ``oci-archive:FILE[:REF]``), archives of ``docker save``
(``docker-archive:FILE[:REF]``), archives of a root filesystem (``docker export``), and root
filesystems in SquashFS: Apptainer's and Singularity's ``.sif``, enroot's ``.sqsh``. A plain path is
told by its content.

Sources: containers/image ``docs/containers-transports.5.md``; apptainer/apptainer
``internal/pkg/build/sources/conveyorPacker_oci.go`` (``.singularity.d``); NVIDIA/enroot
``src/docker.sh`` (variables in ``/etc/environment``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from compatgate.discovery.image import archives, squashfs
from compatgate.discovery.image.archives import ArchiveFiles, FolderFiles, is_layout, root_members
from compatgate.discovery.image.layer import Budget, Layer, is_compressed
from compatgate.discovery.image.layers import LayerScan
from compatgate.discovery.image.read import DEADLINE_S, ImageWork
from compatgate.discovery.image.reading import ImageReading
from compatgate.discovery.image.squashfs import SquashFs
from compatgate.discovery.image.stored import StoredImage, read_layout, read_saved
from compatgate.discovery.image.tar import Content, Member
from compatgate.discovery.registry.image_spec import (
    Config,
    Descriptor,
    Platform,
    Settings,
    parse_config,
    parse_platform,
)
from compatgate.discovery.registry.limits import Deadline, ImageOptions
from compatgate.discovery.signals import COMPAT_USE, CUDA_COMPAT, Signals, read_signals
from compatgate.errors import BadInput, CompatgateError, NotFound, quote_error
from compatgate.strict_json import DECODE_ERRORS

LAYOUT, LAYOUT_ARCHIVE, SAVED = "oci", "oci-archive", "docker-archive"
_READ = (LAYOUT, LAYOUT_ARCHIVE, SAVED)
_UNREAD = ("dir", "docker-daemon", "containers-storage", "ostree", "sif", "tarball", "docker-dir")
READ_FORMS = (
    "oci:DIR[:REF], oci-archive:FILE[:REF], docker-archive:FILE[:REF], a tar of docker save or of a"
    " root filesystem (also gzip or zstd), a .sif of Apptainer, a .sqsh of enroot"
)
_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".sif", ".simg", ".sqsh", ".sqfs", ".squashfs")
_TAR_AT, _TAR_MAGIC = 257, b"ustar"
_HEAD = 512


def is_local_image(text: str) -> bool:
    """Return whether a reference names an image in a file or folder, and not in a registry.

    A folder counts as an OCI layout alone; a file by its ending or its content.
    """
    transport, colon, rest = text.partition(":")
    if colon and transport in (LAYOUT_ARCHIVE, SAVED):
        return True
    if colon and transport == LAYOUT:  # a registry may have a repository of this name
        return rest.startswith(("/", ".", "~")) or os.path.isdir(_split_ref(rest)[0])
    if colon and transport in _UNREAD:
        return rest.startswith(("/", ".", "[")) or os.path.exists(rest)
    if os.path.isdir(text):
        return is_layout(text)
    if not os.path.isfile(text) or text.endswith(_ENDINGS):
        return os.path.isfile(text)
    try:
        return _kind(text) in ("sif", "squashfs")
    except OSError:  # whoever reads the file says why it cannot be read
        return False


def read_local_image(
    reference: str,
    *,
    signals: Mapping[str, Any],
    platform: str = "linux/amd64",
    deadline_s: float = DEADLINE_S,
    options: ImageOptions | None = None,
) -> ImageReading:
    """Read the stack of an image in a file or folder."""
    options = options or ImageOptions()
    transport, path, ref = _split(reference)
    wanted = parse_platform(platform)
    with Deadline(deadline_s) as deadline, _file_errors(path):
        read = _Reader(path, ref, wanted, read_signals(signals), options, deadline)
        return read.as_transport(transport) if transport else read.as_content()


def _split(reference: str) -> tuple[str, str, str]:
    """Return transport, path, and the name of the image within the file."""
    transport, colon, rest = reference.partition(":")
    if colon and transport in _UNREAD and not os.path.exists(reference):
        problem = f"images of the transport {transport}: are not read"
        raise BadInput(problem, field="image", value=reference, hint=f"supported: {READ_FORMS}")
    if colon and transport in _READ and not os.path.exists(reference):
        return (transport, *_split_ref(rest))
    return "", os.path.expanduser(reference), ""


def _split_ref(text: str) -> tuple[str, str]:
    """Return the path and the name after it, which has colons of its own."""
    text = os.path.expanduser(text)
    if os.path.exists(text):
        return text, ""
    for match in re.finditer("[:@]", text):
        if match.start() and os.path.exists(text[: match.start()]):
            return text[: match.start()], text[match.end() :]
    path, _, ref = text.partition(":")
    return path, ref


@contextmanager
def _file_errors(path: str) -> Iterator[None]:
    """Name the file in errors about it."""
    try:
        yield
    except FileNotFoundError:
        raise NotFound("the file or folder does not exist", field=path) from None
    except OSError as error:
        raise BadInput(f"cannot be read: {quote_error(error)}", field=path) from None
    except CompatgateError as error:
        if error.field == "image":
            error.field = path
        elif error.field and error.field.startswith("image: "):
            part = error.field.removeprefix("image: ")
            error.field = path if part == os.path.basename(path) else f"{path}: {part}"
        raise


def _kind(path: str) -> str:
    with open(path, "rb") as file:
        head = file.read(_HEAD)
    if head.startswith(squashfs.MAGIC):
        return "squashfs"
    if head[archives.MAGIC_AT :].startswith(archives.MAGIC):
        return "sif"
    is_tar = is_compressed(head) or head[_TAR_AT:].startswith(_TAR_MAGIC)
    return "tar" if is_tar else ""


class _Reader:
    def __init__(
        self,
        path: str,
        ref: str,
        wanted: Platform,
        signals: Signals,
        options: ImageOptions,
        deadline: Deadline,
    ) -> None:
        self._path, self._ref, self._wanted = path, ref, wanted
        self._signals, self._options, self._deadline = signals, options, deadline
        self._check = partial(deadline.check, "reading the image")
        self._name = os.path.basename(os.path.abspath(path))
        self._reference = f"file://{self._name}"
        """The name that a verdict states, which is no reference to a registry."""

    def as_transport(self, transport: str) -> ImageReading:
        """Read the file as what the reference says it is."""
        if transport == LAYOUT:
            if not is_layout(self._path):
                os.stat(self._path)
                raise BadInput("is not an OCI layout: it has no file oci-layout", field=self._path)
            return self._layout(FolderFiles(self._path))
        archive = ArchiveFiles(self._path, self._options.limits, self._check)
        if transport == LAYOUT_ARCHIVE:
            return self._layout(archive)
        return self._layered(read_saved(archive, self._name, self._ref))

    def as_content(self) -> ImageReading:
        """Read the file as what its content says."""
        if os.path.isdir(self._path):
            return self.as_transport(LAYOUT)
        kind = _kind(self._path)
        if kind in ("sif", "squashfs"):
            return self._squashed(kind)
        if kind != "tar":
            problem = "is not an image file"
            raise BadInput(problem, field=self._path, hint=f"use one of: {READ_FORMS}")
        archive = ArchiveFiles(self._path, self._options.limits, self._check)
        if archive.is_root:
            return self._one_layer(root_members(archive), "", [])
        if archive.find("index.json") and archive.find("oci-layout"):
            return self._layout(archive)
        if archive.find("manifest.json"):
            return self._layered(read_saved(archive, self._name, self._ref))
        problem = "is a tar archive, but neither of an image nor of a root filesystem"
        raise BadInput(problem, field=self._path, hint=f"supported: {READ_FORMS}")

    def _work(self, name: str) -> ImageWork:
        return ImageWork(name, self._wanted, self._signals, self._options, self._deadline)

    def _layout(self, files: FolderFiles | ArchiveFiles) -> ImageReading:
        return self._layered(read_layout(files, self._wanted, self._name, self._ref))

    def _layered(self, image: StoredImage) -> ImageReading:
        """Read an image of layers, as one in a registry."""
        config = parse_config(image.config, self._name)
        reading, _ = self._work(self._name).read(config, image.layers, image.source)
        return replace(
            reading,
            reference=self._reference,
            digest=image.digest,
            index=image.index,
            open=(*reading.open, *image.open),
        )

    def _squashed(self, kind: str) -> ImageReading:
        size = os.path.getsize(self._path)
        with open(self._path, "rb") as file:
            begin, length, cpu, left = 0, size, "", []
            if kind == "sif":
                partition = archives.find_partition(file, size)
                begin, length, cpu = partition.offset, partition.size, partition.architecture
                if partition.overlay:
                    left.append("the writable overlay of the image was not read")
            budget = Budget(self._options.limits, self._check)
            image = SquashFs(file, begin, length, budget)
            return self._one_layer(image.members(), cpu, left)

    def _one_layer(
        self, members: Iterator[tuple[Member, Content]], cpu: str, left: list[str]
    ) -> ImageReading:
        """Read a root filesystem: one layer, with the variables that its files state."""
        scan = LayerScan(self._signals, self._options, self._deadline)
        stated = _StatedConfig()
        layer = Layer(1, Descriptor("", 0), self._name)
        scan.read_members(layer, stated.pass_by(members))
        config = stated.config(cpu)
        reading = self._work(self._reference).conclude(config, scan, 1, left)
        if CUDA_COMPAT in reading.stack_body and not stated.found:
            seen = any(one.component == COMPAT_USE for one in reading.observations)
            what = "the file states no variables: whether cuda-compat is loaded is not known"
            reading = reading if seen else replace(reading, open=(*reading.open, what))
        return reading


_LARGEST_TEXT = 256 * 1024
_MAX_VARIABLES, _MAX_FILES = 2_000, 100
_ENVIRONMENT = "etc/environment"
_APPTAINER = re.compile(r"\.singularity\.d/env/[^/]+\.sh")
_LABELS = ".singularity.d/labels.json"
_EXPORT = re.compile(r"^export ([A-Za-z_]\w*)=(.*)$", re.MULTILINE)
_DEFAULT = re.compile(r'"?\$\{(?P<name>\w+):-(?P<value>.*)\}"?')
_ASSIGNED = re.compile(r"^([A-Za-z_]\w*)=(.*)$", re.MULTILINE)


class _StatedConfig:
    """The variables and labels that files of a root filesystem state."""

    def __init__(self) -> None:
        self._variables: dict[str, list[tuple[str, str]]] = {}
        self._labels: dict[str, str] = {}

    @property
    def found(self) -> bool:
        """Return whether a file states variables."""
        return any(self._variables.values())

    def pass_by(
        self, members: Iterator[tuple[Member, Content]]
    ) -> Iterator[tuple[Member, Content]]:
        """Yield members, after those that state variables were read."""
        for member, content in members:
            if member.kind == "file" and member.size <= _LARGEST_TEXT:
                self._take(member.path, content)
            yield member, content

    def _take(self, path: str, content: Content) -> None:
        is_script = _APPTAINER.fullmatch(path) is not None
        if not is_script and path not in (_ENVIRONMENT, _LABELS):
            return
        text = (content.read_all(_LARGEST_TEXT) or b"").decode("utf-8", "replace")
        if path == _LABELS:
            with suppress(*DECODE_ERRORS):
                document = msgspec.json.decode(text)
                labels = document if isinstance(document, dict) else {}
                self._labels |= {k: value for k, value in labels.items() if isinstance(value, str)}
        elif len(self._variables) < _MAX_FILES:
            pattern = _EXPORT if is_script else _ASSIGNED
            self._variables[path] = pattern.findall(text)[:_MAX_VARIABLES]

    def config(self, cpu: str) -> Config:
        """Return what the files state, in the form of an image's config; later files win."""
        stated = {
            name: _unquote(value)
            for path in sorted(self._variables)
            for name, value in self._variables[path]
        }
        env = [f"{name}={value}" for name, value in stated.items()]
        return Config("linux" if cpu else "", cpu, config=Settings(env, labels=self._labels))


def _unquote(value: str) -> str:
    """Return ``12.4`` of ``"${CUDA_VERSION:-"12.4"}"``, as Apptainer writes defaults."""
    value = value.strip()
    if match := _DEFAULT.fullmatch(value):
        value = match["value"]
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return re.sub(r"\\(.)", r"\1", value)
