"""What commands ask of a gate, be it the service on a database or one at the end of a wire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from compatgate.cli.parser import server_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from datetime import datetime

    from compatgate.client import Client
    from compatgate.documents.changes import Change
    from compatgate.documents.sources import Source
    from compatgate.documents.specs import Kind
    from compatgate.gate.auth import NewToken
    from compatgate.gate.bundle import Bundle
    from compatgate.gate.imports import ImportResult
    from compatgate.gate.matrix import By
    from compatgate.gate.runs.remarks import Remarks
    from compatgate.gate.service import Gate
    from compatgate.store.rows import RevisionRow, Stored, TokenRow
    from compatgate.store.verify import ChainReport
    from compatgate.wire.packages import PackagesReportBody

T = TypeVar("T")


class Matrix(Protocol):
    """The matrix; methods as of `compatgate.gate.matrix.MatrixService`."""

    def get(self, kind: Kind, name: str) -> Stored: ...  # noqa: D102 - as said above
    def delete(self, kind: Kind, name: str, by: By) -> int: ...  # noqa: D102
    def list_targets(self, **filters: Any) -> Any: ...  # noqa: D102
    def list_entries(self, **filters: Any) -> Any: ...  # noqa: D102
    def list_waivers(self, **filters: Any) -> Any: ...  # noqa: D102
    def list_revisions(self, **filters: Any) -> Any: ...  # noqa: D102
    def show_revision(self, number: int) -> RevisionRow: ...  # noqa: D102
    def revision_at(self, when: datetime) -> int: ...  # noqa: D102
    def export(self, *, revision: int | None = None) -> list[dict[str, Any]]: ...  # noqa: D102
    def diff(self, older: int, newer: int | None = None) -> list[Change]: ...  # noqa: D102
    def diff_files(self, sources: Sequence[Source]) -> list[Change]: ...  # noqa: D102
    def packages_report(  # noqa: D102
        self, *, target: str | None, since: datetime | None, decisions: int
    ) -> PackagesReportBody: ...
    def import_documents(  # noqa: D102
        self, sources: Sequence[Source], by: By, *, dry_run: bool = False
    ) -> ImportResult: ...


class Tokens(Protocol):
    """Access tokens; methods as of `compatgate.gate.auth.Tokens`."""

    def create(  # noqa: D102
        self, name: str, scopes: Iterable[str], *, by: str, expires_at: datetime | None = None
    ) -> NewToken: ...
    def list(  # noqa: D102
        self, *, active: bool | None = None, cursor: str | None = None, limit: int = 100
    ) -> Any: ...
    def revoke(  # noqa: D102
        self, id_or_name: str, *, by: str, even_last_admin: bool = False
    ) -> TokenRow: ...


class History(Protocol):
    """The audit log and decisions; methods as of `compatgate.gate.history.History`."""

    def list_audit(self, **filters: Any) -> Any: ...  # noqa: D102
    def list_decisions(self, **filters: Any) -> Any: ...  # noqa: D102
    def verify(self, *, expected_head: str | None = None) -> ChainReport: ...  # noqa: D102


class Runs(Protocol):
    """What canary runs say; as of `compatgate.gate.runs.service.Runs`."""

    def remarks(self, names: Iterable[str]) -> Mapping[str, Remarks]: ...  # noqa: D102


class Service(Protocol):
    """A gate, as far as commands on the matrix and its history need it."""

    @property
    def matrix(self) -> Matrix: ...  # noqa: D102
    @property
    def tokens(self) -> Tokens: ...  # noqa: D102
    @property
    def history(self) -> History: ...  # noqa: D102
    @property
    def runs(self) -> Runs: ...  # noqa: D102


def add_place(*parsers: argparse.ArgumentParser) -> None:
    """The options that say who is asked: a gate, or a database."""
    from compatgate.cli.database import add_database

    for parser in parsers:
        parser.add_argument("--server", metavar="URL", help="ask this gate ($COMPATGATE_SERVER)")
        parser.add_argument("--token", metavar="TOKEN", help="access token ($COMPATGATE_TOKEN)")
        add_database(parser)


@contextmanager
def place(
    args: argparse.Namespace,
    here: Callable[[Gate], T],
    there: Callable[[Client], T],
    *,
    bundled: Callable[[Bundle], T] | None = None,
    make: bool = False,
    patience_s: float | None = None,
) -> Iterator[T]:
    """Whoever is asked: the server that the arguments or the environment name, else the database.

    Args:
        args: of the command.
        here: what asks the gate on the database.
        there: what asks a gate over REST.
        bundled: what asks a bundle, of commands with ``--bundle``.
        make: an SQLite file that is not there is made.
        patience_s: seconds that a server may take; None: as usual.

    Raises:
        BadInput: several places are named, the server's URL is none, or the bundle is no bundle.
        NotFound: there is no such database.
        Unavailable: the database does not answer, or has another schema.
    """
    from compatgate.cli.remote import PATIENCE_S, make_client

    if url := server_of(args):
        with make_client(url, args.token, patience_s or PATIENCE_S) as client:
            yield there(client)
        return
    if bundled and args.bundle:
        from compatgate.gate.bundle import load_bundle

        yield bundled(load_bundle(args.bundle))
        return
    from compatgate.cli.database import opened

    with opened(args, make=make) as gate:
        yield here(gate)


def asked(args: argparse.Namespace, *, make: bool = False) -> AbstractContextManager[Service]:
    """The gate that the arguments or the environment name, else the one on the database.

    Args:
        args: of the command.
        make: an SQLite file that is not there is made.

    Raises:
        CompatgateError: as `place`.
    """
    return place(args, lambda gate: gate, _over_rest, make=make)


def _over_rest(client: Client) -> Service:
    from compatgate.cli.over_rest.gate import RemoteGate

    return RemoteGate(client)


def perform(
    args: argparse.Namespace,
    actions: Mapping[str, Callable[[argparse.Namespace, Service], int]],
    *,
    making: Sequence[str] = (),
) -> int:
    """Do the action that was asked for, by whoever the arguments name.

    Args:
        args: of the command.
        actions: by name.
        making: those that make a database where there is none.
    """
    with asked(args, make=args.action in making) as gate:
        return actions[args.action](args, gate)
