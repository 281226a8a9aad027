"""Canary runs, their hosts and baselines over REST."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from compatgate.cli.over_rest.plain import Plain
from compatgate.client.operations import Operations
from compatgate.documents.sources import Source

_ACTIONS = {
    "cancel": "cancel_run",
    "rerun": "rerun",
    "approve": "approve_baseline",
    "refuse": "refuse_baseline",
}


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

    def act(self, action: str, name: str) -> dict[str, Any]:
        """``cancel`` or ``rerun`` a run, ``approve`` or ``refuse`` a baseline."""
        return self._ask(_ACTIONS[action], name)

    def log(self, run: str, step: str | None) -> Iterator[str]:
        """A run's log as it is now."""
        return self._client.show_logs(run, step=step)

    def follow(self, run: str, step: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Events until ``end``."""
        for event in self._client.follow_run(run, step=step):
            yield event.name, event.data

    def samples(self, run: str, step: str | None, note: str) -> dict[str, Any]:
        """What a run measured, as files."""
        return self._ask("take_samples", run, step=step, note=note or None)

    def export_baselines(self, **filters: Any) -> Sequence[dict[str, Any]]:
        """What runs are judged against, line by line."""
        asked: Any = Operations.export_baselines
        lines: Sequence[dict[str, Any]] = self._client.send(asked.request(**filters))
        return lines

    def import_baselines(self, sources: Sequence[Source]) -> dict[str, Any]:
        """Propose baselines from files."""
        files = [{"name": source.file, "text": source.text} for source in sources]
        return self._ask("import_baselines", files)
