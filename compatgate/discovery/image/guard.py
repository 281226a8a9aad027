"""Where a registry may send its reader: a redirect must not reach what only this machine sees."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from compatgate.discovery.image.options import ImageOptions
from compatgate.discovery.image.reference import is_loopback
from compatgate.errors import Unavailable


class Guard:
    """Refuses this machine and link-local addresses, but where a registry or mirror itself is.

    Names are looked at before, addresses after connecting and before anything is sent: what a name
    resolves to may change in between.

    Args:
        options: whether there is anything to guard; the registries and mirrors.
    """

    def __init__(self, options: ImageOptions) -> None:
        self._open = options.internal
        places = [f"//{host}" for host in options.registries or ()]
        places += [url for urls in options.mirrors.values() for url in urls]
        self._trusted = {urlsplit(place).hostname for place in places}

    def check_name(self, url: str) -> None:
        """Look at a URL before it is asked.

        Raises:
            Unavailable: it names this machine, or a link-local address.
        """
        host = urlsplit(url).hostname or ""
        if not self._free(host) and (is_loopback(host) or _is_internal(host)):
            raise _refused(host)

    def check_peer(self, host: str, sock: socket.socket) -> None:
        """Look at where a connection leads.

        Raises:
            Unavailable: to this machine, or to a link-local address.
        """
        if not self._free(host) and _is_internal(sock.getpeername()[0]):
            sock.close()
            raise _refused(host)

    def _free(self, host: str) -> bool:
        return self._open or host.strip("[]").lower() in self._trusted


def _is_internal(text: str) -> bool:
    try:
        address: IPv4Address | IPv6Address = ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    kinds = (address.is_loopback, address.is_link_local, address.is_unspecified)
    return any(kinds) or address.is_multicast


def _refused(host: str) -> Unavailable:
    what = f"the registry leads to {host}, an address of this machine or its link"
    hint = "the registry, its token service or its blob store is misconfigured"
    return Unavailable(what, field="image", hint=hint)
