"""Prepare the service before it accepts connections: address, database, matrix, first token."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Sequence

from msgspec import Struct

from compatgate.canary.allowed_images import EVERY_IMAGE, AllowedImages
from compatgate.core.facts import Facts
from compatgate.documents.sources import read_paths
from compatgate.errors import BadInput
from compatgate.kit.database import schema
from compatgate.kit.database.database import Database
from compatgate.service.gate.decision_writer import Commit
from compatgate.service.gate.images import ImageSettings
from compatgate.service.gate.service import Gate
from compatgate.service.gate.snapshot import Snapshot
from compatgate.service.gate.wheels import WheelSettings
from compatgate.service.matrix.files import ImportResult
from compatgate.service.matrix.service import Authorship
from compatgate.service.tokens.service import NewToken

BACKLOG = 2048
AUTHOR = "serve"
_TABLES = (
    "cuda_driver",
    "driver_branches",
    "forward_compat",
    "gpus",
    "arch",
    "cudnn",
    "nccl",
    "known_issues",
)


class Prepared(Struct, frozen=True):
    """The prepared service.

    Attributes:
        facts: every table in memory.
        overlays: the operator's fact files, as given; so is the database.
        imported: what the import made; None: nothing was imported.
        revision: of the matrix.
        admin: the first token, at the first start only.
        snapshot: what answers rest on at the start; every process begins with it.
    """

    facts: Facts
    overlays: Sequence[str] | None
    database: str | None
    imported: ImportResult | None
    revision: int
    admin: NewToken | None
    snapshot: Snapshot

    def open_gate(
        self,
        images: ImageSettings,
        under_test: AllowedImages = EVERY_IMAGE,
        commit: Commit = "sync",
        wheels: WheelSettings | None = None,
    ) -> Gate:
        """Open a gate on the same facts, for one process.

        Args:
            images: what is read of images that questions name.
            under_test: images that submitted canary runs may name.
            commit: whether an answer waits until PostgreSQL's disk has its decision.
            wheels: indexes whose wheels are measured.
        """
        database = Database.open(self.database)
        gate = Gate(
            database,
            self.facts,
            overlays=self.overlays,
            images=images,
            commit=commit,
            wheels=wheels,
        )
        gate.runs.under_test = under_test
        gate.snapshots.begin_with(self.snapshot)
        return gate


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        BadInput: no such host, or the port is in use or not allowed.
    """
    if not host:
        raise BadInput("no host is given", field="--host", hint="use 0.0.0.0 for every address")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(
            f"{host!r} is not an address of this machine: {reason}", field="--host"
        ) from None
    family, kind, protocol, _, address = min(found, key=lambda item: item[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        raise _cannot_listen(host, port, error) from None
    return listener


def _cannot_listen(host: str, port: int, error: Exception) -> BadInput:
    code = getattr(error, "errno", None)
    reason = getattr(error, "strerror", None) or str(error)
    if code == errno.EADDRINUSE:
        hint = "choose another, or --port 0 for a free one"
        return BadInput(f"port {port} on {host} is in use", field="--port", hint=hint)
    if code == errno.EACCES:
        hint = "ports below 1024 need privileges"
        return BadInput(f"port {port} is not allowed", field="--port", hint=hint)
    return BadInput(f"cannot listen on {host}, port {port}: {reason}", field="--host")


def url_of(listener: socket.socket, host: str, *, secure: bool = False) -> str:
    """Return the URL of a listener, with the host as given."""
    port = listener.getsockname()[1]
    scheme = "https" if secure else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def is_loopback(listener: socket.socket) -> bool:
    """Return whether a listener accepts only local connections."""
    return ipaddress.ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback


def prepare(
    database: str | None, matrix: Sequence[str], overlays: Sequence[str] | None
) -> Prepared:
    """Read the facts, open (and migrate) the database, import the first matrix.

    Args:
        database: URL or path; None: as `Gate.open`.
        matrix: files and folders, imported when the stored matrix is empty.
        overlays: the operator's fact files.

    Raises:
        CompatgateError: whatever is wrong with any of them; nothing was imported then.
    """
    from compatgate.catalog import load_facts

    sources = read_paths(matrix)
    facts = load_facts(overlays)
    _preload(facts)
    opened = Database.open(database)
    schema.prepare(opened)
    gate = Gate(opened, facts, overlays=overlays)
    try:
        imported = None
        if sources and _is_empty(gate):
            by = Authorship(AUTHOR, f"first start: {', '.join(map(os.path.basename, matrix))}")
            imported = gate.matrix.import_documents(sources, by)
        revision = gate.check_ready()["revision"]
        admin = gate.tokens.ensure_admin()
        return Prepared(facts, overlays, database, imported, revision, admin, gate.snapshot())
    finally:
        gate.close()


def _is_empty(gate: Gate) -> bool:
    matrix = gate.matrix
    lists = (matrix.list_targets, matrix.list_entries, matrix.list_waivers)
    return not any(found(limit=1).items for found in lists)


def _preload(facts: Facts) -> None:
    """Read every table now, so that processes forked from here on share them."""
    for name in _TABLES:
        getattr(facts, name)
    for name in facts.framework_names:
        facts.framework(name)
