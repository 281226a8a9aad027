"""Refuse connections to private addresses that others choose, such as the target of a redirect.

A server that reads images and wheels is told by strangers where to connect: a registry redirects, a
token service is named in an answer. `AddressGuard` resolves such a name once, checks every address,
and gives back the addresses to connect to; the name is not resolved again.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from compatgate.discovery.registry.limits import ImageOptions
from compatgate.errors import Unavailable

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_SPECIAL: tuple[Network, ...] = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private use
        "100.64.0.0/10",  # shared address space
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link local, with metadata services of clouds
        "172.16.0.0/12",  # private use
        "192.0.0.0/24",  # IETF protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relay anycast, deprecated
        "192.168.0.0/16",  # private use
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, with limited broadcast
        "::/96",  # unspecified, loopback, IPv4-compatible (deprecated)
        "::ffff:0:0:0/96",  # IPv4-translated (RFC 2765)
        "64:ff9b:1::/48",  # NAT64 for local use
        "100::/64",  # discard only
        "100:0:0:1::/64",  # dummy prefix
        "2001::/23",  # IETF protocol assignments, with Teredo
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
        "5f00::/16",  # segment routing
        "fc00::/7",  # unique local
        "fe80::/10",  # link local
        "fec0::/10",  # site local, deprecated
        "ff00::/8",  # multicast
    )
)
"""Ranges that are not public: IANA's IPv4 and IPv6 Special-Purpose Address Registries (those that
are not globally reachable), and IANA's multicast and reserved space. Python's own table differs
between its releases."""
_NAT64 = IPv6Network("64:ff9b::/96")
_LOW_BITS = 2**32 - 1
_ISATAP = (0x00005EFE, 0x02005EFE)
"""Third quarter of an address that ends in an IPv4 address (RFC 5214)."""


class AddressGuard:
    """A guard that refuses private addresses, except those of registries and mirrors."""

    def __init__(self, options: ImageOptions) -> None:
        self._open = options.internal
        self._networks = options.networks
        places = [f"//{host}" for host in options.registries or ()]
        places += [url for urls in options.mirrors.values() for url in urls]
        self._trusted = {urlsplit(place).hostname for place in places}

    def check_name(self, url: str) -> None:
        """Check a URL before a request."""
        host = urlsplit(url).hostname or ""
        self._check(host, "127.0.0.1" if host == "localhost" else host)

    def resolve(self, url: str) -> list[str]:
        """Resolve the name of a URL once, and return the addresses to connect to.

        Return none if any address is allowed, or the name does not resolve: connecting to the name
        reports why.
        """
        parts = urlsplit(url)
        host = parts.hostname or ""
        if self._is_free(host):
            return []
        try:
            answers = socket.getaddrinfo(host, parts.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return []
        addresses = list(dict.fromkeys(str(address[0]) for *_, address in answers))
        for address in addresses:
            self._check(host, address)
        return addresses

    def check_peer(self, host: str, sock: socket.socket) -> None:
        """Check the address of a connection before anything is sent."""
        try:
            self._check(host, sock.getpeername()[0])
        except Unavailable:
            sock.close()
            raise

    def _check(self, host: str, text: str) -> None:
        address = read_address(text)
        if address is None or self._is_free(host) or is_public(address):
            return
        if not any(address in network for network in self._networks):
            what = f"the server redirects to {host}, which is not a public address"
            hint = (
                "its token service or store of files is misconfigured, or is in a private network: "
                "allow that one with serve --registry-network (images) or --index-network (wheels)"
            )
            raise Unavailable(what, field="image", hint=hint)

    def _is_free(self, host: str) -> bool:
        return self._open or host.strip("[]").lower() in self._trusted


def read_address(text: str) -> Address | None:
    """Read an address, and unwrap IPv4 addresses within IPv6; return None for a name."""
    try:
        address = ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv4Address):
        return address
    third_quarter = int(address) >> 32 & _LOW_BITS
    if address in _NAT64 or third_quarter in _ISATAP:
        return IPv4Address(int(address) & _LOW_BITS)
    return address.ipv4_mapped or address.sixtofour or address


def is_public(address: Address) -> bool:
    """Return whether an address, unwrapped, belongs to the public internet."""
    return not any(address in network for network in _SPECIAL)
