"""Who decides: the facts alone, a database, a bundle or a server; one interface for all."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

    from compatgate.core.facts import Facts
    from compatgate.core.facts.records import Record

Body = dict[str, Any]


class Decider:
    """Answers questions."""

    def decide(self, bodies: Sequence[Body], records: Sequence[Record] = ()) -> dict[str, Any]:
        """The verdict in JSON form on bodies that differ in their pool only.

        Args:
            bodies: the question, once for each pool.
            records: of wheels that were measured for it; a server judges by its own.

        Raises:
            BadInput: a body is malformed.
            NotFound: there is no such target.
            Unavailable: no decision can be had.
        """
        raise NotImplementedError

    def facts(self) -> Facts:
        """This installation's facts, to tell what an observed host has."""
        from compatgate.catalog import load_facts

        return load_facts()

    def link(self, verdict: Mapping[str, Any]) -> str:
        """Where the verdict can be seen again; empty where nobody keeps it."""
        return ""

    def close(self) -> None:
        """Let go of what was opened."""


class FactsDecider(Decider):
    """Decides about described pools from the vendors' facts; targets go to another decider.

    Args:
        overlays: the operator's fact files; a bundle brings its own.
        targets: who knows targets.
    """

    def __init__(self, overlays: Sequence[str] | None, targets: Decider) -> None:
        self._overlays = overlays
        self._targets = targets

    @cached_property
    def _facts(self) -> Facts:
        from compatgate.catalog import load_facts

        if isinstance(self._targets, BundleDecider):
            return self._targets.facts()
        return load_facts(self._overlays)

    def facts(self) -> Facts:
        """The facts that decide."""
        return self._facts

    def link(self, verdict: Mapping[str, Any]) -> str:
        """Of a target's verdict; one on described pools is kept nowhere."""
        return self._targets.link(verdict) if verdict["target"] else ""

    def close(self) -> None:
        """Close what knows the targets."""
        self._targets.close()

    def decide(self, bodies: Sequence[Body], records: Sequence[Record] = ()) -> dict[str, Any]:
        """One verdict over all pools; see `Decider.decide`."""
        if bodies[0].get("pool") is None and bodies[0].get("target") is not None:
            return self._targets.decide(bodies, records)
        from compatgate.core.evaluate import evaluate
        from compatgate.core.request import parse_request
        from compatgate.core.target import Target

        requests = [parse_request(body, self._facts.gpus) for body in bodies]
        pools = tuple(request.pool for request in requests if request.pool)
        return evaluate(
            requests[0].stack,
            Target("", pools),
            facts=self._facts.with_measured(records) if records else self._facts,
            now=datetime.now(UTC),
            basis="what-if" if requests[0].changes else "stated",
        ).to_json()


class DatabaseDecider(Decider):
    """Decides about targets from a database, and records what it decided.

    Args:
        database: where it is.
        overlays: the operator's fact files.
        at: the matrix of which revision, or of when, is asked; then nothing is recorded.
    """

    def __init__(
        self,
        database: str | None,
        overlays: Sequence[str] | None,
        at: int | datetime | None = None,
    ) -> None:
        self._database = database
        self._overlays = overlays
        self._at = at

    @cached_property
    def _gate(self) -> Any:
        from compatgate.cli.database import refuse_missing
        from compatgate.gate.service import Gate

        refuse_missing(self._database)
        return Gate.open(self._database, overlays=self._overlays)

    @cached_property
    def _asker(self) -> str:
        return f"cli:{_user()}"

    def decide(self, bodies: Sequence[Body], records: Sequence[Record] = ()) -> dict[str, Any]:
        """See `Decider.decide`."""
        if records:
            self._gate.snapshots.know(records)
        if self._at is None:
            verdict = self._gate.decide(bodies[0], asked_by=self._asker, source="cli")
        else:
            verdict = self._gate.what_would(bodies[0], at=self._at)
        answer: dict[str, Any] = verdict.to_json()
        return answer

    def close(self) -> None:
        """Close the database, if it was opened."""
        if "_gate" in self.__dict__:
            self._gate.close()


def _user() -> str:
    """Who asks; a container's user need not have a name."""
    from getpass import getuser

    try:
        return getuser()
    except (KeyError, OSError):
        return "unknown"


class ServerDecider(Decider):
    """Asks a server; several pools are asked one by one.

    Args:
        url: of the server.
        token: to ask it with.
        timeout_s: for each answer.
        hint: what a command can do without an answer.
        at: as of `DatabaseDecider`.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        timeout_s: float,
        hint: str = "",
        at: int | datetime | None = None,
    ) -> None:
        from compatgate.cli.remote import make_client

        self._client = make_client(url, token, timeout_s, retries=0)
        self._hint = hint
        self._at = at.isoformat() if isinstance(at, datetime) else at

    def decide(self, bodies: Sequence[Body], records: Sequence[Record] = ()) -> dict[str, Any]:
        """See `Decider.decide`."""
        from compatgate.cli.check.joined import joined
        from compatgate.errors import Damaged, Unavailable

        try:
            return joined([self._ask(body) for body in bodies])
        except (Damaged, Unavailable) as error:
            hint = "; ".join(filter(None, (error.hint, self._hint)))
            raise Unavailable(error.problem, field=error.field, hint=hint) from None

    def _ask(self, body: Body) -> dict[str, Any]:
        from compatgate.cli.check.answered import verdict_of
        from compatgate.client.operations import Operations

        request = Operations.ask.request(body)
        if self._at is not None:
            request = Operations.preview.request(body, at=self._at)
        answer: dict[str, Any] = self._client.send(request.plain())
        return verdict_of(answer, self._client.base_url)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def link(self, verdict: Mapping[str, Any]) -> str:
        """The short link, which stays; none to what is not recorded."""
        from urllib.parse import quote

        if self._at is not None:
            return ""

        base = self._client.base_url
        # A password in the address is nobody else's to read.
        return "" if "@" in base else f"{base}/v/{quote(str(verdict['id']))}"


class BundleDecider(Decider):
    """Decides about targets from a bundle's file, which is read at once; nothing is recorded.

    Raises:
        BadInput: the file is not a bundle, whatever is asked afterwards.
    """

    def __init__(self, path: str) -> None:
        from compatgate.gate.bundle import load_bundle

        bundle = load_bundle(path)
        if not bundle.facts_match:
            print(
                f"note: {path} was made with other facts ({bundle.payload.facts[:19]}) than "
                "this installation has; its answers may differ from the gate's",
                file=sys.stderr,
            )
        self._snapshot = bundle.snapshot()

    def facts(self) -> Facts:
        """This installation's, with the bundle's own laid over them."""
        facts: Facts = self._snapshot.facts
        return facts

    def decide(self, bodies: Sequence[Body], records: Sequence[Record] = ()) -> dict[str, Any]:
        """See `Decider.decide`."""
        from msgspec.structs import replace

        from compatgate.gate.deciding import decide

        snapshot = self._snapshot
        if records:
            snapshot = replace(snapshot, facts=snapshot.facts.with_measured(records))
        verdict: dict[str, Any] = decide(bodies[0], snapshot, datetime.now(UTC)).to_json()
        return verdict


def decider_for(args: argparse.Namespace) -> Decider:
    """Who decides, by the options; no database is opened before it is asked."""
    hint = "--fail-open lets a build pass unchecked" if hasattr(args, "fail_open") else ""
    at = getattr(args, "moment", None)
    if args.server:
        return ServerDecider(args.server, args.token, args.timeout, hint, at)
    targets: Decider
    if args.target_server:
        targets = ServerDecider(args.target_server, args.token, args.timeout, hint, at)
    elif args.bundle:
        targets = BundleDecider(args.bundle)
    else:
        targets = DatabaseDecider(args.database, args.facts, at)
    return FactsDecider(args.facts, targets)
