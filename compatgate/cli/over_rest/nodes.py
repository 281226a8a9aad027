"""Nodes over REST."""

from __future__ import annotations

from typing import Any

from compatgate.cli.over_rest.plain import Plain


class RemoteNodes(Plain):
    """See `compatgate.cli.nodes.access.Access`."""

    def report(self, body: dict[str, Any], *, dry_run: bool) -> list[dict[str, Any]]:
        """Report nodes; they are answered as they are then."""
        cluster, nodes = body["cluster"], body["nodes"]
        answer = self._ask("report_nodes", nodes, cluster=cluster, dry_run=dry_run)
        found: list[dict[str, Any]] = answer["nodes"]
        return found

    def list(self, which: str, limit: int | None, **filters: Any) -> list[dict[str, Any]]:
        """``nodes`` or ``drift``."""
        return self._list(f"list_{which}", limit, **filters)

    def show(self, name: str, cluster: str | None) -> dict[str, Any]:
        """One node."""
        return self._ask("show_node", name, cluster=cluster)

    def remove(self, name: str, cluster: str | None, reason: str) -> dict[str, Any]:
        """Forget a node."""
        return self._ask("remove_node", name, cluster=cluster, reason=reason)
