"""Who decides about what runs: a gate over REST, or the local database; nothing is logged."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from compatgate.errors import BadInput, Unavailable

if TYPE_CHECKING:
    import argparse

    from compatgate.cli.remote import Server
    from compatgate.core.matrix import Waiver
    from compatgate.core.verdict import Verdict
    from compatgate.documents.specs import MatchSpec
    from compatgate.gate.cluster.audit import Decider
    from compatgate.gate.service import Gate

_PATIENCE_S = 120.0
"""An image may be read for the first time."""
_STORED = ("revision", "created_at", "updated_at", "warnings")


@contextmanager
def decider(args: argparse.Namespace) -> Iterator[Decider]:
    """The server that the arguments or the environment name, else the database.

    Raises:
        BadInput: the server's URL is none.
        Unavailable: the database does not answer, or has another schema.
    """
    url = args.server or (None if args.database else os.environ.get("COMPATGATE_SERVER"))
    if url:
        from compatgate.cli.remote import Server

        token = args.token or os.environ.get("COMPATGATE_TOKEN")
        yield _Remote(Server(url, token, _PATIENCE_S, instead="nothing was decided"))
        return
    from compatgate.cli.database import opened

    with opened(args) as gate:
        yield _Local(gate)


class _Local:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def matches(self) -> Sequence[tuple[str, MatchSpec]]:
        documents = self._gate.snapshot().documents
        return [(name, document.spec.match) for name, document in documents.items()]

    def waivers(self) -> Mapping[str, Waiver]:
        return self._gate.snapshot().waivers

    def decide(self, body: dict[str, Any]) -> Verdict:
        return self._gate.preview(body)


class _Remote:
    def __init__(self, server: Server) -> None:
        self._server = server

    def matches(self) -> Sequence[tuple[str, MatchSpec]]:
        from compatgate.documents.specs import MatchSpec

        return [
            (item["metadata"]["name"], _read(item["spec"].get("match", {}), MatchSpec))
            for item in self._server.items("targets")
        ]

    def waivers(self) -> Mapping[str, Waiver]:
        from compatgate.documents.convert import to_waiver
        from compatgate.documents.specs import WaiverDoc

        documents = (
            _read({k: v for k, v in item.items() if k not in _STORED}, WaiverDoc)
            for item in self._server.items("waivers")
        )
        return {document.metadata.name: to_waiver(document) for document in documents}

    def decide(self, body: dict[str, Any]) -> Verdict:
        from compatgate.core.verdict import Verdict

        verdict: Verdict = _read(self._server.post("gate/preview", body), Verdict)
        return verdict


def _read(body: Any, kind: Any) -> Any:
    import msgspec

    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        what = str(error).replace("`", "'")
        hint = "is it as new as this program?"
        raise Unavailable(f"the gate answers in another form: {what}", hint=hint) from None


def check_gate(args: argparse.Namespace) -> None:
    """Refuse two ways to the matrix at once.

    Raises:
        BadInput: a server and a database are named.
    """
    if args.server and args.database:
        raise BadInput("give --server or --database", field="--server", value=args.server)
