"""Add and read options of ``compatgate serve`` about callers, and about what questions name."""

from __future__ import annotations

import ipaddress
import os
from argparse import ArgumentTypeError
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from compatgate.errors import BadInput, quote_error

if TYPE_CHECKING:
    import argparse

    from compatgate.kit.http.rate import Rate
    from compatgate.service.gate.images import ImageSettings
    from compatgate.service.gate.verdict_links import VerdictLinks
    from compatgate.service.gate.wheels import WheelSettings
    from compatgate.service.tokens.browser_sessions import SessionLimits


LOCAL_PROXIES = ("127.0.0.1", "::1")
_NONE = "none"
_LINK_KEYS = "COMPATGATE_VERDICT_LINK_KEYS"
_SHORTEST_S = 60


def add_access(group: argparse._ArgumentGroup) -> None:
    """Add the options."""
    add: Any = group.add_argument
    add(
        "--rate",
        metavar="N/s|N/m|N/h",
        help="limit of requests per token or anonymous address, in each process; above the"
        " limit the answer is 429; not for health and Kubernetes admission (default: no limit)",
    )
    add(
        "--anonymous-rate",
        default="18000/h",
        metavar="N/s|N/m|N/h",
        help="limit of logged questions without a token per address, in each process, or none;"
        " above the limit the answer is 429; not for Kubernetes admission (default: 18000/h)",
    )
    add(
        "--failed-auth-rate",
        default="30/m",
        metavar="N/s|N/m|N/h",
        help="limit of failed authentications per address, in each process, or none; above the"
        " limit the answer is 429 (default: 30/m)",
    )
    add(
        "--trusted-proxy",
        action="append",
        default=[],
        metavar="ADDRESS|CIDR",
        help="proxy whose X-Forwarded-For and X-Forwarded-Proto are trusted, or none; may be"
        f" repeated (default: {', '.join(LOCAL_PROXIES)})",
    )
    add(
        "--session-lifetime",
        default="12h",
        metavar="DURATION",
        help="maximum duration of a browser session (default: 12h)",
    )
    add(
        "--session-idle",
        default="2h",
        metavar="DURATION",
        help="idle timeout of a browser session (default: 2h)",
    )


def rate_limit(args: argparse.Namespace, option: str) -> Rate | None:
    """Return the limit that an option states, like ``--rate``; None: no limit.

    Raises:
        BadInput: not a rate.
    """
    from compatgate.kit.http.rate import parse_rate

    stated = getattr(args, option.removeprefix("--").replace("-", "_"))
    return None if stated in (None, _NONE) else parse_rate(stated, field=option)


def trusted_proxies(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the addresses and networks of trusted proxies.

    Raises:
        BadInput: neither an address nor a network, or every address.
    """
    given = [item.strip() for text in args.trusted_proxy for item in text.split(",")]
    if not given:
        return LOCAL_PROXIES
    if given == [_NONE]:
        return ()
    return tuple(_check_network(text) for text in given)


def _check_network(text: str) -> str:
    hint = "an address or a network, like 10.0.0.7 or 10.0.0.0/24"
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        what = f"{text!r} is not a network: {quote_error(error)}"
        raise BadInput(what, field="--trusted-proxy", value=text, hint=hint) from None
    if network.prefixlen == 0:
        what = "every client could then state its own address"
        raise BadInput(what, field="--trusted-proxy", value=text, hint=hint)
    return text


def session_limits(args: argparse.Namespace) -> SessionLimits:
    """Return the ends of browser sessions.

    Raises:
        BadInput: not a duration, or shorter than a minute.
    """
    from compatgate.service.tokens.browser_sessions import SessionLimits

    lifetime = _duration(args.session_lifetime, "--session-lifetime")
    return SessionLimits(lifetime, min(lifetime, _duration(args.session_idle, "--session-idle")))


def _duration(text: str, field: str) -> timedelta:
    from compatgate.documents.quantities import parse_duration

    found = parse_duration(text, field=field)
    if found.total_seconds() < _SHORTEST_S:
        raise BadInput("is too short", field=field, value=text, hint="at least 60s")
    return found


def add_verdict_links(group: argparse._ArgumentGroup) -> None:
    """Add the options."""
    group.add_argument(
        "--verdict-link-key",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="add a link to each answer that shows the verdict without a token; this key signs"
        " the links; in a file or as NAME=env:VARIABLE; needs --public-url; may be repeated, for"
        f" key rotation: the first one signs (default: ${_LINK_KEYS}, comma-separated; else no"
        " links)",
    )
    group.add_argument(
        "--verdict-link-validity",
        metavar="DURATION",
        default="7d",
        help="validity of these links, from 5m to 366d (default: 7d)",
    )


def verdict_links(
    args: argparse.Namespace, public_url: str, *, far: bool = False
) -> VerdictLinks | None:
    """Return the keys of links to verdicts; None: there are none.

    Args:
        args: of the options.
        public_url: of this service.
        far: this gate decides from a bundle.

    Raises:
        BadInput: a key cannot be read, the validity is no duration, the public URL is missing, or
            this gate stores no verdicts.
    """
    from compatgate.documents.quantities import parse_duration
    from compatgate.service.gate.verdict_links import LONGEST, SHORTEST, VerdictLinks
    from compatgate.service.webhooks.signatures import read_secrets

    field = "--verdict-link-key"
    named = [item.strip() for item in os.environ.get(_LINK_KEYS, "").split(",") if item.strip()]
    given = args.verdict_link_validity
    validity = parse_duration(given, field="--verdict-link-validity")
    if not SHORTEST <= validity <= LONGEST:
        hint = "from 5m to 366d"
        raise BadInput("is out of range", field="--verdict-link-validity", value=given, hint=hint)
    secrets = read_secrets([*args.verdict_link_key, *named], field)
    if not secrets:
        return None
    if far:
        hint = "start the central gate with it"
        raise BadInput("a far gate has no verdict pages", field=field, hint=hint)
    if not public_url:
        hint = "add --public-url https://gate.example"
        raise BadInput("needs --public-url, for the links", field=field, hint=hint)
    return VerdictLinks(secrets, public_url.rstrip("/"), validity)


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
