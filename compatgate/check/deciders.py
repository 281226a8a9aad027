"""Decide with the facts alone, a database, a bundle or a server, through one interface."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from compatgate.errors import BadInput, NotFound, Unavailable
from compatgate.kit.cli.parser import server_of

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client
    from compatgate.core.facts import Facts
    from compatgate.core.facts.records import Record
    from compatgate.service.gate.questions.service import Gate
    from compatgate.web.local_gate import LocalClient

Body = dict[str, Any]
_SAME_MEMBERS = ("os", "cpu", "platform", "sharing", "node")
_MEMBERS = ("name", "driver", "gpu", *_SAME_MEMBERS)


class Decider:
    """The interface of everything that answers questions."""

    def decide(self, bodies: Sequence[Body], records: Sequence[Record] = ()) -> Body:
        """Return one verdict, in JSON form, on bodies that differ only in their pool.

        The records are of wheels measured for the question; a server uses its own.
        """
        raise NotImplementedError

    def solve(self, body: Body, pools: Sequence[Body] = ()) -> Body:
        """Return the answer of ``POST /solve``; the body names no place where pools are given."""
        raise NotImplementedError

    def pools(self, target: str) -> list[Body]:
        """Return the pools of a target as bodies of requests."""
        raise NotImplementedError

    def facts(self) -> Facts:
        """Return the facts of this installation, to interpret an observed host."""
        from compatgate.catalog import load_facts

        return load_facts()

    def link(self, verdict: Mapping[str, Any]) -> str:
        """Return the address of a stored verdict; empty if it is not stored."""
        return ""

    def close(self) -> None:
        """Close connections and files."""


class FactsDecider(Decider):
    """A decider for described pools; passes targets to another decider.

    The overlays are the operator's fact files; a bundle has its own.
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

    def pools(self, target: str) -> list[Body]:
        """Return the pools that the decider for targets knows."""
        return self._targets.pools(target)

    def facts(self) -> Facts:
        """Return the facts for decisions."""
        return self._facts

    def link(self, verdict: Mapping[str, Any]) -> str:
        """Return the address of a target's verdict; verdicts on described pools are not stored."""
        return self._targets.link(verdict) if verdict["target"] else ""

    def close(self) -> None:
        """Close the decider for targets."""
        self._targets.close()

    def decide(self, bodies: Sequence[Body], records: Sequence[Record] = ()) -> Body:
        """Return one verdict on all pools."""
        if bodies[0].get("pool") is None and bodies[0].get("target") is not None:
            return self._targets.decide(bodies, records)
        from compatgate.core.evaluate import evaluate
        from compatgate.core.request import Target, parse_request

        requests = [parse_request(body, self._facts.gpus) for body in bodies]
        return evaluate(
            requests[0].stack,
            Target("", tuple(request.pool for request in requests if request.pool)),
            facts=self._facts.with_measured(records) if records else self._facts,
            now=datetime.now(UTC),
            basis="what-if" if requests[0].changes else "stated",
        ).to_json()

    def solve(self, body: Body, pools: Sequence[Body] = ()) -> Body:
        """Solve for described pools with the facts alone."""
        if not pools:
            return self._targets.solve(body)
        from compatgate.core.matrix import Matrix
        from compatgate.core.request import Target, parse_pool
        from compatgate.core.solve import answer_question

        facts, now = self._facts, datetime.now(UTC)
        described = Target("", tuple(parse_pool(pool, facts.gpus) for pool in pools))
        return answer_question(
            body,
            lambda name: described,
            facts=facts,
            matrix=Matrix(),
            now=now,
            described=(described,),
        )


class ServerDecider(Decider):
    """A decider that asks a gate over REST, pool by pool.

    With ``at``, it decides by an older matrix, and records nothing.
    """

    def __init__(
        self,
        client: Client | None,
        at: int | datetime | None,
        hint: str = "",
        *,
        recorded: bool = True,
    ) -> None:
        self._client = client
        self._at = at
        self._hint = hint
        self._recorded = recorded and at is None

    @property
    def client(self) -> Client:
        """Return the client of the gate."""
        assert self._client is not None  # noqa: S101 - `DatabaseDecider` opens its own
        return self._client

    def decide(self, bodies: Sequence[Body], records: Sequence[Record] = ()) -> Body:
        """Return the gate's verdict."""
        from compatgate.errors import DamagedContent
        from compatgate.formats.reports import join_verdicts

        try:
            return join_verdicts([self._ask(body) for body in bodies])
        except (DamagedContent, Unavailable) as error:
            hint = "; ".join(filter(None, (error.hint, self._hint)))
            raise Unavailable(error.problem, field=error.field, hint=hint) from None

    def _ask(self, body: Body) -> Body:
        from compatgate.client.operations import Operations
        from compatgate.formats.reports import verdict_of
        from compatgate.gate_client import ask

        if self._recorded:
            answer = ask(self.client, Operations.ask, body)
        else:
            at = self._at.isoformat() if isinstance(self._at, datetime) else self._at
            answer = ask(self.client, Operations.preview, body, at=None if at is None else str(at))
        return verdict_of(answer, self.client.base_url)

    def solve(self, body: Body, pools: Sequence[Body] = ()) -> Body:
        """Ask the gate; it takes one described pool."""
        from compatgate.client.operations import Operations
        from compatgate.gate_client import ask

        if len(pools) > 1:
            hint = "leave out --server, or put the pools into a target"
            raise BadInput("a server accepts only one --pool", field="--pool", hint=hint)
        return ask(self.client, Operations.solve, {**body, **({"pool": pools[0]} if pools else {})})

    def pools(self, target: str) -> list[Body]:
        """Ask the gate for the target."""
        from compatgate.client.operations import Operations
        from compatgate.gate_client import ask

        pools = (ask(self.client, Operations.show_target, target).get("spec") or {}).get("pools")
        if not isinstance(pools, list):
            raise Unavailable("the answer of the gate is not a target", field=self.client.base_url)
        return [{key: pool[key] for key in _MEMBERS if pool.get(key)} for pool in pools]

    def link(self, verdict: Mapping[str, Any]) -> str:
        """Return the permanent link; empty if nothing is recorded."""
        from urllib.parse import quote

        if not self._recorded:
            return ""
        return f"{self.client.base_url}/v/{quote(str(verdict['id']))}"

    def close(self) -> None:
        """Close the connection."""
        self.client.close()


class DatabaseDecider(ServerDecider):
    """A decider that asks the gate of a local database; the first question opens it.

    Questions go to the gate itself: its REST application takes longer to import than they take.
    """

    def __init__(
        self,
        database: str | None,
        overlays: Sequence[str] | None,
        at: int | datetime | None,
        *,
        recorded: bool = True,
    ) -> None:
        super().__init__(None, at, recorded=recorded)
        self._database = database
        self._overlays = overlays

    @cached_property
    def _gate(self) -> Gate:
        from compatgate.catalog import load_facts
        from compatgate.kit.database.opening import open_database
        from compatgate.service.gate.questions.service import make_gate

        database, overlays = open_database(self._database, make=False), self._overlays
        return make_gate(database, load_facts(overlays), overlays=overlays)

    @cached_property
    def _local(self) -> LocalClient:
        from compatgate.web.local_gate import LocalClient

        return LocalClient.open(self._database, overlays=self._overlays)

    @property
    def client(self) -> Client:
        """Return the client of the database's gate."""
        return self._local.client

    def decide(self, bodies: Sequence[Body], records: Sequence[Record] = ()) -> Body:
        """Add the records to the gate, which REST cannot do, and decide."""
        with naming_database(self._database):
            gate = self._gate  # a database that cannot be opened has its own exit status
            if records:
                gate.snapshots.know(records)
            return super().decide(bodies)

    def _ask(self, body: Body) -> Body:
        if self._at is not None:
            return self._gate.what_would(body, at=self._at).to_json()
        if not self._recorded:
            return self._gate.preview(body).to_json()
        from compatgate.kit.cli.options import user_name

        asked_by = f"cli:{user_name()}"
        return self._gate.decide(body, asked_by=asked_by, source="cli").to_json()

    def solve(self, body: Body, pools: Sequence[Body] = ()) -> Body:
        """Ask the gate."""
        with naming_database(self._database):
            return super().solve(body, pools)

    def pools(self, target: str) -> list[Body]:
        """Ask the gate."""
        with naming_database(self._database):
            return super().pools(target)

    def link(self, verdict: Mapping[str, Any]) -> str:
        """Return nothing: a local database serves no pages."""
        return ""

    def close(self) -> None:
        """Close the database if it is open."""
        for opened in ("_gate", "_local"):
            if opened in self.__dict__:
                getattr(self, opened).close()


@contextmanager
def naming_database(database: str | None) -> Iterator[None]:
    """Name the database in an error about what it lacks: the target may be that of a gate."""
    try:
        yield
    except NotFound as error:
        if error.field not in ("target", "name", "database"):
            raise
        from compatgate.kit.database.database import display_url, resolve_url

        url = resolve_url(database)
        place = url.database if url.drivername == "sqlite" else display_url(url)
        where = "" if error.field == "database" else f" in the database {place}"
        what, value = f"{error.problem}{where}", error.value
        hint = f"{error.hint}; --server URL asks a gate, --database another database"
        raise NotFound(what, field=error.field, value=value, hint=hint) from None


class BundleDecider(Decider):
    """A decider that reads targets from a bundle and records nothing."""

    def __init__(self, path: str, keys: Sequence[str] = ()) -> None:
        if keys:
            from compatgate.service.gate.far.bundles import load_checked_bundle

            bundle = load_checked_bundle(path, keys)
        else:
            from compatgate.service.matrix.snapshots.snapshot import load_bundle

            bundle = load_bundle(path)
        if not bundle.facts_match:
            print(
                f"note: {path} was made with other facts ({bundle.payload.facts[:19]}) than "
                "those of this installation; answers may differ from the gate's",
                file=sys.stderr,
            )
        self.snapshot = bundle.snapshot()
        """Matrix, facts and evidence of the bundle."""

    def facts(self) -> Facts:
        """Return the facts of this installation with the bundle's overlays."""
        return self.snapshot.facts

    def decide(self, bodies: Sequence[Body], records: Sequence[Record] = ()) -> Body:
        """Return the gate's verdict."""
        from msgspec.structs import replace

        from compatgate.service.gate.questions.decider import decide

        snapshot = self.snapshot
        if records:
            snapshot = replace(snapshot, facts=snapshot.facts.with_measured(records))
        return decide(bodies[0], snapshot, datetime.now(UTC)).to_json()

    def solve(self, body: Body, pools: Sequence[Body] = ()) -> Body:
        """Return the gate's answer."""
        from compatgate.core.solve import answer_question

        of, now = self.snapshot, datetime.now(UTC)
        return answer_question(body, of.target, facts=of.facts, matrix=of.matrix, now=now)

    def pools(self, target: str) -> list[Body]:
        """Return the pools of the bundle."""
        return [
            {
                "name": pool.name,
                "gpu": pool.gpu.sku if pool.gpu else None,
                "driver": pool.driver.text if pool.driver else None,
                **{name: getattr(pool, name) for name in _SAME_MEMBERS},
            }
            for pool in self.snapshot.target(target).pools
        ]


def choose_decider(args: argparse.Namespace, *, recorded: bool = True) -> Decider:
    """Choose the decider by the options: a server that is named decides about pools as well."""
    targets = open_targets(args, recorded=recorded)
    return targets if args.server else FactsDecider(args.facts, targets)


def open_targets(args: argparse.Namespace, *, recorded: bool = True) -> Decider:
    """Return the decider that knows the targets; open no database before the first question."""
    at, timeout = getattr(args, "moment", None), getattr(args, "timeout", 10.0)
    server = args.target_server if "target_server" in args else server_of(args)
    if server := args.server or server:
        from compatgate.gate_client import make_client

        client = make_client(server, args.token, timeout, retries=0)
        hint = "--fail-open lets a build pass unchecked" if hasattr(args, "fail_open") else ""
        return ServerDecider(client, at, hint, recorded=recorded)
    if args.bundle:
        refuse_stale(args.bundle, getattr(args, "max_stale", None))
        return BundleDecider(args.bundle, getattr(args, "key", ()))
    return DatabaseDecider(args.database, args.facts, at, recorded=recorded)


def refuse_stale(path: str, longest: str | None) -> None:
    """Refuse a bundle that was last confirmed too long ago."""
    if longest is None:
        return
    from compatgate.documents.quantities import describe_seconds, parse_duration
    from compatgate.service.gate.far.bundles import bundle_age

    most, age = parse_duration(longest, field="--max-stale"), bundle_age(path)
    if age > most:
        raise Unavailable(
            f"{path} was last confirmed {describe_seconds(age.total_seconds())} ago,"
            f" and --max-stale is {longest}",
            field="bundle",
            hint="run compatgate bundle pull; if it already runs, check its access to the gate",
        )
