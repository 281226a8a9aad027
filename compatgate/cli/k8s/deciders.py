"""Who decides about what runs: a gate over REST, or the local database; nothing is logged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from compatgate.errors import Unavailable

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client
    from compatgate.core.matrix import Waiver
    from compatgate.core.verdict import Verdict
    from compatgate.documents.specs import MatchSpec
    from compatgate.gate.cluster.audit import Decider
    from compatgate.gate.service import Gate

_PATIENCE_S = 120.0
"""An image may be read for the first time."""


@contextmanager
def decider(args: argparse.Namespace) -> Iterator[Decider]:
    """The server that the arguments or the environment name, else the database.

    Raises:
        BadInput: the server's URL is none.
        Unavailable: the database does not answer, or has another schema.
    """
    from compatgate.cli.remote import make_client, server_of

    if url := server_of(args):
        with make_client(url, args.token, _PATIENCE_S) as client:
            yield _Remote(client)
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
    def __init__(self, client: Client) -> None:
        self._client = client

    def matches(self) -> Sequence[tuple[str, MatchSpec]]:
        return [(item.metadata.name, item.spec.match) for item in self._client.list_targets()]

    def waivers(self) -> Mapping[str, Waiver]:
        from compatgate.documents.convert import to_waiver
        from compatgate.documents.specs import WaiverDoc

        documents = (
            WaiverDoc(item.apiVersion, item.metadata, item.spec)
            for item in self._client.list_waivers()
        )
        return {document.metadata.name: to_waiver(document) for document in documents}

    def decide(self, body: dict[str, Any]) -> Verdict:
        from msgspec import ValidationError, convert

        from compatgate.client.operations import Operations
        from compatgate.core.verdict import Verdict

        answer = self._client.send(Operations.preview.request(body).plain())
        try:
            return convert(answer, Verdict)
        except ValidationError as error:
            what = str(error).replace("`", "'")
            hint = "is it as new as this program?"
            raise Unavailable(f"the gate answers in another form: {what}", hint=hint) from None
