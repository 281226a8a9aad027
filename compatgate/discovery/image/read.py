"""Read an image: manifest, config, then its layers.

`read_folder` reads one folder of an image as its containers see it, streamed from its layers in
bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import combinations
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.components import MAX_STACKS, resolve_component
from compatgate.core.facts.nvidia import CudaArch
from compatgate.core.facts.packages import NO_KNOWN_PACKAGES, Packages
from compatgate.discovery.findings import Inspection, conclude, find_toolkits
from compatgate.discovery.image.config import ConfigReading, read_config
from compatgate.discovery.image.installations import (
    find_interpreters,
    split_findings,
    watched_folders,
)
from compatgate.discovery.image.layer import Budget, Layer, LayerSource, open_layer
from compatgate.discovery.image.layer_findings import LayerFindings, WitnessKind, compute_content
from compatgate.discovery.image.layers import LayerScan
from compatgate.discovery.image.reading import (
    ImageReading,
    Interpreters,
    ReadingCache,
    join_readings,
)
from compatgate.discovery.image.tar import Content, Member, read_members
from compatgate.discovery.image.visibility import Visibility
from compatgate.discovery.observations import Observation
from compatgate.discovery.registry.client import Registry, list_registries
from compatgate.discovery.registry.image_spec import (
    Config,
    Descriptor,
    Manifest,
    Platform,
    Reference,
    choose_manifests,
    parse_config,
    parse_manifest,
    parse_platform,
    parse_reference,
)
from compatgate.discovery.registry.limits import (
    Deadline,
    ImageOptions,
    damaged_error,
    too_large_error,
)
from compatgate.discovery.registry.transport import Transport
from compatgate.discovery.signals import COMPAT_USE, CUDA_COMPAT, Signals, read_signals
from compatgate.discovery.stated_stack import attach_remarks
from compatgate.discovery.wheels.measure import list_ptx_toolkits
from compatgate.errors import BadInput, DamagedContent, NotFound, Unavailable

DEADLINE_S = 300.0
_DEEPEST_INDEX = 3
OUTSIDE = "outside of installations"
"""Name of the stack of what belongs to no installation."""
_MOST_IMAGES = 4
"""Images of one platform that are read in an index: amd64 has four levels."""


class ResolvedImage(Struct, frozen=True):
    """The manifest of an image, and the registry that has it."""

    registry: Registry
    digest: str
    manifest: Manifest


class ResolvedImages(Struct, frozen=True):
    """The images that a runtime may run for a reference, containerd's first choice in front.

    ``index`` is the digest of the index that names them, if one does.
    """

    images: list[ResolvedImage]
    index: str | None
    open: tuple[str, ...] = ()


def read_image(
    reference: str,
    *,
    signals: Mapping[str, Any],
    platform: str = "linux/amd64",
    deadline_s: float = DEADLINE_S,
    options: ImageOptions | None = None,
) -> ImageReading:
    """Read the stack of an image in a registry."""
    options = options or ImageOptions()
    special = ("arch", CUDA_COMPAT)
    needs = (n if n in special else resolve_component(n).component.name for n in options.needs)
    options = replace(options, needs=tuple(dict.fromkeys(needs)))
    name = parse_reference(reference)
    wanted = parse_platform(platform)
    with Deadline(deadline_s) as deadline, Transport(options, deadline) as transport:
        stored = ReadingCache(options, wanted, signals)
        known = stored.find(name.digest)
        registries = list_registries(name, transport, options)
        if not known and options.cache and not name.digest:  # ask for the current digest alone
            for registry in registries:
                with suppress(Unavailable, NotFound):
                    known = stored.find(registry.digest_of(name.locator))
                    break
        if not known:
            resolved = resolve_images(registries, name, wanted, deadline)
            work = ImageWork(str(name), wanted, read_signals(signals), options, deadline)
            readings = []
            for image in resolved.images:
                reading = stored.find(image.digest)
                if not reading:
                    config = parse_config(image.registry.config(image.manifest.config), str(name))
                    reading, verified = work.read(config, image.manifest.layers, image.registry)
                    read = transport.bytes_read
                    reading = replace(reading, digest=image.digest, bytes_read=read)
                    if verified:
                        stored.keep(reading)
                readings.append(reading)
            known = join_readings(readings, resolved.open)
            if resolved.index:
                known = replace(known, index=resolved.index)
                if all(stored.find(image.digest) for image in resolved.images):
                    stored.keep_index(known)
        return replace(known, reference=str(name), bytes_read=transport.bytes_read)


class ImageWork(Struct, frozen=True):
    """An image to read; ``wanted`` is the platform that it must be for."""

    name: str
    wanted: Platform
    signals: Signals
    options: ImageOptions
    deadline: Deadline

    def read(
        self, config: Config, layers: Sequence[Descriptor], source: LayerSource
    ) -> tuple[ImageReading, bool]:
        """Read layers, the lowest first in the list.

        Return the reading, without digests, and whether all its bytes were verified.
        """
        check_platform(config, self.wanted, self.name)
        diff_ids = config.diff_ids or [""] * len(layers)
        if len(diff_ids) != len(layers):
            raise damaged_error(f"it has {len(layers)} layers, its config states {len(diff_ids)}")
        numbered = [
            Layer(n, d, diff_id=diff_id)
            for n, (d, diff_id) in enumerate(zip(layers, diff_ids, strict=True), 1)
        ]
        scan = LayerScan(self.signals, self.options, self.deadline)
        scan.watched = watched_folders(config)
        open_items = []
        if self.options.layers != "none":
            scan.read(numbered[::-1], source)
        elif layers:
            open_items = ["the layers were not read, as requested"]
        return self.conclude(config, scan, len(numbered), open_items), scan.verified

    def conclude(
        self, config: Config, scan: LayerScan, layers: int, left: list[str]
    ) -> ImageReading:
        """Return the reading of an image from its config and the layers that were read."""
        check_platform(config, self.wanted, self.name)
        stated = read_config(config, self.signals)
        scan.seen.note_cached()
        unshown = _find_unshown(stated.observations, scan.seen, self.options.arch_facts)
        open_items = [*left, *unshown] if self.options.layers != "none" else left
        found, names = _conclude_installations(stated, scan.seen, self.options)
        open_items = [*open_items, *found.open]
        if not found.observations:
            open_items.append("no component or package that needs a GPU was found in the image")
        elif not found.stack:
            open_items.append("no whole version of a component was found in the image")
        files: dict[str, str] = {}
        content = None  # where files were left out by request, or not read to the end
        if self.options.layers != "none" and scan.verified:
            distributions = scan.seen.inventory.distributions
            packages = {folder: one.name for folder, one in distributions.items()}
            environment = (config.config.env if config.config else None) or ()
            parts = scan.seen.content
            content = compute_content(found.stack, parts, packages, environment)
            files = parts.sample_files()
        whole = scan.watched is not None and self.options.layers != "none"
        return ImageReading(
            reference=self.name,
            digest="",
            platform=str(config.platform if config.os else self.wanted),
            stack_body=found.stack,
            observations=found.observations,
            conflicts=found.conflicts,
            open=tuple(open_items),
            layers=layers,
            layers_read=scan.count,
            content=content,
            files=files,
            installations=names,
            interpreters=find_interpreters(scan.seen, config) if whole else Interpreters(),
        )


def _find_unshown(
    stated: Iterable[Observation], seen: LayerFindings, facts: CudaArch | None
) -> Iterator[str]:
    """Yield a sentence about the CUDA that a config states, where no file shows one like it."""
    witnesses = [*(one for _, one in seen.observations), *find_toolkits(seen.codes, facts)]
    if not any(one.component == "cuda" for one in witnesses):
        majors = {one.version for one in seen.majors if one.component == "cuda"}
        for one in stated:
            if one.component == "cuda" and one.version.partition(".")[0] not in majors:
                yield f"CUDA {one.version} ({one.origin}) is shown by no file of the image"
                return


def _conclude_installations(
    stated: ConfigReading, seen: LayerFindings, options: ImageOptions
) -> tuple[Inspection, tuple[str, ...]]:
    """Return the stack of the largest installation, with the others as alternatives, and names."""
    found = {
        name or OUTSIDE: conclude_image(stated, part, options.arch_facts, options.packages)
        for name, part in split_findings(seen, options.arch_facts).items()
    }
    order = sorted(found, key=lambda name: (name == OUTSIDE, -len(found[name].stack), name))
    names: list[str] = []
    for name in order:
        own = found[name].stack.items()
        if not any(all(found[n].stack.get(k) == v for k, v in own) for n in names):
            names.append(name)
    stacks = [found[name].stack for name in names]
    if not any(_disagree(one, other) for one, other in combinations(stacks, 2)):
        whole = conclude_image(stated, seen, options.arch_facts, options.packages)
        return whole, ()
    main = found[names[0]]
    if len(names) > MAX_STACKS:
        what = f"the image has {len(names)} installations, of which {MAX_STACKS} are judged"
        main = replace(main, open=(*main.open, what))
        names = names[:MAX_STACKS]
    others = {
        name: attach_remarks(one.stack, set(one.open) - set(main.open), one.conflicts)
        for name in names[1:]
        for one in (found[name],)
    }
    observations = (*main.observations, *(o for n in names for o in found[n].observations))
    return replace(
        main,
        stack={**main.stack, "alternatives": others},
        observations=tuple(dict.fromkeys(observations)),
    ), tuple(names)


def _disagree(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two installations have another version, code or record of one part."""
    records = one.get("measured", {}), other.get("measured", {})
    return any(
        first[name] != second[name]
        for first, second in ((one, other), records)
        for name in first.keys() & second.keys() - {"python", "measured"}
    )


def conclude_image(
    stated: ConfigReading,
    seen: LayerFindings,
    facts: CudaArch | None,
    known: Packages = NO_KNOWN_PACKAGES,
) -> Inspection:
    """Conclude the stack; stated architectures count where no file has GPU code."""
    seen.add(WitnessKind.CONFIG, stated.observations)
    toolkits = list_ptx_toolkits(facts) if facts else {}
    found = conclude(seen.findings(known, toolkits), facts)
    stack, observations = dict(found.stack), found.observations
    if stated.arch and not {"arch", "measured"} & stack.keys():
        stack["arch"] = list(stated.arch)
        how = "env TORCH_CUDA_ARCH_LIST"
        observations += (Observation("arch", "+".join(stated.arch), how, "derived"),)
    if CUDA_COMPAT not in stack:
        stack.pop(COMPAT_USE, None)
    else:
        stack.setdefault(COMPAT_USE, "newer")  # as NVIDIA's container runtime loads it
    if stated.require:
        stack["require"] = list(stated.require)
    if stated.disable_require:
        stack["disable-require"] = True
    return replace(found, stack=stack, observations=observations)


def resolve_images(
    registries: Sequence[Registry], name: Reference, wanted: Platform, deadline: Deadline
) -> ResolvedImages:
    """Find the manifests at the first mirror that has them, else at the registry."""
    for registry in registries:
        try:
            return _resolve_at(registry, name, wanted)
        except (Unavailable, NotFound, DamagedContent):
            if registry is registries[-1] or not deadline.left:
                raise
    raise AssertionError("the registry itself is the last place")


def _resolve_at(registry: Registry, name: Reference, wanted: Platform) -> ResolvedImages:
    top = registry.manifest(name.locator)
    waiting, images, doubts = [(top, 0)], {}, list[str]()
    while waiting:
        found, depth = waiting.pop(0)
        document = parse_manifest(found.data, found.media_type, str(name))
        if isinstance(document, Manifest):
            images[found.digest] = ResolvedImage(registry, found.digest, document)
            continue
        if depth == _DEEPEST_INDEX:
            raise damaged_error(f"{name} is an index of indexes of indexes")
        chosen = choose_manifests(document, wanted, str(name))
        doubts += chosen.open
        room = max(1, _MOST_IMAGES - len(images) - len(waiting))
        if unread := [one.digest for one in chosen.descriptors[room:]]:
            doubts.append(f"the index has more images for {wanted}, not read: {', '.join(unread)}")
        for one in chosen.descriptors[:room]:
            waiting.append((registry.manifest(one.digest, one.size), depth + 1))
    index = None if top.digest in images else top.digest
    return ResolvedImages(list(images.values()), index, tuple(doubts[:_MOST_IMAGES]))


def check_platform(config: Config, wanted: Platform, name: str) -> None:
    """Refuse an image for another platform."""
    if not config.platform.fits(wanted):
        raise BadInput(
            f"{name} is for {config.platform}",
            field="platform",
            value=str(wanted),
            hint=f"state the platform {config.platform}, or name an image for {wanted}",
        )


class FolderFile(Struct, frozen=True):
    """A file of an image's folder."""

    data: bytes
    executable: bool


class ImageFolder(Struct, frozen=True):
    """A folder of an image: its files by path below it; none where the image lacks the folder."""

    digest: str
    files: dict[str, FolderFile]


def read_folder(
    reference: str,
    path: str,
    *,
    most_files: int,
    most_bytes: int,
    platform: str = "linux/amd64",
    options: ImageOptions | None = None,
) -> ImageFolder:
    """Read a folder out of an image in its registry."""
    options = options or ImageOptions()
    name = parse_reference(reference)
    with Deadline(DEADLINE_S) as deadline, Transport(options, deadline) as transport:
        (found, *_) = resolve_images(
            list_registries(name, transport, options), name, parse_platform(platform), deadline
        ).images
        layers = [Layer(n, d) for n, d in enumerate(found.manifest.layers, 1)]
        if len(layers) > options.limits.layers:
            raise too_large_error(f"the image has {len(layers)} layers")
        reader = _FolderReader(path, most_files, most_bytes, options, deadline)
        for layer in reversed(layers):
            reader.read(layer, found.registry)
        return ImageFolder(found.digest, dict(sorted(reader.files.items())))


class _FolderReader:
    """Collects a folder's files from the layers, the highest first."""

    def __init__(
        self, path: str, most_files: int, most_bytes: int, options: ImageOptions, deadline: Deadline
    ) -> None:
        self.files: dict[str, FolderFile] = {}
        self._path = path
        self._most_files = most_files
        self._left = most_bytes
        self._members = 0
        self._limits = options.limits
        self._budget = Budget(options.limits, partial(deadline.check, "reading the image"))
        self._visibility = Visibility(options.limits, _refuse_layer)

    def read(self, layer: Layer, registry: Registry) -> None:
        """Read a layer to its end, which verifies its digest."""
        with open_layer(layer, registry, self._budget) as (blob, feed):
            with layer.named():
                for member, content in read_members(feed):
                    self._take(member, content)
                feed.drain()
            blob.drain()
        self._visibility.next_layer()
        if self._visibility.full:
            raise too_large_error("the image has too many files to remember the hidden ones")

    def _take(self, member: Member, content: Content) -> None:
        self._members += 1
        if self._members > self._limits.members:
            raise too_large_error(f"the image has more than {self._members - 1} files")
        if self._visibility.whiteout(member.path):
            return
        inside = member.path == self._path or member.path.startswith(f"{self._path}/")
        self._visibility.take(member, wanted=inside)
        if inside and member.kind != "dir" and self._visibility.visible(member.path):
            self._visibility.count(member.path)
            below = member.path.removeprefix(f"{self._path}/")
            plain = "\0" not in below and not {"", ".", ".."} & set(below.split("/"))
            if member.kind != "file" or below == self._path or not plain:
                hint = "links and devices are not copied; replace it with the file itself"
                raise BadInput(f"/{member.path} is not a plain file", field="image", hint=hint)
            data = content.read_all(self._left)
            if data is None or len(self.files) >= self._most_files:
                what = f"/{self._path} holds more than {self._most_files} files or too many bytes"
                raise too_large_error(what)
            self._left -= len(data)
            self.files[below] = FolderFile(data, member.executable)


def _refuse_layer(what: str) -> None:
    raise BadInput(f"a layer of the image {what}", field="image", hint="build the image anew")
