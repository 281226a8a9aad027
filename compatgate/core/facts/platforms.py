"""Hold platforms: kinds of machines, what each supports, and the drivers that images ship.

A table tells machines by what their firmware and labels print.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated, Literal

from msgspec import Struct

from compatgate.core.facts.nvidia import Driver, Source
from compatgate.core.versions import Version


class Claim(Struct, frozen=True):
    """A statement with its source."""

    text: str
    source: Source


class Platform(Struct, frozen=True):
    """A kind of machine."""

    name: str  # ``aws/p6e-gb200``; a cloud alone (``aws``) where the shape is not known
    title: str
    source: Source
    gpus: tuple[str, ...] = ()  # canonical names of the GPUs that it has; empty: any
    gpus_per_node: tuple[int, ...] = ()  # numbers of GPUs that its machines have; empty: not known
    cpu: str = ""  # empty: any
    os: tuple[str, ...] = ("linux",)  # systems that its machines may have
    network: str = ""  # how its machines reach each other's GPUs; empty: not known
    note: str = ""


class Limit(Struct, frozen=True):
    """A component that platforms support from, up to or without a version."""

    id: str
    platforms: tuple[str, ...]
    component: str  # ``driver``, a component of a stack, or a part of a node
    severity: Literal["fail", "warn"]
    means: str
    source: Source
    minimum: Annotated[Version | None, "$component"] = None  # the least that is supported
    below: Annotated[Version | None, "$component"] = None  # the first that is not supported
    maximum: Annotated[Version | None, "$component"] = None
    refuses: tuple[str, ...] = ()  # values, or series of versions, that are not supported
    advised: str = ""
    uses: str = ""  # the limit holds where this part of the nodes is in use; empty: always
    note: str = ""
    disputed: Claim | None = None  # a statement that says otherwise

    def allows(self, have: Version) -> bool:
        """Return whether a version is within the limit."""
        if self.minimum and have < self.minimum:
            return False
        if self.below and have >= self.below:
            return False
        if self.maximum and have > self.maximum:
            return False
        for text in self.refuses:
            parts = text.split(".")
            is_series = all(map(str.isdigit, parts))
            if have.text == text or (is_series and have.at(len(parts)) == tuple(map(int, parts))):
                return False
        return True

    @property
    def need(self) -> str:
        """Return the limit as a constraint."""
        parts = (
            f">={self.minimum}" if self.minimum else "",
            f"<{self.below}" if self.below else "",
            f"<={self.maximum}" if self.maximum else "",
            *(f"not {text}" for text in self.refuses),
        )
        return ",".join(part for part in parts if part)


class Image(Struct, frozen=True):
    """An image of machines, or a driver installer, of platforms."""

    platforms: tuple[str, ...]  # patterns of names; ``*`` stands for any text
    image: str
    release: str
    driver: Driver | None  # the driver that it ships, or its branch; None: not known
    source: Source

    @property
    def title(self) -> str:
        """Return name and release, for messages."""
        return f"{self.image} {self.release}".strip()


class Platforms(Struct, frozen=True, dict=True):
    """Table ``platforms``."""

    platforms: dict[str, Platform]  # by name
    limits: tuple[Limit, ...]
    images: tuple[Image, ...]

    @cached_property
    def limits_of(self) -> dict[str, tuple[Limit, ...]]:
        """Return limits by platform."""
        return {
            name: tuple(limit for limit in self.limits if name in limit.platforms)
            for name in self.platforms
        }

    def images_of(self, platform: str) -> tuple[Image, ...]:
        """Return the images of a platform."""
        return tuple(
            image
            for image in self.images
            if any(fnmatchcase(platform, pattern) for pattern in image.platforms)
        )


class Condition(Struct, frozen=True):
    """Patterns of machines; every list that is not empty must fit."""

    instance_type: tuple[str, ...] = ()  # of the label ``node.kubernetes.io/instance-type``
    product: tuple[str, ...] = ()  # DMI product names, and models of the device tree
    vendor: tuple[str, ...] = ()
    asset_tag: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()  # one of these must be a GPU of the machine, by canonical name


class Machine(Struct, frozen=True):
    """The machines of one platform."""

    platform: str
    recognise: tuple[Condition, ...]
    source: Source


class PlatformMachines(Struct, frozen=True):
    """Table ``platform_machines``; the first platform that fits decides."""

    machines: tuple[Machine, ...]
