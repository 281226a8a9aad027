"""Ask the local database like any other gate: its REST application, in this process.

A user who can open the database may do everything with it, so local commands need no token: the
application checks a random secret that only this process knows, and that no server accepts.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from hmac import compare_digest
from typing import TYPE_CHECKING, NoReturn, Self

from compatgate.gate_client import import_httpx, make_client
from compatgate.kit.cli.options import user_name
from compatgate.kit.principal import Principal
from compatgate.service.access.tokens import Tokens
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.gate.questions.service import Gate

if TYPE_CHECKING:
    from compatgate.client import Client
    from compatgate.kit.database.database import Database
    from compatgate.service.audit.attestations import SigningOptions
    from compatgate.service.gate.questions.decider import AnswerRecord
    from compatgate.service.gate.questions.images import ImageSettings

_URL = "http://database"
"""The URL of the local gate, for error messages; no request is sent to it."""
_LARGEST = sys.maxsize - 1
"""Bytes of a request: the limit protects a server from others."""


class _Tokens(Tokens):
    """The tokens of a database, and one secret of the owner that is stored nowhere."""

    def __init__(self, database: Database, owner: Principal) -> None:
        super().__init__(database)
        self.own = secrets.token_urlsafe(32)
        self._owner = owner

    def verify(self, secret: str) -> Principal:
        own = compare_digest(secret.encode(), self.own.encode())
        return self._owner if own else super().verify(secret)


class LocalGate(Gate):
    """The gate of one command; the decision log names the command as source."""

    def evaluate(
        self, question: bytes, *, asked_by: str, source: str, image_s: float | None = None
    ) -> AnswerRecord:
        """Decide without logging, as `Gate.evaluate`."""
        by = f"cli:{asked_by}"
        return super().evaluate(question, asked_by=by, source="cli", image_s=image_s)

    def known(self, question: bytes, *, asked_by: str, source: str) -> AnswerRecord | None:
        """Return what memory has, as `Gate.known`."""
        return super().known(question, asked_by=f"cli:{asked_by}", source="cli")


class LocalClient:
    """A local database, and the client of its gate, which one thread at a time uses.

    ``rooms`` are for operations that REST does not have.
    """

    def __init__(self, rooms: Rooms, client: Client) -> None:
        self.rooms = rooms
        self.client = client

    @classmethod
    def open(
        cls,
        database: str | None,
        *,
        name: str | None = None,
        make: bool = False,
        overlays: Sequence[str] | None = None,
        images: ImageSettings | None = None,
        signing: SigningOptions | None = None,
    ) -> Self:
        """Open the gate of a database, with the options of `open_rooms`.

        ``name``: who asks; None: this machine's user.
        """
        rooms = open_rooms(database, make=make, overlays=overlays, images=images, kind=LocalGate)
        try:
            owner = Principal(name or user_name(), frozenset({"admin"}), kind="local")
            tokens = rooms.tokens = _Tokens(rooms.gate.database, owner)
            return cls(rooms, _client(rooms, tokens.own, overlays, signing))
        except BaseException:
            rooms.close()
            raise

    def close(self) -> None:
        """Close the database."""
        self.client.close()
        self.rooms.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _client(
    rooms: Rooms, token: str, overlays: Sequence[str] | None, signing: SigningOptions | None
) -> Client:
    import_httpx()  # before Flask, whose imports would have it load its own command line
    from compatgate.service.audit.attestations import SigningOptions
    from compatgate.web.app import create_app
    from compatgate.web.service import Settings

    settings = Settings(
        max_request_size=_LARGEST,
        overlays=None if overlays is None else tuple(overlays),
        signing=signing or SigningOptions(),
    )
    app = create_app(rooms, settings)
    app.config["PROPAGATE_EXCEPTIONS"] = True

    def raise_unchanged(defect: Exception) -> NoReturn:  # not as a gate that does not answer
        raise defect

    app.register_error_handler(Exception, raise_unchanged)
    return make_client(_URL, token, retries=0, app=app)
