"""Read the GPU content of an image that a run has tested, from its registry.

A worker reads the image by the digest that ran, so that a program in the image has no say in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from compatgate.canary.engine.interface import ImageContent
from compatgate.core.facts import Facts
from compatgate.discovery.image.read import read_image
from compatgate.discovery.image.reading import ImageReading
from compatgate.discovery.registry.limits import ImageOptions
from compatgate.errors import BadInput, CompatgateError

DEADLINE_S = 600.0
"""Longest reading of an image, in seconds."""
_PLATFORMS = ("linux/amd64", "linux/arm64")


def make_content_reader(
    facts: Facts, signals: Mapping[str, Any], options: ImageOptions
) -> Callable[[str], ImageContent]:
    """Return a reader of GPU contents, for `HostContext.read_content`.

    ``signals`` is the fact file ``image_signals``.
    """
    options = replace(options, arch_facts=facts.arch, packages=facts.packages)

    def read(image: str) -> ImageContent:
        if "@" not in image:
            return ImageContent(why=f"the host knows the image only by its id {image[:19]}")
        try:
            reading = _read(image, signals, options)
        except CompatgateError as error:
            return ImageContent(why=f"the image was not read: {error.detail}"[:_LONGEST])
        known = tuple(filter(None, (reading.digest, reading.index)))
        if reading.index and "alternatives" in reading.stack_body:
            why = "the index has several images for the platform, and which one ran is not known"
            return ImageContent(why=why, images=known)
        if reading.content is None:
            return ImageContent(why="not every layer of the image was read", images=known)
        return ImageContent(reading.content, images=known, files=reading.files)

    return read


_LONGEST = 500


def _read(image: str, signals: Mapping[str, Any], options: ImageOptions) -> ImageReading:
    """Read an image for x86-64 or, where it is for no such host, for Arm."""
    for platform in _PLATFORMS:
        try:
            return read_image(
                image, signals=signals, platform=platform, deadline_s=DEADLINE_S, options=options
            )
        except BadInput as error:
            if error.field != "platform" or platform == _PLATFORMS[-1]:
                raise
    raise AssertionError("the last platform returns or raises")
