"""Find messages about the whole host in a log: wrong module, mixed versions, missing firmware.

The words are the signatures of ``error_signatures.yaml`` that have a severity for a log. A message
may span lines, so each line is matched together with a few lines before it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from compatgate.canary.health.gpu_errors import parse_device
from compatgate.canary.health.records import Record, Stamp
from compatgate.core.facts.errors import Cause, ErrorTable, Signature
from compatgate.core.triage import clean_text, find_signatures

HOST = "host"
"""Device of a message that names no GPU."""
_LINES = 6
_LONGEST_LINE = 4096
_LONGEST_MESSAGE = 400
_MORE_LINES = 2
_ADDRESS = re.compile(
    r"(?:\bv?GPU|\bnvidia|\bnouveau|PCI:)[ :]{0,2}"
    r"((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b",
    re.IGNORECASE,
)
_NAMES_GPU = re.compile(r"The NVIDIA v?GPU \S+ \(PCI ID", re.IGNORECASE)
_STARTS_MESSAGE = re.compile(r"NVRM: (?:The NVIDIA|GPU |loading|API mismatch)", re.IGNORECASE)


class HostMessage(Struct, frozen=True):
    """A message about the host, ``at`` the times of its first lines if the last one has none."""

    cause: Cause
    signature: Signature
    device: str
    text: str
    at: tuple[Stamp, ...]
    again: bool = False


class HostMessages:
    """Finder of messages about the host in the lines of one log, in their order."""

    def __init__(self, table: ErrorTable) -> None:
        self._table = replace(table, signatures=tuple(s for s in table.signatures if s.health))
        self._before: deque[tuple[Record, str]] = deque(maxlen=_LINES)
        self._recent: deque[frozenset[tuple[str, str]]] = deque(maxlen=_LINES)
        self._at: tuple[Stamp, ...] = ()
        self._more = 0

    def read(self, record: Record) -> Iterator[HostMessage]:
        """Yield the messages that a line completes."""
        self._at = record.at or self._at
        line = clean_text(record.text[:_LONGEST_LINE]).strip()
        head = " ".join(text for _, text in self._before)
        head = f"{head} " if head else ""
        matches = find_signatures(head + line, self._table, len(head))
        # The GPU that the line names, or the line before it where a message begins.
        found = _ADDRESS.search(record.text)
        if found is None and self._before and _NAMES_GPU.search(self._before[-1][0].text):
            found = _ADDRESS.search(self._before[-1][0].text)
        device = (parse_device(found[1]) if found else None) or HOST
        recent = {pair for pairs in self._recent for pair in pairs}
        for signature, start in matches:
            again = any(c == signature.cause and s != signature.id for c, s in recent)
            words = (head + line)[start:].strip()[:_LONGEST_MESSAGE]
            self._more = _MORE_LINES
            cause = self._table.by_id[signature.cause]
            yield HostMessage(cause, signature, device, words, self._at, again)
        self._recent.append(frozenset((one.cause, one.id) for one, _ in matches))
        self._before.append((record, line))

    def continues(self, record: Record) -> str | None:
        """Return the words of a line that continues the message found last; None if it does not.

        Call it before `read`, which counts the lines.
        """
        if not self._more:
            return None
        self._more -= 1
        if not record.text.startswith("NVRM:") or _STARTS_MESSAGE.match(record.text):
            self._more = 0
            return None
        return clean_text(record.text).strip()

    def interrupt(self) -> None:
        """End the message found last: another error follows."""
        self._more = 0
