"""Recognise callers that an OpenID Connect issuer vouches for: people and CI jobs.

Authlib is imported where the operator's file names an issuer, and nowhere else.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from compatgate.errors import CompatgateError, NotFound, Unauthorized
from compatgate.service.access.sessions import SECRET_PREFIX, IdentitySessions
from compatgate.service.access.settings import IdentitySettings

if TYPE_CHECKING:
    from compatgate.kit.database.database import Database
    from compatgate.kit.principal import Principal
    from compatgate.service.access.issuers import Jobs
    from compatgate.service.access.people import People

_JWT_BEGINS = "eyJ"
"""The beginning of every JSON object in base64url, so of every token's header."""
_JWT_DOTS = 2
_LONGEST_JWT = 16 * 1024


class Identity:
    """Callers with sessions of people and with job tokens."""

    def __init__(self, database: Database, settings: IdentitySettings) -> None:
        self.sessions = IdentitySessions(database, settings.people)
        self.people: People | None = None
        self._jobs: Jobs | None = None
        if settings.is_empty:
            return
        from compatgate.service.access.issuers import Issuer, Jobs
        from compatgate.service.access.people import People

        issuers = []
        if settings.people:
            self.people = People(settings.people, self.sessions, Issuer(settings.people.issuer))
            issuers.append(self.people.issuer)
        trusted = [(jobs, Issuer(jobs.issuer)) for jobs in settings.jobs]
        self._jobs = Jobs(trusted)
        issuers += [issuer for _, issuer in trusted]

        def read_ahead() -> None:  # keys, before the first request needs them
            for issuer in issuers:
                with suppress(CompatgateError):  # an issuer that is unavailable is asked again
                    issuer.key(None)

        threading.Thread(target=read_ahead, daemon=True).start()

    def knows(self, secret: str) -> bool:
        """Return whether a secret has the shape of a session or of a job token."""
        return secret.startswith(SECRET_PREFIX) or _is_jwt(secret)

    def verify(self, secret: str) -> Principal:
        """Return the holder of a bearer token that `knows` recognises."""
        if not _is_jwt(secret):
            return self.sessions.verify(secret, "command-line")
        if self._jobs is None:
            hint = "the operator configures issuers with serve --oidc FILE"
            raise Unauthorized("this gate trusts no job tokens", hint=hint)
        return self._jobs.verify(secret)

    def at_hand(self, secret: str) -> Principal | None:
        """Return the holder from memory; None: `verify` must look it up."""
        if not _is_jwt(secret):
            return self.sessions.at_hand(secret)
        return self._jobs.at_hand(secret) if self._jobs else None

    def was_valid(self, secret: str) -> bool:
        """Return whether this process has found a secret valid before."""
        if not _is_jwt(secret):
            return self.sessions.was_valid(secret)
        return self._jobs is not None and self._jobs.at_hand(secret) is not None

    def offer(self) -> dict[str, str] | None:
        """Return the issuer for the sign-in page, and why it cannot be used; None: there is none.

        Members are ``name`` and ``problem``, which is empty while the issuer answers.
        """
        if self.people is None:
            return None
        problem = ""
        try:
            self.people.issuer.metadata()
        except CompatgateError as error:
            problem = f"{error.problem}."
        return {"name": self.people.settings.label, "problem": problem}

    def require_people(self) -> People:
        """Return the issuer at which people sign in."""
        if self.people is None:
            what = "people cannot sign in here: this gate has tokens only"
            raise NotFound(what, hint="the operator configures an issuer with serve --oidc FILE")
        return self.people


def _is_jwt(secret: str) -> bool:
    begins = secret.startswith(_JWT_BEGINS) and len(secret) <= _LONGEST_JWT
    return begins and secret.count(".") == _JWT_DOTS
