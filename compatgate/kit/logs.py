"""Write log lines as text or JSON, one line for each event, without secrets.

A thread of its own writes the lines, so that no request waits for whoever reads the log. Secrets
never belong in a message; `redact` removes what looks like one all the same.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import select
import sys
import threading
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec

LogFormat = Literal["text", "json"]
FORMATS: tuple[LogFormat, ...] = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
MAX_BYTES = 4 * 1024 * 1024
"""Bytes of lines that may wait for their reader."""
_BATCH_SECONDS = 0.05
_FIELDS = "fields"
_HIDDEN = "***"
_SECRETS = (
    (re.compile(r"\b(cgs?_)[A-Za-z0-9_-]{12,}"), rf"\1{_HIDDEN}"),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), _HIDDEN),
    (re.compile(r"(?i)\b(bearer|basic)(\s+)[\w.~+/=-]{6,}"), rf"\1\2{_HIDDEN}"),
    (re.compile(r"(://[^/\s:@'\"]*):[^/\s'\"]+@"), rf"\1:{_HIDDEN}@"),
    (
        re.compile(r"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie)(['\"]?\s*[:=]\s*)[^\r\n]+"),
        rf"\1\2{_HIDDEN}",
    ),
    (re.compile(r"(?i)(compatgate_(?:session|visit)=)[^;\s'\"]+"), rf"\1{_HIDDEN}"),
    (
        re.compile(
            r"(?i)\b(password|passwd|secret|client_secret|token|access_token|id_token"
            r"|refresh_token|code_verifier|form_token)=[^&\s'\"]+"
        ),
        rf"\1={_HIDDEN}",
    ),
)
_CONTROL = {code: repr(chr(code))[1:-1] for code in (*range(32), 127, 0x85, 0x2028, 0x2029)}
_encode = msgspec.json.Encoder(enc_hook=str).encode
_format: LogFormat | None = None


def redact(text: str) -> str:
    """Return text without what looks like a secret."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def fields(**values: Any) -> dict[str, Any]:
    """Return the ``extra`` argument of a log call that adds fields to its line."""
    return {_FIELDS: {key: value for key, value in values.items() if value is not None}}


def format_line(
    form: LogFormat, at: float, level: str, name: str, message: str, values: Mapping[str, Any]
) -> str:
    """Return a line of the log, with the local time as text and UTC as JSON."""
    second, milliseconds = int(at), f"{int(at % 1 * 1000):03d}"
    if form == "json":
        when = f"{_utc_second(second)}.{milliseconds}Z"
        start = {"time": when, "level": level.lower(), "logger": name, "message": message}
        return _encode({**start, **values}).decode()
    shown = "".join(f" {key}={_text_value(value)}" for key, value in values.items())
    return f"{_local_second(second)},{milliseconds} {level.upper()} {name}: {message}{shown}"


@lru_cache(maxsize=2)
def _local_second(at: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


@lru_cache(maxsize=2)
def _utc_second(at: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))


def _text_value(value: Any) -> str:
    text = value if isinstance(value, str) else _encode(value).decode()
    plain = text and text.isprintable() and not any(mark in text for mark in ' "=')
    return text if plain or not isinstance(value, str) else _encode(text).decode()


class TextFormatter(logging.Formatter):
    """Format a record as one line; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        about = (record.created, record.levelname, record.name)
        message = record.getMessage().translate(_CONTROL)
        line = format_line("text", *about, message, getattr(record, _FIELDS, {}))
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return redact(line)


class JsonFormatter(logging.Formatter):
    """Format a record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        values = {**getattr(record, _FIELDS, {})}
        if record.exc_info:
            values["traceback"] = self.formatException(record.exc_info)
        shown = {key: redact(one) if isinstance(one, str) else one for key, one in values.items()}
        about = (record.created, record.levelname, record.name)
        return format_line("json", *about, redact(record.getMessage()), shown)


class LineWriter:
    """A thread that writes lines to a file descriptor; safe for any number of threads.

    The thread starts with the first line, in each process anew.
    """

    def __init__(self, descriptor: int = 2) -> None:
        self._descriptor = descriptor
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._lines: list[bytes] = []
        self._size = 0
        self._urgent = False
        self._dropped = 0
        self.all_dropped = 0
        self._thread: threading.Thread | None = None

    def put(self, line: bytes, *, urgent: bool = False) -> None:
        """Queue a line; drop it if too many wait.

        ``urgent`` writes it at once; other lines wait `_BATCH_SECONDS` for company.
        """
        with self._changed:
            if self._size + len(line) > MAX_BYTES:
                self._dropped += 1
                self.all_dropped += 1
                return
            self._lines.append(line)
            self._size += len(line)
            self._urgent |= urgent
            if self._thread is None:
                self._start()
            elif urgent or len(self._lines) == 1:
                self._changed.notify_all()

    def flush(self, seconds: float = 2.0) -> None:
        """Wait until the queued lines are written, at most this long."""
        with self._changed:
            self._urgent = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._size, seconds)

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="log", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no threads left, or the interpreter ends
            self._write(b"".join(self._lines))
            self._lines, self._size = [], 0
        else:
            self._thread = thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._dropped)
                self._changed.wait_for(lambda: self._urgent, _BATCH_SECONDS)
                lines, self._lines, self._urgent = self._lines, [], False
                dropped, self._dropped = self._dropped, 0
            self._write(b"".join(lines))
            if dropped:
                message = f"dropped {dropped} log lines: their reader is too slow"
                form, now = _format or "text", time.time()
                line = format_line(form, now, "warning", "compatgate.log", message, {})
                self._write(f"{line}\n".encode())
            with self._changed:
                self._size = sum(map(len, self._lines))
                self._changed.notify_all()

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])
            except OSError:  # the reader is gone
                return


class _Handler(logging.Handler):
    def __init__(self, writer: LineWriter) -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record).encode("utf-8", "backslashreplace") + b"\n"
        except Exception:
            self.handleError(record)
        else:
            self._writer.put(line, urgent=True)


writer = LineWriter()
"""The writer of this process's log."""


def configure(form: LogFormat, level: str) -> None:
    """Send every log record of this process, and of its children, to standard error."""
    global _format
    _format = form
    handler = _Handler(writer)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    atexit.register(writer.flush)


def tell(message: str) -> None:
    """Tell the operator something on standard error; as a line of the log where that is JSON."""
    if _format == "json":
        line = format_line("json", time.time(), "info", "compatgate.serve", redact(message), {})
        writer.put(f"{line}\n".encode(), urgent=True)
    else:
        sys.stderr.write(f"{message}\n")  # in one piece: other threads write as well
        sys.stderr.flush()


def handlers() -> list[logging.Handler]:
    """Return the handlers that `configure` made; empty: it was not called."""
    return [one for one in logging.getLogger().handlers if isinstance(one, _Handler)]


def current_format() -> LogFormat | None:
    """Return the format that `configure` was given; None: this program keeps no log."""
    return _format
