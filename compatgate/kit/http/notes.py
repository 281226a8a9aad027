"""Note what is known of one request, for its line in the log and its figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from compatgate.core.rule import Verdict
    from compatgate.errors import CompatgateError

NOTE = "compatgate.note"
"""Key of the note in the scope of a request, and in its WSGI environment."""
RequestKind = Literal["question", "hook", "api", "page", "health"]


class RequestNote(Struct):
    """Notes about a request.

    Attributes:
        kind: which lane answers it.
        began: of `time.perf_counter`, in seconds.
        route: name of the route; never the path, which may hold anything.
        status: of the answer; 0: none yet.
    """

    method: str
    kind: RequestKind
    peer: str
    began: float
    number: str = "-"
    route: str = "none"
    status: int = 0
    identity: str | None = None
    error: CompatgateError | None = None
    verdicts: tuple[Verdict, ...] = ()


def note_of(environ: Mapping[str, Any]) -> RequestNote | None:
    """Return the note of a request; None: no server made one."""
    return environ.get(NOTE)
