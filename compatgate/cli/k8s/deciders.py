"""Who decides about what runs: a gate over REST, or the local database; nothing is logged."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from compatgate.cli.service import place

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client
    from compatgate.core.matrix import Waiver
    from compatgate.core.verdict import Verdict
    from compatgate.documents.specs import TargetSpec
    from compatgate.gate.cluster.audit import Decider
    from compatgate.gate.service import Gate

_PATIENCE_S = 120.0
"""An image may be read for the first time."""


def decider(args: argparse.Namespace) -> AbstractContextManager[Decider]:
    """The server that the arguments or the environment name, else the database.

    Raises:
        CompatgateError: as `place`.
    """
    return place(args, _Local, _over_rest, patience_s=_PATIENCE_S)


def _over_rest(client: Client) -> Decider:
    from compatgate.cli.over_rest.deciding import RemoteDecider

    return RemoteDecider(client)


class _Local:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def targets(self) -> Mapping[str, TargetSpec]:
        documents = self._gate.snapshot().documents
        return {name: document.spec for name, document in documents.items()}

    def waivers(self) -> Mapping[str, Waiver]:
        return self._gate.snapshot().waivers

    def decide(self, body: dict[str, Any]) -> Verdict:
        return self._gate.preview(body)
