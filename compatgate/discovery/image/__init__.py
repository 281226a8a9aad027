"""Images in registries: what they hold, read without a container engine and without unpacking.

`read_image` asks a registry for manifest and config, reads what the variables and labels of
published images tell, and then streams the layers that the config does not account for, from the
top down. docs/images.md says what is read, and docs/decisions/006-reading-images.md why so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatgate.discovery.image.cache import default_folder
from compatgate.discovery.image.options import (
    ImageOptions,
    Limits,
    options_from_environment,
    parse_mirrors,
)
from compatgate.discovery.image.reading import ImageReading
from compatgate.discovery.image.reference import Reference, parse_reference

if TYPE_CHECKING:
    from compatgate.discovery.image.read import DEADLINE_S, read_image

__all__ = [
    "DEADLINE_S",
    "ImageOptions",
    "ImageReading",
    "Limits",
    "Reference",
    "default_folder",
    "options_from_environment",
    "parse_mirrors",
    "parse_reference",
    "read_image",
]


def __getattr__(name: str) -> Any:
    """The reader and its client for registries, for who reads and not for who names images."""
    if name in ("DEADLINE_S", "read_image"):
        from compatgate.discovery.image import read

        return getattr(read, name)
    raise AttributeError(name)
