"""Certificates of the server: checked before it starts, read again when their files change."""

from __future__ import annotations

import logging
import os
import ssl
import threading

from msgspec import Struct

from compatgate.errors import BadInput

_log = logging.getLogger("compatgate.web")


class Pair(Struct, frozen=True):
    """PEM files: the certificate with its chain, and its private key."""

    certificate: str
    key: str


def load(pair: Pair) -> ssl.SSLContext:
    """A context for connections with this certificate: TLS 1.2 and later.

    Raises:
        BadInput: a file cannot be read, is not PEM, or the key is another certificate's.
    """
    for field, path in (("--tls-cert", pair.certificate), ("--tls-key", pair.key)):
        try:
            with open(path, "rb"):
                pass
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise BadInput(f"cannot read {path!r}: {reason}", field=field, value=path) from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # A password is never asked for: nobody sits before a service.
        context.load_cert_chain(pair.certificate, pair.key, password=lambda: "")
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        what = f"{pair.certificate!r} and {pair.key!r} are no certificate and its key: {reason}"
        hint = "PEM, the certificate first, then its chain; the key without a password"
        raise BadInput(what, field="--tls-cert", hint=hint) from None
    return context


class Reloading:
    """The certificate of the files as they are now; a rotation needs no restart.

    Files that cannot be used (a rotation that is half done) leave the certificate before in use.

    Attributes:
        context: for a server; each connection gets the certificate of its moment.
    """

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._lock = threading.Lock()
        self._seen = _stamp(pair)
        self._latest = self.context = load(pair)
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        """Give a connection that begins the latest certificate."""
        seen = _stamp(self._pair)
        if seen != self._seen:
            with self._lock:
                if seen != self._seen:
                    self._read(seen)
        connection.context = self._latest

    def _read(self, seen: object) -> None:
        self._seen = seen
        try:
            self._latest = load(self._pair)
        except BadInput as error:
            _log.error("the certificate was changed and is not used: %s", error.detail)
        else:
            _log.info("the certificate was changed and is in use")


def _stamp(pair: Pair) -> object:
    """What changes when a file does; Kubernetes changes a link above the files."""
    found: list[tuple[int, ...] | None] = []
    for path in (pair.certificate, pair.key):
        try:
            state = os.stat(path)
        except OSError:
            found.append(None)
        else:
            found.append((state.st_mtime_ns, state.st_size, state.st_ino, state.st_dev))
    return tuple(found)
