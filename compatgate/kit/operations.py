"""Read the operations of the REST API as data: client and commands derive from them.

`operations.json` is made from the routes by ``scripts/operations.py``. Reading it needs neither
Flask nor a database.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import msgspec
from msgspec import Struct

from compatgate.resources import package_dir

Place = Literal["path", "query", "body", "whole", "header"]
Kind = Literal["text", "number", "flag", "since", "until", "list", "object"]


class Argument(Struct, frozen=True, omit_defaults=True):
    """An argument of an operation, and its place in the request; ``whole``: it is the body.

    ``sent``: its name in the request; empty: as in Python. ``default``: what the server assumes.
    """

    name: str
    place: Place
    annotation: str
    kind: Kind = "text"
    sent: str = ""
    required: bool = False
    default: Any = None
    choices: tuple[str, ...] = ()
    about: str = ""

    @property
    def key(self) -> str:
        """Return the name in the request."""
        return self.sent or self.name

    @property
    def positional(self) -> bool:
        """Return whether the argument may be given without its name."""
        if self.place in ("path", "whole"):
            return True
        return self.required and self.place == "body" and self.name != "reason"


class Declared(Struct, frozen=True, omit_defaults=True):
    """An operation of the API.

    ``answer`` is a type, ``module:name``, or ``text`` or ``json``; ``fixed`` are query parameters
    that are always sent; ``documents``: the body is YAML where it is text; ``repeatable``: a retry
    is safe; ``slow``: the answer may take minutes; ``refusal``: errors have the form of the answer;
    ``command`` asks it, ``nodes racks``; empty: none is derived.
    """

    name: str
    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    about: str
    answer: str
    form: Literal["one", "pages", "lines"] = "one"
    arguments: tuple[Argument, ...] = ()
    fixed: dict[str, str] = {}
    documents: bool = False
    repeatable: bool = False
    slow: bool = False
    refusal: bool = False
    command: str = ""
    columns: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def load_operations() -> dict[str, Declared]:
    """Return the operations by name, in the order of the routes."""
    content = (package_dir() / "kit/operations.json").read_bytes()
    return {one.name: one for one in msgspec.json.decode(content, type=list[Declared])}
