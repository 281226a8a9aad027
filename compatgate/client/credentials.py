"""Keep the sessions of ``compatgate login``: a file for each gate, which only its owner reads."""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from compatgate.errors import BadInput
from compatgate.kit.clock import is_past
from compatgate.kit.files import replacing


class Credential(Struct, frozen=True, forbid_unknown_fields=True):
    """A session at a gate.

    Attributes:
        server: URL of the gate, without ``/api/v1``.
        secret: sent as the bearer token.
        session: id of the session.
        name: of the person, as the gate's logs show it.
        expires_at: absolute end.
    """

    server: str
    secret: str
    session: str
    name: str
    expires_at: datetime

    def __repr__(self) -> str:
        """Return the object without its secret, because errors and logs show objects."""
        return f"Credential({self.server!r}, {self.name!r})"


def folder() -> Path:
    """Return the folder of the credentials."""
    from platformdirs import user_config_path

    return user_config_path("compatgate") / "credentials"


def path_of(server: str) -> Path:
    """Return the file for a gate."""
    name = re.sub(r"[^A-Za-z0-9.-]+", "_", server.partition("://")[2])[:100]
    return folder() / f"{name}-{hashlib.sha256(server.encode()).hexdigest()[:12]}.json"


def store(credential: Credential) -> Path:
    """Write the credential of a gate with mode 0600, in place of an earlier one."""
    path = path_of(credential.server)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.parent.chmod(0o700)
        with replacing(path) as file:  # with mode 0600
            file.write(msgspec.json.encode(credential))
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}", field="credentials") from None
    return path


def load(server: str) -> Credential | None:
    """Return the credential of a gate; None: there is none, or it has expired."""
    path = path_of(server)
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            found = msgspec.json.decode(file.read(65536), type=Credential)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if mode & 0o077:
        hint = f"chmod 600 {path}"
        raise BadInput(f"{path} is readable by other users", field="credentials", hint=hint)
    return None if found.server != server or is_past(found.expires_at) else found


def remove(server: str) -> bool:
    """Remove the credential of a gate; return whether there was one."""
    path = path_of(server)
    existed = path.exists()
    with suppress(OSError):
        path.unlink()
    return existed
