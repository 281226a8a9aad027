"""The stack that an image in a registry holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatgate.core.stack import parse_stack
from compatgate.errors import BadInput

if TYPE_CHECKING:
    from compatgate.core.facts import Facts
    from compatgate.discovery.image import ImageReading

Body = dict[str, Any]


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


def image_body(reading: ImageReading) -> Body:
    """The image's stack in the form of requests, with what it leaves open and contradicts."""
    remarks = {
        "open": list(reading.open),
        "conflicts": [conflict.message for conflict in reading.conflicts],
    }
    return {**reading.stack_body, **{key: value for key, value in remarks.items() if value}}


def image_wins(shown: Body, stated: Body) -> Body:
    """Both joined: what the image shows wins, and a contradiction is a finding.

    Args:
        shown: of the image.
        stated: of the options and files, with canonical names.

    Raises:
        BadInput: a stated version is malformed.
    """
    conflicts = list(shown.get("conflicts", ()))
    for name, value in stated.items():
        if name in shown and name not in ("open", "conflicts"):
            one, other = parse_stack({name: value}), parse_stack({name: shown[name]})
            if one != other:
                conflicts.append(f"{name}: stated is {value}, the image shows {shown[name]}")
    joined = {**stated, **shown}
    left = [*stated.get("open", ()), *shown.get("open", ())]
    return {
        **joined,
        **({"open": left} if left else {}),
        **({"conflicts": conflicts} if conflicts else {}),
    }


def pinned(reading: ImageReading) -> str:
    """The reference with the digest that was read: a tag may be another image tomorrow."""
    if "@" in reading.reference:
        return reading.reference
    if not reading.digest:
        raise BadInput("the image has no digest", field="--image", value=reading.reference)
    return f"{reading.reference}@{reading.digest}"
