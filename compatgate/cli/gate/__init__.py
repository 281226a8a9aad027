"""Ask the gate that a command names: a server, or the local database behind the same client.

Answers are the gate's own JSON: ``--format json`` prints an answer unchanged, including members
that only a newer gate knows. Commands that need the database itself, such as the worker, use
`open_rooms`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from compatgate.errors import BadInput
from compatgate.gate_client import PATIENCE_S, Body, make_client
from compatgate.kit.cli.options import FORMAT, PLACE
from compatgate.kit.cli.parser import server_of
from compatgate.kit.cli.usage import Action, Part, Settings

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client as Client
    from compatgate.client.operations import Operations as Operations
    from compatgate.service.app import Rooms
    from compatgate.service.gate.questions.images import ImageSettings
else:

    class _Operations:
        """`Operations`, imported at its first use: once the command is connected.

        `make_client` imports httpx without the libraries of httpx's own command line.
        """

        def __getattr__(self, name: str) -> Any:
            from compatgate.client.operations import Operations

            return getattr(Operations, name)

    Operations = _Operations()
    Client = object  # only annotations name it

RUN_MEMBERS = ("warnings", "promotion")
"""Members of an entry that come from canary runs."""
_STORAGE_MEMBERS = ("revision", "created_at", "updated_at", *RUN_MEMBERS)
"""Members of an answer that do not belong to the document."""


@contextmanager
def gate_of(
    args: argparse.Namespace,
    *,
    name: str | None = None,
    make: bool = False,
    patience_s: float | None = None,
) -> Iterator[Client]:
    """Connect to the server that the arguments or the environment name, else to the database.

    ``name`` asks the database; None: ``--author``, else this machine's user. A server knows the
    caller by the token, and takes at most ``patience_s`` seconds. ``make`` creates an SQLite file.
    """
    author = getattr(args, "changed_by", None)
    if url := server_of(args):
        if author:
            what = "a server does not accept an author"
            hint = "remove --author: the token names the author"
            raise BadInput(what, field="--author", value=author, hint=hint)
        with make_client(url, args.token, patience_s or PATIENCE_S) as client:
            yield client
        return
    from compatgate.web.local_gate import LocalClient

    with LocalClient.open(args.database, name=name or author, make=make) as local:
        yield local.client


AskingRun = Callable[["argparse.Namespace", Client], int]


def asking(
    help_text: str,
    /,
    *parts: Part,
    form: str = FORMAT,
    make: bool = False,
    epilog: str = "",
    **settings: Settings,
) -> Callable[[AskingRun], Action]:
    """Declare an action that runs with the gate which its arguments name; ``make`` as `gate_of`."""

    def decorate(run: AskingRun) -> Action:
        def run_with_gate(args: argparse.Namespace) -> int:
            with gate_of(args, make=make) as gate:
                return run(args, gate)

        return Action(help_text, run_with_gate, (*parts, form, PLACE), epilog, settings)

    return decorate


@contextmanager
def open_rooms(
    args: argparse.Namespace,
    *,
    make: bool = False,
    overlays: Sequence[str] | None = None,
    images: ImageSettings | None = None,
) -> Iterator[Rooms]:
    """Open the rooms on the database that the arguments name."""
    from compatgate.service.app import open_rooms

    rooms = open_rooms(args.database, make=make, overlays=overlays, images=images)
    try:
        yield rooms
    finally:
        rooms.close()


def drop_members(names: Iterable[str], body: Body) -> Body:
    """Return a JSON object without some of its members."""
    return {name: value for name, value in body.items() if name not in names}


def drop_storage_members(body: Body) -> Body:
    """Return the document of an answer in the form of files."""
    return drop_members(_STORAGE_MEMBERS, body)
