"""``compatgate image-compat pull``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action: the image."""
    parser.add_argument("image", metavar="IMAGE", help="reference in a registry")
    parser.add_argument("--platform", metavar="OS/CPU", help="platform in a multi-platform image")
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="-", help="output file (default: standard output)"
    )


def run(args: argparse.Namespace) -> int:
    """Print the newest spec as it was attached.

    Raises:
        NotFound: there is no such image, or nothing is attached.
        Unavailable: the registry does not answer, or refuses.
    """
    from compatgate.cli.image_compat.attached import pulled
    from compatgate.cli.output import write_output

    write_output(args.output, pulled(args.image, args.platform).encode())
    return 0
