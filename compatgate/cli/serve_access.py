"""Add and read options of ``compatgate serve`` about callers: limits, proxies and sessions."""

from __future__ import annotations

import ipaddress
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from compatgate.errors import BadInput

if TYPE_CHECKING:
    import argparse

    from compatgate.kit.http.rate import Rate
    from compatgate.service.gate.verdict_links import VerdictLinks
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


def request_rate(args: argparse.Namespace) -> Rate | None:
    """Return the limit of requests; None: no limit.

    Raises:
        BadInput: not a rate.
    """
    from compatgate.kit.http.rate import parse_rate

    given = args.rate
    return None if given in (None, _NONE) else parse_rate(given, field="--rate")


def failed_rate(args: argparse.Namespace) -> Rate | None:
    """Return the limit of failed authentications; None: no limit.

    Raises:
        BadInput: not a rate.
    """
    from compatgate.kit.http.rate import parse_rate

    given = args.failed_auth_rate
    return None if given == _NONE else parse_rate(given, field="--failed-auth-rate")


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
        what = f"{text!r} is not a network: {error}"
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
