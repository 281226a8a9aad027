"""Where a registry may send its reader: a redirect must not reach what only this network sees."""

from __future__ import annotations

import socket
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from compatgate.discovery.image.options import ImageOptions
from compatgate.errors import Unavailable

_Address = IPv4Address | IPv6Address
_NAT64 = IPv6Network("64:ff9b::/96")
_LOW = 2**32 - 1


class Guard:
    """Refuses every address that is not public, but where a registry or mirror itself is.

    Names are looked at before, what they resolve to before connecting, and the address that was
    connected to before a request is sent: what a name resolves to may change in between.

    Args:
        options: whether there is anything to guard; the registries, mirrors and networks.
    """

    def __init__(self, options: ImageOptions) -> None:
        self._open = options.internal
        self._networks = options.networks
        places = [f"//{host}" for host in options.registries or ()]
        places += [url for urls in options.mirrors.values() for url in urls]
        self._trusted = {urlsplit(place).hostname for place in places}

    def check_name(self, url: str) -> None:
        """Look at a URL before it is asked.

        Raises:
            Unavailable: it names this machine, or an address that is not public.
        """
        host = urlsplit(url).hostname or ""
        self._check(host, "127.0.0.1" if host == "localhost" else host)

    def check_addresses(self, host: str, port: int | None) -> None:
        """Look at what a name resolves to, before it is connected to.

        Raises:
            Unavailable: an address of it is not public.
        """
        if self._free(host):
            return
        with suppress(OSError, UnicodeError):  # whoever connects is told why
            for *_, address in socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM):
                self._check(host, str(address[0]))

    def check_peer(self, host: str, sock: socket.socket) -> None:
        """Look at where a connection leads.

        Raises:
            Unavailable: to an address that is not public.
        """
        try:
            self._check(host, sock.getpeername()[0])
        except Unavailable:
            sock.close()
            raise

    def _check(self, host: str, text: str) -> None:
        address = _read(text)
        if address is None or self._free(host) or _is_public(address):
            return
        if not any(address in network for network in self._networks):
            raise _refused(host)

    def _free(self, host: str) -> bool:
        return self._open or host.strip("[]").lower() in self._trusted


def _read(text: str) -> _Address | None:
    """An address, without what wraps an IPv4 address into one of IPv6; None: it is a name."""
    try:
        address = ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & _LOW)
    return address.ipv4_mapped or address.sixtofour or address


def _is_public(address: _Address) -> bool:
    local = isinstance(address, IPv6Address) and address.is_site_local
    return address.is_global and not (address.is_multicast or address.is_reserved or local)


def _refused(host: str) -> Unavailable:
    what = f"the server leads to {host}, which is not a public address"
    hint = (
        "its token service or store of files is misconfigured, or is in a private network: "
        "allow that one with serve --registry-network (images) or --index-network (wheels)"
    )
    return Unavailable(what, field="image", hint=hint)
