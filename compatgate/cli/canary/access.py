"""Runs over REST or in the local database: the same questions, the same plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from compatgate.cli.service import place

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client
    from compatgate.documents.sources import Source
    from compatgate.gate.service import Gate


class Access(Protocol):
    """Whoever knows the runs. Every method raises what the gate raises."""

    def submit(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Queue runs."""
        ...

    def list(self, what: str, limit: int | None, **filters: Any) -> list[dict[str, Any]]:
        """``runs``, ``hosts`` or ``baselines``."""
        ...

    def show(self, what: str, name: str) -> dict[str, Any]:
        """One of ``runs`` or ``baselines``."""
        ...

    def act(self, action: str, name: str) -> dict[str, Any]:
        """``cancel`` or ``rerun`` a run, ``approve`` or ``refuse`` a baseline."""
        ...

    def log(self, run: str, step: str | None) -> Iterator[str]:
        """A run's log as it is now."""
        ...

    def follow(self, run: str, step: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Events until ``end``."""
        ...

    def samples(self, run: str, step: str | None, note: str) -> dict[str, Any]:
        """What a run measured, as files."""
        ...

    def export_baselines(self, **filters: Any) -> Sequence[dict[str, Any]]:
        """What runs are judged against, line by line."""
        ...

    def import_baselines(self, sources: Sequence[Source]) -> dict[str, Any]:
        """Propose baselines from files."""
        ...


def accessed(args: argparse.Namespace) -> AbstractContextManager[Access]:
    """The server that the arguments or the environment name, else the database.

    Raises:
        CompatgateError: as `place`.
    """
    return place(args, _Local, _over_rest)


def _over_rest(client: Client) -> Access:
    from compatgate.cli.over_rest.canary import RemoteCanary

    return RemoteCanary(client)


class _Local:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def submit(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        from compatgate.gate.runs.submission import Submission

        made = self._gate.runs.submit(Submission(**body), by=_user())
        return [run.to_json() for run in made]

    def list(self, what: str, limit: int | None, **filters: Any) -> list[dict[str, Any]]:
        from compatgate.cli.database import collect

        if what == "baselines":
            from compatgate.gate.runs.baselines import summary

            return [summary(row) for row in collect(self._gate.baselines.list, limit, **filters)]
        fetch = self._gate.runs.list if what == "runs" else self._gate.runs.hosts
        return [row.to_json() for row in collect(fetch, limit, **filters)]

    def show(self, what: str, name: str) -> dict[str, Any]:
        if what == "baselines":
            return self._gate.baselines.show(int(name)).to_json()
        return self._gate.runs.show(name).to_json()

    def act(self, action: str, name: str) -> dict[str, Any]:
        runs, baselines, by = self._gate.runs, self._gate.baselines, _user()
        match action:
            case "approve":
                return baselines.approve(int(name), by=by).to_json()
            case "refuse":
                return baselines.refuse(int(name), by=by).to_json()
            case "cancel":
                return runs.cancel(name, by=by).to_json()
        return {"runs": [run.to_json() for run in runs.rerun(name, by=by)]}

    def log(self, run: str, step: str | None) -> Iterator[str]:
        from compatgate.gate.runs.following import plain
        from compatgate.gate.runs.logs import check_there

        check_there(self._gate.runs, run, step)
        return plain(self._gate.runs, run, step=step)

    def follow(self, run: str, step: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
        from compatgate.gate.runs.following import follow
        from compatgate.gate.runs.logs import check_there

        check_there(self._gate.runs, run, step)
        for event in follow(self._gate.runs, run, step=step):
            if event.name not in ("alive", "idle"):
                yield event.name, event.data

    def samples(self, run: str, step: str | None, note: str) -> dict[str, Any]:
        from compatgate.gate.runs.samples import take_samples

        return take_samples(self._gate.runs, self._gate.facts, run, step=step, note=note)

    def export_baselines(self, **filters: Any) -> Sequence[dict[str, Any]]:
        return self._gate.exchange.lines(**filters)

    def import_baselines(self, sources: Sequence[Source]) -> dict[str, Any]:
        from compatgate.gate.runs.exchange import imported

        return imported(self._gate.exchange.take(sources, by=_user()))


def _user() -> str:
    from compatgate.cli.database import user

    return user()
