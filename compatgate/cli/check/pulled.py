"""The stack that an image in a registry holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compatgate.core.facts import Facts
    from compatgate.discovery.image import ImageReading


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
        options_from_environment(), cache=str(default_folder()), arch_facts=facts.arch
    )
    platform = "linux/arm64" if cpu == "aarch64" else "linux/amd64"
    return read_image(
        reference, signals=read_source("image_signals"), platform=platform, options=options
    )
