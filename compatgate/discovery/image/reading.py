"""The result of reading an image."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from compatgate.discovery.observed import Conflict, Observation
from compatgate.discovery.stack.stated import with_remarks


class ImageReading(Struct, frozen=True):
    """What an image holds.

    Attributes:
        reference: as it was asked for, in full.
        digest: of the manifest that was read: of an index, the one for the platform.
        index: digest of the index that the manifest was chosen from, None without.
        platform: of the image, ``linux/amd64``.
        stack_body: the stack in the form of requests.
        observations: each with the variable, label, or layer and file where it was seen.
        conflicts: where they disagree, and which decides.
        open: what could not be read or was left out, in sentences.
        bytes_read: from the registry, for this call; 0 for manifest, config and layers that are
            known from before.
        layers: how many the image has.
        layers_read: how many of them were read.
    """

    reference: str
    digest: str
    platform: str
    stack_body: dict[str, Any]
    observations: tuple[Observation, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    open: tuple[str, ...] = ()
    bytes_read: int = 0
    index: str | None = None
    layers: int = 0
    layers_read: int = 0

    @property
    def pinned(self) -> str:
        """The reference with a digest: a tag may be another image tomorrow."""
        return self.reference if "@" in self.reference else f"{self.reference}@{self.digest}"

    def to_request(self) -> dict[str, Any]:
        """The stack in the form of requests, with what is open and where witnesses disagree."""
        return with_remarks(self.stack_body, self.open, self.conflicts)

    def to_json(self) -> dict[str, Any]:
        """``{"stack", "observations", "conflicts", "open", "image"}``."""
        return {
            "stack": self.stack_body,
            "observations": [o.to_json() for o in self.observations],
            "conflicts": [c.to_json() for c in self.conflicts],
            "open": list(self.open),
            "image": {
                "reference": self.reference,
                "digest": self.digest,
                "index": self.index,
                "platform": self.platform,
                "layers": self.layers,
                "layers_read": self.layers_read,
                "bytes_read": self.bytes_read,
            },
        }


def stored(reading: ImageReading) -> dict[str, Any]:
    """The reading in the form that is kept."""
    document: dict[str, Any] = msgspec.to_builtins(reading)
    return document


def restored(document: dict[str, Any]) -> ImageReading | None:
    """A reading that was kept; None where it is of another form."""
    try:
        return msgspec.convert(document, ImageReading)
    except msgspec.ValidationError:
        return None
