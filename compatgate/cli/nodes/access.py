"""Nodes over REST or in the local database: the same questions, the same plain data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client
    from compatgate.gate.service import Gate


class Access(Protocol):
    """Whoever knows the nodes. Every method raises what the gate raises."""

    def report(self, body: dict[str, Any], *, dry_run: bool) -> list[dict[str, Any]]:
        """Report nodes; they are answered as they are then."""
        ...

    def list(self, which: str, limit: int | None, **filters: Any) -> list[dict[str, Any]]:
        """``nodes`` or ``drift``."""
        ...

    def show(self, name: str, cluster: str | None) -> dict[str, Any]:
        """One node."""
        ...

    def remove(self, name: str, cluster: str | None, reason: str) -> dict[str, Any]:
        """Forget a node."""
        ...


@contextmanager
def accessed(args: argparse.Namespace) -> Iterator[Access]:
    """The server that the arguments or the environment name, else the database.

    Raises:
        BadInput: the server's URL is none.
        Unavailable: the database does not answer, or has another schema.
    """
    from compatgate.cli.remote import make_client, server_of

    if url := server_of(args):
        with make_client(url, args.token) as client:
            yield _Remote(client)
        return
    from compatgate.cli.database import opened

    with opened(args) as gate:
        yield _Local(gate)


class _Local:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def report(self, body: dict[str, Any], *, dry_run: bool) -> list[dict[str, Any]]:
        import msgspec

        from compatgate.cli.database import user
        from compatgate.errors import BadInput
        from compatgate.wire.node_reports import Report

        try:
            report = msgspec.convert(body, Report)
        except msgspec.ValidationError as error:
            raise BadInput(str(error).replace("`", "'"), field="report") from None
        found = self._gate.nodes.report(report, by=user(), dry_run=dry_run)
        return [view.to_json() for view in found]

    def list(self, which: str, limit: int | None, **filters: Any) -> list[dict[str, Any]]:
        from compatgate.cli.database import collect

        if which == "drift":
            return [view.to_drift() for view in collect(self._gate.nodes.drift, limit, **filters)]
        return [view.to_json() for view in collect(self._gate.nodes.list, limit, **filters)]

    def show(self, name: str, cluster: str | None) -> dict[str, Any]:
        return self._gate.nodes.show(name, cluster).to_json()

    def remove(self, name: str, cluster: str | None, reason: str) -> dict[str, Any]:
        from compatgate.cli.database import user
        from compatgate.gate.matrix import By

        return self._gate.nodes.remove(name, By(user(), reason), cluster).to_json()


class _Remote:
    def __init__(self, client: Client) -> None:
        self._client = client

    def report(self, body: dict[str, Any], *, dry_run: bool) -> list[dict[str, Any]]:
        cluster, nodes = body["cluster"], body["nodes"]
        answer = self._plain("report_nodes", nodes, cluster=cluster, dry_run=dry_run)
        found: list[dict[str, Any]] = answer["nodes"]
        return found

    def list(self, which: str, limit: int | None, **filters: Any) -> list[dict[str, Any]]:
        from compatgate.client.operations import Operations

        listing: Any = getattr(Operations, f"list_{which}")
        items = iter(self._client.items(listing.request(**filters).plain()))
        return [*islice(items, limit)]

    def show(self, name: str, cluster: str | None) -> dict[str, Any]:
        return self._plain("show_node", name, cluster=cluster)

    def remove(self, name: str, cluster: str | None, reason: str) -> dict[str, Any]:
        return self._plain("remove_node", name, cluster=cluster, reason=reason)

    def _plain(self, operation: str, *args: Any, **named: Any) -> dict[str, Any]:
        from compatgate.client.operations import Operations

        asked: Any = getattr(Operations, operation)
        answer: dict[str, Any] = self._client.send(asked.request(*args, **named).plain())
        return answer
