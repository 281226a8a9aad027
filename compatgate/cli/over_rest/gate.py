"""A gate asked over REST, in the shape of the service: commands need not know which it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from compatgate.cli.over_rest.history import RemoteHistory, RemoteTokens
from compatgate.cli.over_rest.matrix import RemoteMatrix
from compatgate.client.operations import Operations

if TYPE_CHECKING:
    from compatgate.client import Client
    from compatgate.gate.runs.remarks import Remarks


class RemoteGate:
    """A gate at the other end of a client."""

    def __init__(self, client: Client) -> None:
        self.matrix = RemoteMatrix(client)
        self.tokens = RemoteTokens(client)
        self.history = RemoteHistory(client)
        self.runs = RemoteRuns(client)


class RemoteRuns:
    """What runs say of entries."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def remarks(self, names: Iterable[str]) -> Mapping[str, Remarks]:
        """What is to be said of some entries, by name."""
        from compatgate.gate.runs.remarks import Remarks

        found: dict[str, Remarks] = {}
        for name in names:
            request = Operations.show_entry.request(name)
            body: dict[str, Any] = self._client.send(request.plain())
            found[name] = msgspec.convert(body, Remarks)
        return found
