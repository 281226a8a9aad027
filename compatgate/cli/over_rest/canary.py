"""Canary runs, their hosts and baselines over REST."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compatgate.cli.over_rest.plain import Plain

_ACTIONS = {"cancel": "cancel_run", "rerun": "rerun", "approve": "approve_baseline"}


class RemoteCanary(Plain):
    """See `compatgate.cli.canary.access.Access`."""

    def submit(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Queue runs."""
        made: list[dict[str, Any]] = self._ask("submit_runs", **body)["runs"]
        return made

    def list(self, what: str, limit: int | None, **filters: Any) -> list[dict[str, Any]]:
        """``runs``, ``hosts`` or ``baselines``."""
        return self._list(f"list_{what}", limit, **filters)

    def show(self, what: str, name: str) -> dict[str, Any]:
        """One of ``runs`` or ``baselines``."""
        return self._ask(f"show_{what.removesuffix('s')}", name)

    def act(self, what: str, name: str, action: str) -> dict[str, Any]:
        """``cancel`` or ``rerun`` a run, ``approve`` a baseline."""
        return self._ask(_ACTIONS[action], name)

    def log(self, run: str, step: str | None) -> Iterator[str]:
        """A run's log as it is now."""
        return self._client.show_logs(run, step=step)

    def follow(self, run: str, step: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Events until ``end``."""
        for event in self._client.follow_run(run, step=step):
            yield event.name, event.data
