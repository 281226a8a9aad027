"""Define every error that a user can meet: what happened, where, and what to do.

The command line, the REST API (RFC 9457 problem+json) and the UI render the same object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

_MAX_SHOWN = 60
"""Longest value, in characters, that a sentence repeats."""
_MAX_QUOTED = 300
_NAMED_KEY = re.compile(r"field `([^`]+)`")
"""How msgspec names a key that is missing or unknown."""
_VERBS = ("is ", "does not ", "must ", "cannot be ", "has ", "names ", "holds ", "belongs ")
"""Verbs whose subject is the value."""


def quote_error(error: object) -> str:
    """Return the words of a library or of the system, for the end of a message.

    Errors of Python itself are told in other words: they speak of the program, not of the input.
    Another release words the same error differently: say first what is wrong and which field, and
    let no test compare these words.

    Args:
        error: of another library, or the words that it holds.
    """
    if isinstance(error, CompatgateError):
        return str(error)
    if isinstance(error, ValueError) and hasattr(error, "colno"):  # of JSON
        return f"malformed at line {getattr(error, 'lineno', 1)}, column {error.colno}"
    if isinstance(error, UnicodeError):
        at = getattr(error, "start", None)
        return "not UTF-8" if at is None else f"not UTF-8 at byte {at + 1}"
    if isinstance(error, KeyError):
        return f"lacks {error.args[0] if error.args else 'a field'}"
    if isinstance(error, (TypeError, AttributeError, IndexError)):
        return "a value is not of the type that belongs there"
    words = " ".join(str(getattr(error, "strerror", None) or error).split())
    return words.replace("`", "'")[:_MAX_QUOTED] or type(error).__name__


def locate_error(error: Exception) -> tuple[str, str]:
    """Return the field and the words of an error of msgspec, which ends with the path."""
    words, _, path = str(error).partition(" - at `$")
    field = path.rstrip("`").replace("[...]", "[0]")
    if key := _NAMED_KEY.search(words):
        field += f".{key[1]}"
    return field.strip("."), quote_error(words)


def explain_form(error: Exception, whole: str = "") -> str:
    """Return the message for an error of msgspec: the field, or the whole, has the wrong form."""
    field, words = locate_error(error)
    return f"{field or whole} has the wrong form: {words}".strip()


class CompatgateError(Exception):
    """An error that explains itself.

    Args:
        problem: what went wrong, one sentence without a full stop.
        field: the input field concerned, as the user spells it (``pool.driver``).
        hint: a correct form, or what to do next.
    """

    status = 500
    """HTTP status when the error reaches REST."""
    exit_code = 2
    """Exit status when the error reaches the command line."""
    slug = "error"
    """Last part of the problem type's URI."""

    def __init__(
        self, problem: str, *, field: str | None = None, value: object = None, hint: str = ""
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.field = field
        self.value = value
        self.hint = hint

    @property
    def detail(self) -> str:
        """Return field, value, problem and hint in one line."""
        where = f"{self.field}: " if self.field else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{where}{self.statement}{hint}"

    @property
    def statement(self) -> str:
        """Return the problem, after the value where that is the subject of its verb."""
        return f"{self._subject}{self.problem}"

    @property
    def has_subject(self) -> bool:
        """Return whether the statement is a sentence without the field."""
        return bool(self._subject) or not self.problem.startswith(_VERBS)

    @property
    def _subject(self) -> str:
        if isinstance(self.value, bool) or not isinstance(self.value, str | int | float):
            return ""
        shown = str(self.value)
        if not 0 < len(shown) <= _MAX_SHOWN or not shown.isprintable() or shown in self.problem:
            return ""
        if not self.problem.startswith(_VERBS):
            return ""
        return f"'{shown}' " if isinstance(self.value, str) else f"{shown} "

    def __str__(self) -> str:
        return self.detail

    def at(self, field: str) -> CompatgateError:
        """Prefix the field path, for a parser that knows the place of its input."""
        self.field = f"{field}.{self.field}" if self.field else field
        return self


class BadInput(CompatgateError):
    """The request, file or argument is wrong; nothing was changed."""

    status = 400
    slug = "bad-input"


class ManyProblems(BadInput):
    """Several independent mistakes, reported together (an import, a batch)."""

    slug = "many-problems"

    def __init__(self, problem: str, problems: Sequence[CompatgateError]) -> None:
        super().__init__(problem)
        self.problems = tuple(problems)

    @property
    def detail(self) -> str:
        """Return every problem on a line of its own."""
        return "\n".join([self.problem, *(f"  {p.detail}" for p in self.problems)])


AuthenticationFailure = Literal[
    "missing", "malformed", "unknown", "revoked", "expired", "signature", "refused"
]


class Unauthorized(CompatgateError):
    """The request has no token, or an invalid one."""

    status = 401
    slug = "unauthorized"

    def __init__(
        self,
        problem: str,
        *,
        field: str | None = None,
        value: object = None,
        hint: str = "",
        reason: AuthenticationFailure = "refused",
        token: str | None = None,
    ) -> None:
        super().__init__(problem, field=field, value=value, hint=hint)
        self.reason = reason
        self.token = token


class Forbidden(CompatgateError):
    """The token lacks the scope."""

    status = 403
    slug = "forbidden"


class NotFound(CompatgateError):
    """The named object does not exist."""

    status = 404
    slug = "not-found"


class Gone(NotFound):
    """The named object existed, and was removed on purpose."""

    status = 410
    slug = "gone"


class Conflict(CompatgateError):
    """The change conflicts with the stored state (a name in use, an outdated revision)."""

    status = 409
    slug = "conflict"


class PreconditionFailed(Conflict):
    """A change names another version than the stored one (``If-Match``)."""

    status = 412
    slug = "precondition-failed"


class RequestTooLarge(CompatgateError):
    """The request is larger than the server accepts."""

    status = 413
    slug = "too-large"


class Unavailable(CompatgateError):
    """No decision is possible: the gate, a database or a registry does not answer."""

    status = 503
    exit_code = 3
    slug = "unavailable"


class TooManyRequests(Unavailable):
    """The caller asks, or fails to authenticate, too often; later it may succeed."""

    status = 429
    slug = "too-many-requests"
    retry_after_s = 1
    """Seconds until another attempt may succeed."""


class InfrastructureError(Unavailable):
    """A staging host, its engine or a registry failed; another attempt may succeed."""

    slug = "infrastructure"


class RegistryTimeout(Unavailable):
    """A registry did not answer in time; nothing was decided."""

    status = 504
    slug = "timed-out"


class DamagedContent(CompatgateError):
    """Downloaded data does not match its digest, size or format; nothing was stored."""

    status = 502
    exit_code = 3
    slug = "damaged"


class CatalogError(CompatgateError):
    """A fact file is malformed, or a compiled table does not belong to its source."""

    slug = "catalog"


class InconclusiveInput(CompatgateError):
    """The input states nothing to check (empty, a template): never a pass."""

    status = 422
    exit_code = 3
    slug = "inconclusive"


@contextmanager
def naming(field: str) -> Iterator[None]:
    """Have an error name the option, or the field, that its value came from."""
    try:
        yield
    except BadInput as error:
        error.field = field
        raise
