"""The stack that an image in a registry holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compatgate.cli.check.platforms import Platforms
    from compatgate.core.facts import Facts
    from compatgate.discovery.image import ImageReading

Body = dict[str, Any]


def read_pulled(reference: str, platforms: Platforms, facts: Facts) -> tuple[Body, dict[str, str]]:
    """The stack that an image shows, and the pinned ``image``.

    Of an index one image stands for one processor; what that leaves out is said.

    Raises:
        As `read_reference`.
    """
    from compatgate.discovery.stack.stated import beside

    reading = read_reference(reference, platforms.cpu, facts)
    shown = reading.to_request()
    if reading.index:
        shown = beside(shown, platforms.of_processors().remarks("the image"))
    return shown, {"image": reading.pinned}


def read_reference(reference: str, cpu: str | None, facts: Facts) -> ImageReading:
    """Read an image, with the settings of the environment and the user's cache.

    Raises:
        BadInput: the reference is none, or there is no image for the platform.
        NotFound: the registry has no such image.
        Unavailable: the registry does not answer in time.
    """
    from msgspec.structs import replace

    from compatgate.catalog import read_source
    from compatgate.discovery.image import default_folder, options_from_environment, read_image

    options = replace(
        options_from_environment(),
        cache=default_folder(),
        arch_facts=facts.arch,
        packages=facts.packages,
    )
    platform = "linux/arm64" if cpu == "aarch64" else "linux/amd64"
    return read_image(
        reference, signals=read_source("image_signals"), platform=platform, options=options
    )
