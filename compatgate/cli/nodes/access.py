"""Nodes over REST or in the local database: the same questions, the same plain data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import argparse

    from compatgate.cli.remote import Server
    from compatgate.gate.service import Gate

_PATIENCE_S = 60.0


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
    url = args.server or (None if args.database else os.environ.get("COMPATGATE_SERVER"))
    if url:
        from compatgate.cli.remote import Server

        token = args.token or os.environ.get("COMPATGATE_TOKEN")
        yield _Remote(Server(url, token, _PATIENCE_S, instead="check that it runs"))
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
        from compatgate.gate.nodes.report import Report

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
    def __init__(self, server: Server) -> None:
        self._server = server

    def report(self, body: dict[str, Any], *, dry_run: bool) -> list[dict[str, Any]]:
        query = "?dry_run=true" if dry_run else ""
        answer: list[dict[str, Any]] = self._server.post(f"nodes{query}", body)["nodes"]
        return answer

    def list(self, which: str, limit: int | None, **filters: Any) -> list[dict[str, Any]]:
        return self._server.items(which, limit, **filters)

    def show(self, name: str, cluster: str | None) -> dict[str, Any]:
        return self._server.get(_node(name, cluster=cluster))

    def remove(self, name: str, cluster: str | None, reason: str) -> dict[str, Any]:
        return self._server.delete(_node(name, cluster=cluster, reason=reason))


def _node(name: str, **query: str | None) -> str:
    from urllib.parse import quote, urlencode

    given = urlencode({key: value for key, value in query.items() if value is not None})
    return f"nodes/{quote(name, safe='')}{'?' if given else ''}{given}"
