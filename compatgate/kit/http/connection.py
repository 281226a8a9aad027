"""Keep connections: HTTP/1.1 with limits to time and size, and TLS certificates.

Certificates are checked before the server starts, and read again when their files change.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import ssl
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from compatgate.errors import BadInput, quote_error
from compatgate.kit.http.direct import DIRECT, DirectApp, DirectExchange, encode_answer

if TYPE_CHECKING:
    from compatgate.kit.http.replies import WholeAnswer

RECEIVE_SECONDS = 30.0
"""A request's headers must have arrived in this time; then its body, in as much again."""
ANSWER_SECONDS = 300.0
"""A request must have been answered in this time, however slowly the client reads."""
MAX_HEAD_BYTES = 64 * 1024
"""Bytes of a request's line and headers."""
PIECE_BYTES = 2048
"""Bytes that are parsed at once: about a hundred of the smallest requests, some milliseconds."""
PEER_CONNECTIONS = 512
"""Connections that one address may have to a process; see `Connection.peer_connections`."""
BODY_ARRIVED = "compatgate.whole"
"""Key in the scope of a request whose body has arrived."""
_HELD_SECONDS = 0.25
"""Maximum wait of a directly answered request for its body; then ASGI gets the request."""
_PARTING_SECONDS = 1.0
_SWEEP_SECONDS = 0.5


class HeadTooLarge(Exception):
    """An error: the request line and headers exceed the limit."""


class Connection(HttpToolsProtocol):
    """Answers the requests of one client, who may be slow, silent or hostile.

    A client that waits for its answer may have closed its side of the connection.

    A request of a plain form is held until its body is there, and answered directly
    (`compatgate.kit.http.direct`); every other one is answered by the ASGI application.

    Requests that are sent together are answered in turn. While one waits for its turn, nothing
    further is parsed or received: a burst waits in the client, and holds up no other connection.

    Attributes:
        peer_connections: connections that one address may have to this process. One more ends the
            connection of this address that has been idle longest; if none is idle, it is refused.
    """

    peer_connections = PEER_CONNECTIONS

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._due = math.inf
        self._head = 0
        self._in_head = True
        self._ended = False
        self._last = False
        self._peer = ""
        self._since = 0.0
        self._direct: DirectApp | None = self.app_state.get(DIRECT)
        self._fields: dict[bytes, bytes] = {}
        self._held: bytearray | None = None
        self._unread = bytearray()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request, up to the limit."""
        super().connection_made(BatchedTransport(transport, self.loop, self._read_on))
        self._receiver = transport
        _connections.add(self)
        self._within(RECEIVE_SECONDS)
        self._since = self.loop.time()
        self._peer = self.client[0] if self.client else ""
        if self._peer:
            _by_peer.setdefault(self._peer, {})[self] = None
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        self._held = None
        self._unread.clear()
        _connections.discard(self)
        if same := _by_peer.get(self._peer):
            same.pop(self, None)
            if not same:
                del _by_peer[self._peer]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data, or keep what must wait."""
        if len(data) <= PIECE_BYTES and not self.pipeline and not self._unread:
            self._parse(data)
        else:
            self._unread += data
            self._read_on()

    def _read_on(self) -> None:
        """Parse what waits, until a request waits for its turn; then receive again."""
        if self._receiver.is_closing():
            return
        while self._unread and not self.pipeline and not self.flow.read_paused:
            piece = bytes(self._unread[:PIECE_BYTES])
            del self._unread[:PIECE_BYTES]
            self._parse(piece)
            if self._receiver.is_closing():
                return
        if self._unread:
            self._receiver.pause_reading()
        elif not self.flow.read_paused:
            self._receiver.resume_reading()

    def _parse(self, data: bytes) -> None:
        """Parse data; refuse a request whose head exceeds the limit."""
        if self._in_head:
            if self._head > MAX_HEAD_BYTES:
                self.send_400_response("The request's line and headers are too large.")
                return
            self._head += len(data)
        super().data_received(data)

    def on_message_begin(self) -> None:
        """Start the time limit for the headers."""
        self._in_head, self._head = True, 0
        self._within(_PARTING_SECONDS if self._last else RECEIVE_SECONDS)
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Read a part of the request's line."""
        self._add(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Read a header."""
        self._add(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Hold a request that may be answered directly, or begin to answer it."""
        self._in_head = False
        if self._direct is not None and self._is_direct(self._direct):
            self._held, self._since = bytearray(), self.loop.time()
        else:
            self._begin_cycle()

    def _is_direct(self, direct: DirectApp) -> bool:
        """Return whether a request may be answered directly."""
        if not self.is_idle or self._last or self.flow.write_paused or self.expect_100_continue:
            return False
        parser, fields = self.parser, dict(self.headers)
        if (
            parser.get_method() != b"POST"
            or parser.get_http_version() != "1.1"
            or not parser.should_keep_alive()
            or parser.should_upgrade()
            or len(fields) != len(self.headers)
            or not direct.takes(self.url, fields)
        ):
            return False
        self._fields = fields
        return True

    def _begin_cycle(self) -> None:
        """Begin to answer by ASGI, and start the time limit for the answer."""
        self._within(ANSWER_SECONDS)
        super().on_headers_complete()
        if self._last and self.cycle is not None:
            self.cycle.keep_alive = False

    def _release(self) -> None:
        """Let ASGI answer the request that is held, whose body is late."""
        held, self._held = self._held, None
        if held is not None:
            self._begin_cycle()
            if held:
                super().on_body(bytes(held))

    def on_body(self, body: bytes) -> None:
        """Read a part of the body."""
        if self._held is None:
            super().on_body(body)
        else:
            self._held += body

    def on_message_complete(self) -> None:
        """Answer a request that is held; tell the application that it need not wait."""
        held, self._held = self._held, None
        if held is None or self._direct is None:
            self.scope[BODY_ARRIVED] = True  # type: ignore[literal-required]
            super().on_message_complete()
            return
        self._within(ANSWER_SECONDS)
        exchange = DirectExchange()
        self.cycle = exchange  # type: ignore[assignment]
        self._direct.answer(self._fields, bytes(held), self._peer, partial(self._reply, exchange))

    def _reply(self, exchange: DirectExchange, answer: WholeAnswer) -> None:
        """Send the answer to a request that was held."""
        exchange.response_complete = True
        if exchange.disconnected or self.transport.is_closing():
            return
        closes = not exchange.keep_alive
        default = self.server_state.default_headers
        self.transport.write(encode_answer(answer, default, closes=closes))
        if closes:
            self.transport.close()
        if self.pipeline:
            self.on_response_complete()  # begins to answer the next request
            return
        self.server_state.total_requests += 1
        self._since = self.loop.time()
        self._within(self.timeout_keep_alive)  # instead of a timer for each answer
        if self._ended:
            self.transport.close()

    def on_response_complete(self) -> None:
        """Wait for the next request, if there can be one."""
        super().on_response_complete()
        if self._unread:
            self.loop.call_soon(self._read_on)
        if self.cycle is not None and self.cycle.response_complete:  # the latest of a pipeline
            self._due = math.inf
            self._since = self.loop.time()
            if self._ended:
                self.transport.close()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection open while an answer is pending."""
        self._ended = True
        self._release()
        cycle = self.cycle
        if cycle is None or cycle.response_complete or self.scheme == "https":
            return False  # nothing is owed; and TLS has no half of a connection
        if cycle.more_body:
            if all(name != b"content-length" for name, _ in self.headers):
                return False  # nobody could tell that chunks are missing
            cycle.more_body = False  # the application sees that it is too short
            cycle.message_event.set()
        return True

    def shutdown(self) -> None:
        """Accept no further request; a client that has just connected may still send one."""
        self._release()
        if self.cycle is None and not self.transport.is_closing():
            self._last = True
            self._within(_PARTING_SECONDS)
        else:
            super().shutdown()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, even if the client has not read its answer."""
        self.transport.abort()

    def end_if_late(self, now: float) -> None:
        """Close a connection on which nothing happened in time."""
        if self._held is not None and now > self._since + _HELD_SECONDS:
            self._release()
        if now > self._due:
            self.transport.abort()

    @property
    def is_idle(self) -> bool:
        """Return whether no request of this connection is being answered."""
        return self._held is None and (self.cycle is None or self.cycle.response_complete)

    def _make_room(self) -> None:
        """End this address's longest idle connection if it has too many, or refuse this one."""
        same = _by_peer[self._peer]
        if len(same) <= self.peer_connections:
            return
        idle = [one for one in same if one is not self and one.is_idle]
        ended = min(idle, key=lambda one: one._since) if idle else self
        if ended is self:
            self.transport.write(_TOO_MANY)
        same.pop(ended, None)  # it is lost a moment later
        ended.transport.close()

    def _add(self, size: int) -> None:
        self._head += size
        if self._head > 2 * MAX_HEAD_BYTES:  # counted as it came, and as it was understood
            raise HeadTooLarge

    def _within(self, seconds: float) -> None:
        self._due = self.loop.time() + seconds


_connections: set[Connection] = set()
"""Connections of this process."""
_by_peer: dict[str, dict[Connection, None]] = {}
"""The same connections by the client's address, in the order in which they came."""
_TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nRetry-After: 1\r\n"
    b"Connection: close\r\nContent-Length: 49\r\n\r\n"
    b"This address has too many connections to the gate"
)


async def end_late_connections() -> None:
    """Close connections that are late, for ever; one timer for all of them."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(_SWEEP_SECONDS)
        now = loop.time()
        for connection in tuple(_connections):
            connection.end_if_late(now)


class BatchedTransport(asyncio.Transport):
    """A transport that sends all writes of one event-loop iteration together.

    The head of an answer and its body would be two packets, and two calls of the system.

    Args:
        transport: of the connection.
        loop: of the transport.
        resume: called where data may be received again; something may wait to be parsed.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        resume: Callable[[], None],
    ) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._resume = resume
        self._written: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send this data with the other writes of this iteration."""
        if not self._written:
            self._loop.call_soon(self._flush)
        self._written.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send these pieces with the other writes of this iteration."""
        for data in list_of_data:
            self.write(data)

    def _flush(self) -> None:
        if self._written:
            written, self._written = self._written, []
            self._transport.write(b"".join(written))

    def close(self) -> None:
        """Send what was written, then close."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._written.clear()
        self._transport.abort()

    def is_closing(self) -> bool:
        """Return whether the connection closes or is closed."""
        return self._transport.is_closing()

    def is_reading(self) -> bool:
        """Return whether data is received."""
        return self._transport.is_reading()

    def pause_reading(self) -> None:
        """Receive nothing for now."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Parse what waits, then receive again."""
        self._loop.call_soon(self._resume)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return information about the connection."""
        return self._transport.get_extra_info(name, default)


_log = logging.getLogger("compatgate.web")


class CertificatePair(Struct, frozen=True):
    """PEM files: the certificate with its chain, and its private key."""

    certificate: str
    key: str


def load_certificate(pair: CertificatePair) -> ssl.SSLContext:
    """Return a context for connections with this certificate: TLS 1.2 and later.

    Raises:
        BadInput: a file cannot be read, is not PEM, or the key is another certificate's.
    """
    for field, path in (("--tls-cert", pair.certificate), ("--tls-key", pair.key)):
        try:
            with open(path, "rb"):
                pass
        except (OSError, ValueError) as error:
            reason = quote_error(error)
            raise BadInput(f"cannot read {path!r}: {reason}", field=field, value=path) from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # A password is never asked for: nobody sits before a service.
        context.load_cert_chain(pair.certificate, pair.key, password=lambda: "")
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or quote_error(error)
        what = f"{pair.certificate!r} and {pair.key!r} are not a certificate and its key: {reason}"
        hint = "PEM, the certificate first, then its chain; the key without a password"
        raise BadInput(what, field="--tls-cert", hint=hint) from None
    return context


def certificate_end(pair: CertificatePair) -> float:
    """Return the Unix time at which the first certificate of the files ends.

    A handshake in memory, which trusts this certificate alone, reads the date. Of a certificate
    that cannot be used, like one that has ended, the answer is 0.
    """
    try:
        seen = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        seen.check_hostname = False
        seen.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        seen.load_verify_locations(pair.certificate)
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = seen.wrap_bio(back, there)
        server = load_certificate(pair).wrap_bio(there, back, server_side=True)
        for side in (client, server, client):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
        return ssl.cert_time_to_seconds(str((client.getpeercert() or {})["notAfter"]))
    except (OSError, ValueError, KeyError, BadInput):
        return 0.0


class ReloadingCertificate:
    """The current certificate of the files; a rotation needs no restart.

    Files that cannot be used (a rotation that is half done) leave the certificate before in use.

    Attributes:
        context: for a server; each connection gets the certificate of its moment.
    """

    def __init__(self, pair: CertificatePair) -> None:
        self._pair = pair
        self._lock = threading.Lock()
        self._seen = _stamp(pair)
        self._latest = self.context = load_certificate(pair)
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        """Give a new connection the latest certificate."""
        seen = _stamp(self._pair)
        if seen != self._seen:
            with self._lock:
                if seen != self._seen:
                    self._read(seen)
        connection.context = self._latest

    def _read(self, seen: object) -> None:
        self._seen = seen
        try:
            self._latest = load_certificate(self._pair)
        except BadInput as error:
            _log.error("the changed certificate is not used: %s", error.detail)
        else:
            _log.info("the changed certificate is in use")


def _stamp(pair: CertificatePair) -> object:
    """Return a value that changes with the file; Kubernetes changes a link above the files."""
    found: list[tuple[int, ...] | None] = []
    for path in (pair.certificate, pair.key):
        try:
            state = os.stat(path)
        except OSError:
            found.append(None)
        else:
            found.append((state.st_mtime_ns, state.st_size, state.st_ino, state.st_dev))
    return tuple(found)
