"""Speak HTTP with registries: streamed bodies, bounded redirects, one deadline, counted bytes.

A server that reads images and wheels is told by strangers where to connect: a registry redirects, a
token service is named in an answer. `AddressGuard` resolves such a name once, checks every address,
and gives back the addresses to connect to; the name is not resolved again. httpcore, below httpx,
takes a backend that makes the connections.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from compatgate import version
from compatgate.discovery.registry.image_spec import is_loopback
from compatgate.discovery.registry.limits import Deadline, ImageOptions
from compatgate.errors import BadInput, Unavailable

MAX_REDIRECTS = 5
CHUNK = 256 * 1024
"""Most bytes of one read."""
_CONNECT_SECONDS = 15.0
_STALL_SECONDS = 60.0
_ATTEMPTS = 3
_BUSY_STATUSES = (429, 502, 503, 504)
_READING = ("GET", "HEAD")
_REDIRECT_STATUSES = (301, 302, 303, 307, 308)
_HTTP_ERRORS = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpx.InvalidURL,
    OSError,
)


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


class Response:
    """An answer whose body is read as it arrives; closing it ends the connection."""

    def __init__(self, raw: httpcore.Response, url: str, transport: Transport) -> None:
        self.status = raw.status
        self.headers = httpx.Headers(raw.headers)
        self.url = url
        self._raw = raw
        self._pieces = raw.iter_stream()
        self._piece = b""
        self._transport = transport

    def __enter__(self) -> Response:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, size: int = CHUNK, /) -> bytes:
        """Return received bytes, at most ``size``; ``b""`` at the end of the body."""
        what = f"reading from {_host(self.url)}"
        try:
            piece = self._piece or next(self._pieces, b"")
        except _HTTP_ERRORS as error:
            self._transport.deadline.check(what)
            raise _unreachable_error(self.url, error) from None
        self._transport.deadline.check(what)
        data, self._piece = piece[:size], piece[size:]
        self._transport.bytes_read += len(data)
        return data

    def read_all(self, largest: int) -> bytes:
        """Return a small body."""
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


class Transport:
    """A transport to registries and token services; several attempts where they do no harm."""

    def __init__(self, options: ImageOptions, deadline: Deadline) -> None:
        self.deadline = deadline
        self.bytes_read = 0
        self._options = options
        self._guard = AddressGuard(options)
        self._pools: dict[tuple[str, bool], httpcore.ConnectionPool] = {}

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in self._pools.values():
            pool.close()

    def open(
        self, url: str, headers: dict[str, str], *, body: bytes | None = None, method: str = "GET"
    ) -> Response:
        """Send a request; follow redirects of a GET or HEAD.

        ``Authorization`` goes to the host of ``url`` only: object stores refuse a request that
        carries another server's token.
        """
        first = urlsplit(url)
        for _ in range(MAX_REDIRECTS + 1):
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
        what = f"{first.netloc} redirects more than {MAX_REDIRECTS} times"
        raise Unavailable(what, field="image", hint="the registry or its mirror is misconfigured")

    def check_lead(self, url: str, target: str) -> None:
        """Check the target of a redirect."""
        scheme, host = urlsplit(target)[:2]
        if scheme not in ("http", "https") or not host:
            raise Unavailable(f"{_host(url)} redirects to {target[:200]!r}", field="image")
        if scheme == "http" and url.startswith("https:"):
            what = f"{_host(url)} redirects from TLS to plain HTTP on {host}"
            raise Unavailable(what, field="image")
        leads = self._options.leads
        if leads is not None and host != urlsplit(url).netloc and host not in leads:
            what = f"{_host(url)} redirects to {host}, which is not among the hosts of its place"
            raise Unavailable(what, field="image")

    def _send(self, url: str, headers: dict[str, str], body: bytes | None, method: str) -> Response:
        """Send one request; retry failed connections and busy servers."""
        self._guard.check_name(url)
        for attempt in range(_ATTEMPTS):
            last = attempt == _ATTEMPTS - 1
            self.deadline.check(f"asking {_host(url)}")
            try:
                response = self._send_once(url, headers, body, method)
            except _HTTP_ERRORS as error:
                self.deadline.check(f"asking {_host(url)}")
                if last or isinstance(error, ssl.SSLError):
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
        own = {"User-Agent": f"compatgate/{version()}"}
        request = httpx.Request(method, url, headers={**own, **headers}, content=body)
        connect, stall = (min(s, self.deadline.left) for s in (_CONNECT_SECONDS, _STALL_SECONDS))
        parts = urlsplit(url)
        if is_loopback(parts.netloc) or proxy_bypass(parts.hostname or ""):
            proxy = ""
        else:
            proxy = getproxies().get(parts.scheme, "")
            proxy = proxy if "://" in proxy or not proxy else f"http://{proxy}"
        key = (proxy, urlsplit(url).netloc in self._options.unverified_tls)
        if key not in self._pools:
            self._pools[key] = self._new_pool(*key)
        raw = self._pools[key].handle_request(
            httpcore.Request(
                method,
                httpcore.URL(
                    scheme=request.url.raw_scheme,
                    host=request.url.raw_host,
                    port=request.url.port,
                    target=request.url.raw_path,
                ),
                headers=request.headers.raw,
                content=body,
                extensions={"timeout": {"connect": connect, "read": stall, "write": stall}},
            )
        )
        return Response(raw, url, self)

    def _new_pool(self, proxy: str, unverified: bool) -> httpcore.ConnectionPool:
        authorities = None if unverified else self._options.ca_file
        if authorities and not os.path.isfile(authorities):
            what = "the file of certificate authorities does not exist"
            raise BadInput(what, field="ca_file", value=authorities)
        context = ssl.create_default_context(cafile=authorities or None)
        if unverified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if not proxy:
            backend = GuardedBackend(self.deadline, self._guard)
            return httpcore.ConnectionPool(context, network_backend=backend)
        # A proxy is the operator's choice, and checks its own connections.
        backend = GuardedBackend(self.deadline, AddressGuard(ImageOptions()))
        place = httpx.Proxy(proxy)
        return httpcore.HTTPProxy(
            str(place.url), place.raw_auth, ssl_context=context, network_backend=backend
        )


class GuardedBackend(httpcore.NetworkBackend):
    """Connects to allowed addresses alone, and ends connections at the deadline."""

    def __init__(self, deadline: Deadline, guard: AddressGuard) -> None:
        self._deadline, self._guard = deadline, guard
        self._system = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address that answers of those that a name was resolved to once."""
        name = f"[{host}]" if ":" in host else host
        addresses = self._guard.resolve(f"//{name}:{port}") or [host]
        for address in addresses:
            limit = min(timeout or _CONNECT_SECONDS, self._deadline.left)
            try:
                stream = self._system.connect_tcp(
                    address, port, limit, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if address == addresses[-1] or not self._deadline.left:
                    raise
                continue
            self._guard.check_peer(host, stream.get_extra_info("socket"))
            return WatchedStream(stream, self._deadline)
        raise AssertionError("the last address returns or raises")


class WatchedStream(httpcore.NetworkStream):
    """A connection that ends at the deadline, before and after TLS."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._stream, self._deadline = stream, deadline
        deadline.watch(stream.get_extra_info("socket"))

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return received bytes."""
        return self._stream.read(max_bytes, timeout)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send bytes."""
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        """Return what httpcore asks of the socket."""
        return self._stream.get_extra_info(info)

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        """Begin TLS, on a socket of its own that ends at the deadline as well."""
        try:
            secure = self._stream.start_tls(ssl_context, server_hostname, timeout)
        except httpcore.ConnectError as error:  # the pool drops its cause
            raise error.__cause__ if isinstance(error.__cause__, ssl.SSLError) else error from None
        return WatchedStream(secure, self._deadline)


def _host(url: str) -> str:
    return urlsplit(url).netloc


def _unreachable_error(url: str, error: Exception) -> Unavailable:
    hint = (
        "give the registry's certificate authority as a file, or name the registry as unverified"
        if isinstance(error, ssl.SSLError)
        else "check the registry's name, the network and the proxy"
    )
    reason = str(error) or type(error).__name__
    return Unavailable(f"{_host(url)} does not answer: {reason[:300]}", field="image", hint=hint)
