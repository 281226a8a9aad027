"""``compatgate image-compat push``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from compatgate.discovery.artifacts import Place


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action: the image, and what is attached to it."""
    parser.add_argument("image", metavar="IMAGE", help="reference in a registry")
    parser.add_argument(
        "--platform",
        metavar="OS/CPU",
        help="platform in a multi-platform image (default: linux/amd64)",
    )
    parser.add_argument(
        "--file", metavar="FILE", help="attach this spec instead of the generated one"
    )
    parser.add_argument(
        "--index",
        action="store_true",
        help="attach to what the reference names, an index as well: nfd looks there unless it is"
        " told a platform",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the spec without attaching it"
    )


def run(args: argparse.Namespace) -> int:
    """Attach, unless the same spec is the newest already.

    Raises:
        BadInput: the reference is none, the file no spec, or there is no such platform.
        Inconclusive: no rule can be written for the image.
        Unavailable: the registry does not answer, or may not be written to.
    """
    from compatgate.cli.image_compat.attached import digest_in, newest
    from compatgate.discovery.artifacts import opened
    from compatgate.discovery.image import options_from_environment

    text, index = _spec(args)
    if args.dry_run:
        print(text, end="")
        return 0
    platform = None if args.index else args.platform or "linux/amd64"
    with opened(args.image, options_from_environment()) as place:
        image = digest_in(place, platform)
        known = newest(place, image)
        if known and known.data == text.encode():
            print(f"{known.digest} is attached already, and the same")
            return 0
        made = _attach(place, image, text)
        print(f"{place.name.registry}/{place.name.repository}@{made} is attached to {image}")
    if index and platform:
        print(f"note: it belongs to one image of an index: nfd compat validate-node needs"
              f" --platform {platform}", file=sys.stderr)  # fmt: skip
    return 0


def _spec(args: argparse.Namespace) -> tuple[str, bool]:
    """The text, and whether the reference names an index."""
    from compatgate.catalog import load_facts
    from compatgate.cli.check.observed import read_text
    from compatgate.cli.check.pulled import read_reference
    from compatgate.cli.image_compat.written import spec_text
    from compatgate.discovery.nfd import read_spec

    if args.file:
        text = read_text(args.file, "--file")
        read_spec(text, origin=args.file)
        return text, False
    facts = load_facts()
    arm = bool(args.platform) and args.platform.startswith("linux/arm64")
    reading = read_reference(args.image, "aarch64" if arm else None, facts)
    return spec_text(reading.to_request(), reading.platform, facts), reading.index is not None


def _attach(place: Place, image: str, text: str) -> str:
    from datetime import UTC, datetime

    from compatgate.cli.image_compat.attached import CREATED
    from compatgate.discovery.artifacts import attach
    from compatgate.discovery.artifacts.manifest import Layer
    from compatgate.discovery.nfd import ARTIFACT_TYPE, LAYER_TYPE

    title = {"org.opencontainers.image.title": "image-compatibility.yaml"}
    made = {CREATED: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    return attach(place, image, ARTIFACT_TYPE, [Layer(text.encode(), LAYER_TYPE, title)], made)
