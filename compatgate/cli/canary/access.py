"""Runs over REST or in the local database: the same questions, the same plain data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import argparse

    from compatgate.cli.remote import Server
    from compatgate.gate.service import Gate

_PAGE = 1000
_SILENCE_SECONDS = 60.0
"""After which a gate that follows a log has gone: it says something every ten."""


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


def add_access(parser: argparse.ArgumentParser) -> None:
    """The options that say who is asked."""
    from compatgate.cli.database import add_database

    parser.add_argument("--server", metavar="URL", help="ask this gate ($COMPATGATE_SERVER)")
    parser.add_argument("--token", metavar="TOKEN", help="access token ($COMPATGATE_TOKEN)")
    add_database(parser)


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
        instead = "check that it runs and is reachable"
        yield _Remote(Server(url, token, _SILENCE_SECONDS, instead=instead))
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
    def __init__(self, server: Server) -> None:
        self._server = server

    def submit(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = self._server.post("runs", body)["runs"]
        return made

    def list(self, what: str, limit: int | None, **filters: Any) -> list[dict[str, Any]]:
        from urllib.parse import urlencode

        items: list[dict[str, Any]] = []
        query = {name: value for name, value in filters.items() if value is not None}
        while limit is None or len(items) < limit:
            query["limit"] = _PAGE if limit is None else min(_PAGE, limit - len(items))
            page = self._server.get(f"{what}?{urlencode(query)}")
            items += page["items"]
            if not page["next"]:
                break
            query["cursor"] = page["next"]
        return items

    def show(self, what: str, name: str) -> dict[str, Any]:
        return self._server.get(f"{what}/{_quoted(name)}")

    def act(self, what: str, name: str, action: str) -> dict[str, Any]:
        return self._server.post(f"{what}/{_quoted(name)}/{action}", {})

    def log(self, run: str, step: str | None) -> Iterator[str]:
        for line in self._server.lines(f"runs/{_quoted(run)}/logs{_step('?', step)}"):
            yield line.decode("utf-8", "replace")

    def follow(self, run: str, step: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Takes a stream up again that the server ended before the run did."""
        import json

        after, name = 0, ""
        path = f"runs/{_quoted(run)}/logs?follow=true{_step('&', step)}"
        while True:
            for line in self._server.lines(f"{path}&after={after}"):
                key, _, value = line.decode("utf-8", "replace").rstrip("\n").partition(": ")
                if key == "event":
                    name = value
                elif key == "id":
                    after = int(value)
                elif key == "data":
                    yield name, json.loads(value)
                    if name in ("end", "error"):
                        return


def _quoted(name: str) -> str:
    from urllib.parse import quote

    return quote(name, safe="")


def _step(join: str, step: str | None) -> str:
    return f"{join}step={_quoted(step)}" if step else ""


def _user() -> str:
    from compatgate.cli.database import user

    return user()
