"""Add the options on what questions name: images that are read, and wheels that are measured."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import argparse

    from compatgate.service.gate.images import ImageSettings
    from compatgate.service.gate.wheels import WheelSettings

_INDEX_NETWORKS = "COMPATGATE_INDEX_NETWORKS"
_INDEXES = "COMPATGATE_INDEXES"
_LONGEST_WAIT = 120.0
_NETWORKS = "COMPATGATE_REGISTRY_NETWORKS"
_REGISTRIES = "COMPATGATE_REGISTRIES"


def add_images(group: argparse._ArgumentGroup) -> None:
    """Add the options for images in questions."""
    group.add_argument(
        "--registry",
        action="append",
        default=[],
        metavar="HOST[/PREFIX]",
        help="registry to read images from; may be repeated (default: $COMPATGATE_REGISTRIES,"
        " comma-separated); without one, images are labels and the verdict says so",
    )
    group.add_argument(
        "--registry-network",
        action="append",
        default=[],
        metavar="CIDR",
        help="private network that these registries may redirect to (blob stores, token services),"
        " like 10.20.0.0/16; may be repeated (default: $COMPATGATE_REGISTRY_NETWORKS,"
        " comma-separated); the registry itself may have any address",
    )
    group.add_argument(
        "--image-deadline",
        type=wait_seconds,
        default=10.0,
        metavar="SECONDS",
        help="timeout in seconds for reading the image of a question (default: 10)",
    )


def add_wheels(group: argparse._ArgumentGroup) -> None:
    """Add the options for packages without a record."""
    group.add_argument(
        "--index",
        action="append",
        default=[],
        metavar="URL",
        help="package index for measuring packages without a record, in the background; may be"
        " repeated (default: $COMPATGATE_INDEXES, comma-separated, which also hides a password);"
        " without one, these packages stay unknown",
    )
    group.add_argument(
        "--index-network",
        action="append",
        default=[],
        metavar="CIDR",
        help="private network that these indexes may redirect to, like 10.20.0.0/16; may be"
        " repeated (default: $COMPATGATE_INDEX_NETWORKS, comma-separated); the index itself may"
        " have any address",
    )


def image_settings(args: argparse.Namespace) -> ImageSettings:
    """Return the settings for reading images: registries, networks and deadline."""
    from msgspec.structs import replace

    from compatgate.discovery.cache import default_image_folder
    from compatgate.discovery.registry.limits import read_options
    from compatgate.service.gate.images import ImageSettings, parse_networks, parse_places

    networks = (
        *parse_networks(args.registry_network, "--registry-network"),
        *parse_networks([os.environ.get(_NETWORKS, "")], _NETWORKS),
    )
    options = read_options(cache=default_image_folder())
    return ImageSettings(
        (
            *parse_places(args.registry, "--registry"),
            *parse_places([os.environ.get(_REGISTRIES, "")], _REGISTRIES),
        ),
        args.image_deadline,
        waiting=max(1, args.threads // 2),
        options=replace(options, networks=networks),
    )


def wheel_settings(args: argparse.Namespace) -> WheelSettings:
    """Return the settings for measuring wheels: indexes and networks."""
    from compatgate.discovery.cache import default_wheel_folder
    from compatgate.discovery.registry.limits import ImageOptions
    from compatgate.service.gate.images import parse_indexes, parse_networks
    from compatgate.service.gate.wheels import WheelSettings

    indexes = (
        *parse_indexes(args.index, "--index"),
        *parse_indexes([os.environ.get(_INDEXES, "")], _INDEXES),
    )
    networks = (
        *parse_networks(args.index_network, "--index-network"),
        *parse_networks([os.environ.get(_INDEX_NETWORKS, "")], _INDEX_NETWORKS),
    )
    hosts = frozenset(urlsplit(url).netloc.rpartition("@")[2] for url in indexes)
    transport = ImageOptions(registries=hosts, internal=False, networks=networks)
    return WheelSettings(indexes, default_wheel_folder(), transport=transport)


def wait_seconds(text: str) -> float:
    """Read an option in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= _LONGEST_WAIT:
        raise ArgumentTypeError(f"'{text}' is not a number of seconds up to {_LONGEST_WAIT:g}")
    return value
