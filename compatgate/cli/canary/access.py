"""Runs over REST or in the local database: the same questions, the same plain data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client
    from compatgate.gate.service import Gate


_ACTIONS = {"cancel": "cancel_run", "rerun": "rerun", "approve": "approve_baseline"}


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

    def act(self, what: str, name: str, action: str) -> dict[str, Any]:
        """``cancel`` or ``rerun`` a run, ``approve`` a baseline."""
        ...

    def log(self, run: str, step: str | None) -> Iterator[str]:
        """A run's log as it is now."""
        ...

    def follow(self, run: str, step: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Events until ``end``."""
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

    def act(self, what: str, name: str, action: str) -> dict[str, Any]:
        if action == "approve":
            return self._gate.baselines.approve(int(name), by=_user()).to_json()
        if action == "cancel":
            return self._gate.runs.cancel(name, by=_user()).to_json()
        return {"runs": [run.to_json() for run in self._gate.runs.rerun(name, by=_user())]}

    def log(self, run: str, step: str | None) -> Iterator[str]:
        from compatgate.gate.runs.following import plain

        self._gate.runs.get(run)
        return plain(self._gate.runs, run, step=step)

    def follow(self, run: str, step: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
        from compatgate.gate.runs.following import follow

        self._gate.runs.get(run)
        for event in follow(self._gate.runs, run, step=step):
            if event.name not in ("alive", "idle"):
                yield event.name, event.data


class _Remote:
    def __init__(self, client: Client) -> None:
        self._client = client

    def submit(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = self._plain("submit_runs", **body)["runs"]
        return made

    def list(self, what: str, limit: int | None, **filters: Any) -> list[dict[str, Any]]:
        from compatgate.client.operations import Operations

        listing: Any = getattr(Operations, f"list_{what}")
        items = iter(self._client.items(listing.request(**filters).plain()))
        return [*islice(items, limit)]

    def show(self, what: str, name: str) -> dict[str, Any]:
        return self._plain(f"show_{what.removesuffix('s')}", name)

    def act(self, what: str, name: str, action: str) -> dict[str, Any]:
        return self._plain(_ACTIONS[action], name)

    def log(self, run: str, step: str | None) -> Iterator[str]:
        return self._client.show_logs(run, step=step)

    def follow(self, run: str, step: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
        for event in self._client.follow_run(run, step=step):
            yield event.name, event.data

    def _plain(self, operation: str, *args: Any, **named: Any) -> dict[str, Any]:
        from compatgate.client.operations import Operations

        asked: Any = getattr(Operations, operation)
        answer: dict[str, Any] = self._client.send(asked.request(*args, **named).plain())
        return answer


def _user() -> str:
    from compatgate.cli.database import user

    return user()
