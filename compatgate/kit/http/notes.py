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
    """Notes about a request that began at a moment of `time.perf_counter`.

    ``route`` is the name of the route, never the path, which may hold anything. ``status``: 0 until
    there is an answer.
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

    @property
    def deciding_verdict(self) -> Verdict | None:
        """Return the first decision that was denied, else the first."""
        return next(
            (one for one in self.verdicts if not one.allowed), next(iter(self.verdicts), None)
        )


def note_of(environ: Mapping[str, Any]) -> RequestNote | None:
    """Return the note of a request; None: no server made one."""
    return environ.get(NOTE)
