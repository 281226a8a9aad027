"""Speak HTTP with registries: streamed bodies, bounded redirects, one deadline, counted bytes.

`AddressGuard` says which addresses a request may connect to, and the connection goes there.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any
from urllib.parse import urljoin, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, SSLError
from urllib3.util import Timeout

from compatgate import version
from compatgate.discovery.registry.addresses import AddressGuard
from compatgate.discovery.registry.image_spec import is_loopback
from compatgate.discovery.registry.limits import Deadline, ImageOptions
from compatgate.errors import BadInput, Unavailable

MAX_REDIRECTS = 5
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
        """Return received bytes, at most ``size``; ``b""`` at the end of the body."""
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
        self._raw.release_conn()


class Transport:
    """A transport for requests to registries, token services and redirects.

    Args:
        options: which addresses it may connect to.
        attempts: at one request; more than one for servers that bear repetition.

    Attributes:
        bytes_read: bytes of all bodies so far.
    """

    def __init__(
        self, options: ImageOptions, deadline: Deadline, attempts: int = _ATTEMPTS
    ) -> None:
        self.deadline = deadline
        self._attempts = attempts
        self.bytes_read = 0
        self._options = options
        self._guard = AddressGuard(options)
        self._managers: dict[tuple[str, bool, str], urllib3.PoolManager] = {}

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

    def _send(self, url: str, headers: dict[str, str], body: bytes | None, method: str) -> Response:
        """Send one request; retry failed connections and busy servers.

        The name is resolved once for all attempts, each of which tries another of its addresses.
        """
        self._guard.check_name(url)
        proxy = _proxy_for(url)
        addresses = [] if proxy else self._guard.resolve(url)
        for attempt in range(self._attempts):
            last = attempt == self._attempts - 1
            self.deadline.check(f"asking {_host(url)}")
            address = addresses[attempt % len(addresses)] if addresses else ""
            try:
                response = self._send_once(url, headers, body, method, proxy, address)
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
        self,
        url: str,
        headers: dict[str, str],
        body: bytes | None,
        method: str,
        proxy: str,
        address: str,
    ) -> Response:
        left = self.deadline.left
        own = {"User-Agent": f"compatgate/{version()}"}
        if address:
            own["Host"] = _host(url).rpartition("@")[2]
        raw = self._manager(url, proxy, pinned=bool(address)).request(
            method,
            _at_address(url, address) if address else url,
            body=body,
            headers={**own, **headers},
            timeout=Timeout(connect=min(_CONNECT_SECONDS, left), read=min(_STALL_SECONDS, left)),
            retries=False,
            redirect=False,
            preload_content=False,
            decode_content=False,
        )
        return Response(raw, url, self)

    def _manager(self, url: str, proxy: str, *, pinned: bool) -> urllib3.PoolManager:
        """Return the connections for a URL; pinned ones belong to one name."""
        parts = urlsplit(url)
        name = (parts.hostname or "") if pinned else ""
        key = (proxy, parts.netloc in self._options.unverified_tls, name)
        if key not in self._managers:
            self._managers[key] = self._new_manager(*key)
        return self._managers[key]

    def _new_manager(self, proxy: str, unverified: bool, name: str) -> urllib3.PoolManager:
        settings: dict[str, Any] = {"cert_reqs": "CERT_NONE" if unverified else "CERT_REQUIRED"}
        if self._options.ca_file and not unverified:
            if not os.path.isfile(self._options.ca_file):
                what = "the file of certificate authorities does not exist"
                raise BadInput(what, field="ca_file", value=self._options.ca_file)
            settings["ca_certs"] = self._options.ca_file
        if name:  # the URL has an address: the certificate is that of the name
            settings |= {"server_hostname": name, "assert_hostname": name}
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


def _proxy_for(url: str) -> str:
    """Return the proxy of the environment for a URL; empty if there is none."""
    parts = urlsplit(url)
    if is_loopback(parts.netloc) or proxy_bypass(parts.hostname or ""):
        return ""
    return getproxies().get(parts.scheme, "")


def _at_address(url: str, address: str) -> str:
    """Return a URL with an address in place of its name."""
    parts = urlsplit(url)
    host = f"[{address}]" if ":" in address else address
    netloc = host if parts.port is None else f"{host}:{parts.port}"
    return urlunsplit(parts._replace(netloc=netloc))


def _watched_pools(deadline: Deadline, guard: AddressGuard) -> dict[str, Any]:
    """Return pools whose connections reach only allowed addresses, and end at the deadline."""

    class Plain(HTTPConnection):
        def connect(self) -> None:
            super().connect()
            guard.check_peer(self.host, self.sock)
            deadline.watch(self.sock)

    class Secure(HTTPSConnection):
        def connect(self) -> None:
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
