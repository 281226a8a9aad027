"""Nodes over REST or in the local database: the same questions, the same plain data."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from compatgate.cli.service import place

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


def accessed(args: argparse.Namespace) -> AbstractContextManager[Access]:
    """The server that the arguments or the environment name, else the database.

    Raises:
        CompatgateError: as `place`.
    """
    return place(args, _Local, _over_rest)


def _over_rest(client: Client) -> Access:
    from compatgate.cli.over_rest.nodes import RemoteNodes

    return RemoteNodes(client)


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
