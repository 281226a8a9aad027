"""Speak HTTP with registries: streamed bodies, bounded redirects, one deadline, counted bytes.

`AddressGuard` checks redirects: they must not reach private addresses of this network.
"""

from __future__ import annotations

import os
import re
import socket
import time
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, SSLError
from urllib3.util import Timeout

from compatgate import __version__
from compatgate.discovery.registry.image_spec import is_loopback
from compatgate.discovery.registry.limits import Deadline, ImageOptions
from compatgate.errors import BadInput, Unavailable

MOST_REDIRECTS = 5
CHUNK = 256 * 1024
"""Bytes per read from a socket."""
_CONNECT_SECONDS = 15.0
_STALL_SECONDS = 60.0
_ATTEMPTS = 3
_BUSY_STATUSES = (429, 502, 503, 504)
_READING = ("GET", "HEAD")
_REDIRECT_STATUSES = (301, 302, 303, 307, 308)


class Response:
    """An answer whose body is read as it arrives; closing it ends the connection."""

    def __init__(self, raw: urllib3.BaseHTTPResponse, url: str, transport: Transport) -> None:
        self.status = raw.status
        self.headers = raw.headers
        self.url = url
        self._raw = raw
        self._transport = transport

    def __enter__(self) -> Response:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, size: int = CHUNK, /) -> bytes:
        """Return received bytes, at most ``size``; ``b""`` at the end of the body.

        Raises:
            Unavailable: the connection broke, or the deadline has passed.
        """
        what = f"reading from {_host(self.url)}"
        try:
            data = self._raw.read1(size)
        except (HTTPError, OSError) as error:
            self._transport.deadline.check(what)
            raise _unreachable_error(self.url, error) from None
        self._transport.deadline.check(what)
        self._transport.bytes_read += len(data)
        return data

    def read_all(self, largest: int) -> bytes:
        """Return a small body.

        Raises:
            BadInput: the body is larger than ``largest`` bytes.
        """
        parts = bytearray()
        while data := self.read():
            parts += data
            if len(parts) > largest:
                what = f"{self.url} is larger than the {largest} bytes that are read"
                raise BadInput(what, field="image")
        return bytes(parts)

    def close(self) -> None:
        """Close the connection; unread bytes are never fetched."""
        self._raw.close()
        self._raw.release_conn()


class Transport:
    """A transport for requests to registries, token services and redirects.

    Attributes:
        bytes_read: bytes of all bodies so far.
    """

    def __init__(self, options: ImageOptions, deadline: Deadline) -> None:
        self.deadline = deadline
        self.bytes_read = 0
        self._options = options
        self._guard = AddressGuard(options)
        self._managers: dict[tuple[str, bool], urllib3.PoolManager] = {}

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *_: object) -> None:
        for manager in self._managers.values():
            manager.clear()

    def open(
        self, url: str, headers: dict[str, str], *, body: bytes | None = None, method: str = "GET"
    ) -> Response:
        """Send a request; follow redirects of a GET or HEAD.

        ``Authorization`` goes to the host of ``url`` only: object stores refuse a request that
        carries another server's token.

        Raises:
            Unavailable: no answer, too many redirects, a redirect that leaves TLS, or the deadline.
        """
        first = urlsplit(url)
        for _ in range(MOST_REDIRECTS + 1):
            response = self._send(url, headers, body, method)
            location = response.headers.get("Location")
            if response.status not in _REDIRECT_STATUSES or method not in _READING or not location:
                return response
            response.close()
            target = urljoin(url, location)
            self.check_lead(url, target)
            url = target
            if urlsplit(url)[:2] != first[:2]:
                headers = {k: v for k, v in headers.items() if k != "Authorization"}
        what = f"{first.netloc} redirects more than {MOST_REDIRECTS} times"
        raise Unavailable(what, field="image", hint="the registry or its mirror is misconfigured")

    def check_lead(self, url: str, target: str) -> None:
        """Check the target of a redirect.

        Raises:
            Unavailable: the target is not for HTTP, or leaves TLS.
        """
        scheme, host = urlsplit(target)[:2]
        if scheme not in ("http", "https") or not host:
            raise Unavailable(f"{_host(url)} redirects to {target[:200]!r}", field="image")
        if scheme == "http" and url.startswith("https:"):
            what = f"{_host(url)} redirects from TLS to plain HTTP on {host}"
            raise Unavailable(what, field="image")

    def _send(self, url: str, headers: dict[str, str], body: bytes | None, method: str) -> Response:
        """Send one request; retry failed connections and busy servers."""
        for attempt in range(_ATTEMPTS):
            last = attempt == _ATTEMPTS - 1
            self._guard.check_name(url)
            self.deadline.check(f"asking {_host(url)}")
            try:
                response = self._send_once(url, headers, body, method)
            except (HTTPError, OSError) as error:
                self.deadline.check(f"asking {_host(url)}")
                if last or isinstance(error, SSLError):
                    raise _unreachable_error(url, error) from None
            else:
                if last or response.status not in _BUSY_STATUSES:
                    return response
                response.close()
            time.sleep(min(0.2 * 4**attempt, self.deadline.left))
        raise AssertionError("the last attempt returns or raises")

    def _send_once(
        self, url: str, headers: dict[str, str], body: bytes | None, method: str
    ) -> Response:
        left = self.deadline.left
        raw = self._manager(url).request(
            method,
            url,
            body=body,
            headers={"User-Agent": f"compatgate/{__version__}", **headers},
            timeout=Timeout(connect=min(_CONNECT_SECONDS, left), read=min(_STALL_SECONDS, left)),
            retries=False,
            redirect=False,
            preload_content=False,
            decode_content=False,
        )
        return Response(raw, url, self)

    def _manager(self, url: str) -> urllib3.PoolManager:
        parts = urlsplit(url)
        proxy = ""
        if not is_loopback(parts.netloc) and not proxy_bypass(parts.hostname or ""):
            proxy = getproxies().get(parts.scheme, "")
        key = (proxy, parts.netloc in self._options.unverified_tls)
        if key not in self._managers:
            self._managers[key] = self._new_manager(*key)
        return self._managers[key]

    def _new_manager(self, proxy: str, unverified: bool) -> urllib3.PoolManager:
        settings: dict[str, Any] = {"cert_reqs": "CERT_NONE" if unverified else "CERT_REQUIRED"}
        if self._options.ca_file and not unverified:
            if not os.path.isfile(self._options.ca_file):
                what = "the file of certificate authorities does not exist"
                raise BadInput(what, field="ca_file", value=self._options.ca_file)
            settings["ca_certs"] = self._options.ca_file
        if unverified:
            settings["assert_hostname"] = False
        manager = (
            urllib3.ProxyManager(proxy, maxsize=2, **settings)
            if proxy
            else urllib3.PoolManager(maxsize=2, **settings)
        )
        # A proxy is the operator's choice, and checks its own connections.
        guard = AddressGuard(ImageOptions()) if proxy else self._guard
        manager.pool_classes_by_scheme = _watched_pools(self.deadline, guard)
        return manager


def _watched_pools(deadline: Deadline, guard: AddressGuard) -> dict[str, Any]:
    """Return pools whose connections reach only allowed addresses, and end at the deadline."""

    class Plain(HTTPConnection):
        def connect(self) -> None:
            guard.check_addresses(self.host, self.port)
            super().connect()
            guard.check_peer(self.host, self.sock)
            deadline.watch(self.sock)

    class Secure(HTTPSConnection):
        def connect(self) -> None:
            guard.check_addresses(self.host, self.port)
            super().connect()
            guard.check_peer(self.host, self.sock)
            deadline.watch(self.sock)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


def _host(url: str) -> str:
    return urlsplit(url).netloc


def _unreachable_error(url: str, error: Exception) -> Unavailable:
    reason = str(getattr(error, "reason", None) or error)
    text = re.sub(
        r"^(<[^>]*>|\w+\(host=.*?\)): ", "", reason
    )  # urllib3's messages begin with its own object
    hint = (
        "give the registry's certificate authority as a file, or name the registry as unverified"
        if isinstance(error, SSLError)
        else "check the registry's name, the network and the proxy"
    )
    return Unavailable(f"{_host(url)} does not answer: {text[:300]}", field="image", hint=hint)


_Address = IPv4Address | IPv6Address
_NAT64 = IPv6Network("64:ff9b::/96")
_LOW_BITS = 2**32 - 1


class AddressGuard:
    """A guard that refuses private addresses, except those of registries and mirrors.

    The guard checks a name before a request, its addresses before connecting, and the address of
    the connection before sending: the resolution of a name may change in between.

    Args:
        options: whether the guard is on; the registries, mirrors and networks.
    """

    def __init__(self, options: ImageOptions) -> None:
        self._open = options.internal
        self._networks = options.networks
        places = [f"//{host}" for host in options.registries or ()]
        places += [url for urls in options.mirrors.values() for url in urls]
        self._trusted = {urlsplit(place).hostname for place in places}

    def check_name(self, url: str) -> None:
        """Check a URL before a request.

        Raises:
            Unavailable: the URL names this machine, or an address that is not public.
        """
        host = urlsplit(url).hostname or ""
        self._check(host, "127.0.0.1" if host == "localhost" else host)

    def check_addresses(self, host: str, port: int | None) -> None:
        """Check the addresses of a name before connecting.

        Raises:
            Unavailable: an address is not public.
        """
        if self._free(host):
            return
        with suppress(OSError, UnicodeError):  # connecting reports the reason
            for *_, address in socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM):
                self._check(host, str(address[0]))

    def check_peer(self, host: str, sock: socket.socket) -> None:
        """Check the address of a connection.

        Raises:
            Unavailable: the address is not public.
        """
        try:
            self._check(host, sock.getpeername()[0])
        except Unavailable:
            sock.close()
            raise

    def _check(self, host: str, text: str) -> None:
        address = _read_address(text)
        if address is None or self._free(host) or _is_public(address):
            return
        if not any(address in network for network in self._networks):
            raise _redirect_error(host)

    def _free(self, host: str) -> bool:
        return self._open or host.strip("[]").lower() in self._trusted


def _read_address(text: str) -> _Address | None:
    """Read an address, and unwrap IPv4 addresses within IPv6; return None for a name."""
    try:
        address = ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & _LOW_BITS)
    return address.ipv4_mapped or address.sixtofour or address


def _is_public(address: _Address) -> bool:
    local = isinstance(address, IPv6Address) and address.is_site_local
    return address.is_global and not (address.is_multicast or address.is_reserved or local)


def _redirect_error(host: str) -> Unavailable:
    what = f"the server redirects to {host}, which is not a public address"
    hint = (
        "its token service or store of files is misconfigured, or is in a private network: "
        "allow that one with serve --registry-network (images) or --index-network (wheels)"
    )
    return Unavailable(what, field="image", hint=hint)
