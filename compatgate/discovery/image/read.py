"""Reading an image: manifest, config, then the layers that the config does not account for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.components import resolve_component
from compatgate.core.facts import CudaArch
from compatgate.core.facts.packages import FILES_ARE_READ, Packages
from compatgate.discovery.image.config import Stated, read_config
from compatgate.discovery.image.deadline import Deadline
from compatgate.discovery.image.kept import Kept
from compatgate.discovery.image.layer import Layer
from compatgate.discovery.image.layers import Scan
from compatgate.discovery.image.manifest import (
    Config,
    Manifest,
    Platform,
    choose,
    parse_config,
    parse_manifest,
    parse_platform,
)
from compatgate.discovery.image.options import ImageOptions
from compatgate.discovery.image.problems import damaged
from compatgate.discovery.image.reading import ImageReading
from compatgate.discovery.image.reference import Reference, parse_reference
from compatgate.discovery.image.registry import Registry, places
from compatgate.discovery.image.seen import Seen, Witness
from compatgate.discovery.image.transport import Transport
from compatgate.discovery.observed import Observation
from compatgate.discovery.signals import COMPAT_USE, CUDA_COMPAT, read_signals
from compatgate.discovery.stack import Inspection, conclude
from compatgate.discovery.wheels.measure import toolkits_of_ptx
from compatgate.errors import BadInput, Damaged, NotFound, Unavailable

DEADLINE_S = 300.0
_DEEPEST_INDEX = 3


class Resolved(Struct, frozen=True):
    """An image that was found."""

    registry: Registry
    digest: str
    index: str | None
    manifest: Manifest


def read_image(
    reference: str,
    *,
    signals: Mapping[str, Any],
    platform: str = "linux/amd64",
    deadline_s: float = DEADLINE_S,
    options: ImageOptions | None = None,
) -> ImageReading:
    """Read the stack of an image in a registry.

    Args:
        reference: ``registry.example/team/app:1.2``, ``app@sha256:...``.
        signals: the fact file ``image_signals``, as the catalog gives it.
        platform: which image of an index is meant.
        deadline_s: seconds that all of it may take.
        options: layers, mirrors, TLS, cache, limits; None: everything as it is by default.

    Raises:
        BadInput: the reference is none, the image is none, or is for another platform.
        NotFound: the registry has no such image.
        Unavailable: the registry does not answer, refuses, or the deadline passed.
        Damaged: a manifest or blob is not what its digest says, or cannot be decompressed.
        TooLarge: the image is larger than is read: a decompression bomb.
    """
    options = _with_names(options or ImageOptions())
    name = parse_reference(reference)
    wanted = parse_platform(platform)
    with Deadline(deadline_s) as deadline, Transport(options, deadline) as transport:
        kept = Kept(options, wanted, signals)
        known = kept.find(name.digest)
        registries = places(name, transport, options)
        if not known and options.cache and not name.digest:
            known = kept.find(_digest_of_tag(registries, name))
        if not known:
            found = resolve(registries, name, wanted, deadline)
            known = kept.find(found.digest)
            if not known:
                known, lasting = _read(name, found, wanted, signals, options, transport)
                if lasting:
                    kept.keep(known)
            if found.index:
                known = replace(known, index=found.index)
                kept.keep_index(known)
        return replace(known, reference=str(name), bytes_read=transport.bytes_read)


def _read(
    name: Reference,
    found: Resolved,
    wanted: Platform,
    signals: Mapping[str, Any],
    options: ImageOptions,
    transport: Transport,
) -> tuple[ImageReading, bool]:
    """The reading, and whether every byte that it rests on was verified."""
    config = parse_config(found.registry.config(found.manifest.config), str(name))
    _check_platform(config, wanted, name)
    layers = [Layer(n, d) for n, d in enumerate(found.manifest.layers, 1)]
    published = read_signals(signals)
    stated = read_config(config, published, len(layers))
    scan = Scan(published, options, transport.deadline)
    open_items: list[str] = []
    unread = {"auto": stated.accounted, "all": 0, "none": len(layers)}[options.layers]
    if options.layers == "none" and layers:
        open_items.append("the layers were not read, as asked")
    chosen = layers[unread:][::-1]
    scan.read(chosen, found.registry)
    found_there = concluded(stated, scan.seen, options.arch_facts, options.packages)
    open_items += found_there.open
    if not found_there.observations:
        open_items.append("nothing that is known to need a GPU was found in the image")
    elif not found_there.stack:
        open_items.append("no whole version of a component was found in the image")
    reading = ImageReading(
        reference=str(name),
        digest=found.digest,
        index=found.index,
        platform=str(config.platform if config.os else wanted),
        stack_body=found_there.stack,
        observations=found_there.observations,
        conflicts=found_there.conflicts,
        open=tuple(open_items),
        bytes_read=transport.bytes_read,
        layers=len(layers),
        layers_read=scan.count,
    )
    return reading, scan.verified


def concluded(
    stated: Stated, seen: Seen, facts: CudaArch | None, known: Packages = FILES_ARE_READ
) -> Inspection:
    """The stack that config and layers amount to.

    Args:
        stated: by the config; its architectures count where no file with GPU code was met.
        seen: in the layers.
        facts: where code runs; without them the code of several packages is not compared.
        known: what the facts say of packages.
    """
    seen.add(Witness.CONFIG, stated.observations)
    toolkits = toolkits_of_ptx(facts) if facts else {}
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


def resolve(
    registries: Sequence[Registry], name: Reference, wanted: Platform, deadline: Deadline
) -> Resolved:
    """Find the manifest, at the first mirror that has it, else at the registry."""
    for registry in registries:
        try:
            return _resolve_at(registry, name, wanted)
        except (Unavailable, NotFound, Damaged):
            if registry is registries[-1] or not deadline.left:
                raise
    raise AssertionError("the registry itself is the last place")


def _digest_of_tag(registries: Sequence[Registry], name: Reference) -> str | None:
    """What the tag stands for now, without fetching it; None where no place says."""
    for registry in registries:
        try:
            return registry.digest_of(name.locator)
        except (Unavailable, NotFound):
            continue
    return None


def _resolve_at(registry: Registry, name: Reference, wanted: Platform) -> Resolved:
    found = registry.manifest(name.locator)
    index = None
    for _ in range(_DEEPEST_INDEX):
        document = parse_manifest(found.data, found.media_type, str(name))
        if isinstance(document, Manifest):
            return Resolved(registry, found.digest, index, document)
        index = index or found.digest
        child = choose(document, wanted, str(name))
        found = registry.manifest(child.digest, child.size)
    raise damaged(f"{name} is an index of indexes of indexes")


def _check_platform(config: Config, wanted: Platform, name: Reference) -> None:
    if not config.platform.fits(wanted):
        raise BadInput(
            f"{name} is for {config.platform}",
            field="platform",
            value=str(wanted),
            hint=f"ask for {config.platform}, or name an image for {wanted}",
        )


def _with_names(options: ImageOptions) -> ImageOptions:
    """Canonical names of what is needed."""
    special = ("arch", CUDA_COMPAT)
    names = (n if n in special else resolve_component(n).component.name for n in options.needs)
    return replace(options, needs=tuple(dict.fromkeys(names)))
