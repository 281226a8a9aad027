"""Load the server's TLS certificate, and load it again when its files change."""

from __future__ import annotations

import logging
import os
import ssl
import threading
from contextlib import suppress

from msgspec import Struct

from compatgate.errors import BadInput, quote_error

_log = logging.getLogger("compatgate.web")


class CertificatePair(Struct, frozen=True):
    """PEM files: the certificate with its chain, and its private key."""

    certificate: str
    key: str


def load_certificate(pair: CertificatePair) -> ssl.SSLContext:
    """Return a context for connections with this certificate: TLS 1.2 and later."""
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
        # Without a password function, OpenSSL would ask on the terminal, and wait for ever.
        context.load_cert_chain(pair.certificate, pair.key, password=lambda: "")
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or quote_error(error)
        what = f"{pair.certificate!r} and {pair.key!r} are not a certificate and its key: {reason}"
        hint = "PEM, the certificate first, then its chain; the key without a password"
        raise BadInput(what, field="--tls-cert", hint=hint) from None
    return context


def certificate_end(pair: CertificatePair) -> float:
    """Return the Unix time at which the first certificate of the files ends; 0: it has ended.

    A handshake in memory, which trusts this certificate alone, reads the date.
    """
    try:
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname = False
        trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        trusting.load_verify_locations(pair.certificate)
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = trusting.wrap_bio(back, there)
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

    ``context``: for a server; each connection gets the certificate of its moment.
    """

    def __init__(self, pair: CertificatePair) -> None:
        self._pair = pair
        self._lock = threading.Lock()
        self._version = _version_of(pair)
        self._latest = self.context = load_certificate(pair)
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        version = _version_of(self._pair)
        with self._lock:
            if version != self._version:
                self._version = version
                try:
                    self._latest = load_certificate(self._pair)
                except BadInput as error:
                    _log.error("the changed certificate is not used: %s", error.detail)
                else:
                    _log.info("the changed certificate is in use")
        connection.context = self._latest


def _version_of(pair: CertificatePair) -> list[tuple[int, ...]]:
    """Return a value that changes with the files; Kubernetes changes a link above them."""
    version: list[tuple[int, ...]] = []
    for path in (pair.certificate, pair.key):
        with suppress(OSError):
            state = os.stat(path)
            version.append((state.st_mtime_ns, state.st_size, state.st_ino, state.st_dev))
    return version
