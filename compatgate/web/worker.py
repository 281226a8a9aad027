"""A process of the server: threads that answer, and a stop that loses nothing."""

from __future__ import annotations

import select
import signal
import time
from functools import partial
from socket import SHUT_RD, SHUT_RDWR, socket
from ssl import SSLSocket
from typing import Any

from gunicorn.workers.gthread import ThreadWorker  # type: ignore[import-untyped]

from compatgate.web import streams
from compatgate.web.express import End
from compatgate.web.lane import EXTENSION

RECEIVE_SECONDS = 30.0
"""A request must have arrived whole in this time; a thread waits for it no longer."""
ANSWER_SECONDS = 300.0
"""A request must have been answered in this time, however slowly the client reads."""
_LINGER_MILLISECONDS = 2


class Worker(ThreadWorker):  # type: ignore[misc]
    """A worker that waits for no slow client for ever."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._busy: dict[Any, float] = {}

    def init_signals(self) -> None:
        """Stop gracefully on Ctrl-C as well."""
        super().init_signals()
        signal.signal(signal.SIGINT, self.handle_exit)  # a terminal sends it to every process

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Stop gracefully; who follows a log is not waited for."""
        # A worker that is still starting has no application yet, and nobody who listens.
        listeners = getattr(getattr(self, "wsgi", None), "extensions", {}).get(streams.EXTENSION)
        if listeners is not None:
            listeners.ending = True
        super().handle_exit(sig, frame)

    def handle(self, conn: Any) -> Any:
        """Answer the requests of a connection, as long as they follow each other closely.

        Giving a connection back to the main thread and taking it again costs more than most
        answers, so its thread waits a moment for the next request, unless others are waiting.
        """
        while True:
            self._busy[conn] = time.monotonic()
            try:
                result = super().handle(conn)
                if result is not True or not self.alive:
                    return result
                end = self._go_on(conn)
            except OSError:
                return False
            finally:
                self._busy.pop(conn, None)
            if end is not End.OTHER:
                return end is End.IDLE

    def _go_on(self, conn: Any) -> End:
        """Answer plain questions; everything else is left to gunicorn."""
        unreader = conn.parser.unreader
        if unreader.buf.getvalue():
            return End.OTHER
        express = getattr(self.wsgi, "extensions", {}).get(EXTENSION)
        ready = partial(self._is_ready, conn)
        if express is None:
            return End.OTHER if ready() else End.IDLE
        end: End = express.serve(conn.sock, ready, unreader.unread)
        return end

    def _is_ready(self, conn: Any) -> bool:
        """Wait a moment for the next request, unless others are waiting for this thread."""
        self._busy.pop(conn, None)
        if self.tpool._work_queue.qsize() or not self.alive:
            return False
        if isinstance(conn.sock, SSLSocket) and conn.sock.pending():  # poll does not see it
            self._busy[conn] = time.monotonic()
            return True
        poll = select.poll()
        poll.register(conn.sock, select.POLLIN)
        if not poll.poll(_LINGER_MILLISECONDS):
            return False
        self._busy[conn] = time.monotonic()
        return True

    def notify(self) -> None:
        """Called every second at least: ends what took too long."""
        super().notify()
        now = time.monotonic()
        for conn, began in list(self._busy.items()):
            if now - began > RECEIVE_SECONDS:
                try:
                    late = now - began > ANSWER_SECONDS
                    # Not TLS's own shutdown, which would go on in plain text.
                    socket.shutdown(conn.sock, SHUT_RDWR if late else SHUT_RD)
                except OSError:
                    continue
