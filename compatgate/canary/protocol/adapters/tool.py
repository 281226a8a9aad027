"""The reader of a tool's output: collects it, then has it read whole."""

from __future__ import annotations

import re
from collections.abc import Callable

from compatgate.canary.protocol.adapters.found import Found
from compatgate.canary.protocol.env import read_env
from compatgate.canary.protocol.fields import Broken
from compatgate.canary.protocol.jsonl import protocol_body
from compatgate.canary.protocol.lines import Line
from compatgate.canary.protocol.lost import LOST
from compatgate.canary.report import Report
from compatgate.canary.workload import Workload

Read = Callable[[str, Found], None]
"""Reads a tool's whole output; raises `Broken` where it cannot go on."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_RANK = re.compile(r"^\[\d+,\d+\]<std(?:out|err)>:", re.MULTILINE)
_OF_PROTOCOL = re.compile(rb'\s*\{\s*"type"\s*:\s*"(?:env|metric|check|progress|lost)"')
_MOST_IN_MEMORY = 256 << 20
"""Beyond it, output is counted and not read, whatever ``limits.output`` says."""


class ToolOutput:
    """Reads one execution of a tool."""

    def __init__(self, read: Read, workload: Workload | None = None) -> None:
        self._read = read
        self._found = Found(workload)
        most = workload.limits.output if workload else _MOST_IN_MEMORY
        self._most = min(most, _MOST_IN_MEMORY)
        self._data = bytearray()
        self._dropped = 0

    @property
    def progress(self) -> float | None:
        """Tools do not say."""
        return None

    def feed(self, data: bytes) -> None:
        """Take the next piece of output."""
        room = self._most - len(self._data)
        self._data += data[:room]
        self._dropped += max(len(data) - room, 0)

    def report(self) -> Report:
        """What was found in all of it."""
        found = self._found
        text = _tools_own(bytes(self._data), found)
        try:
            self._read(text, found)
        except Broken as broken:
            found.problem(str(broken))
        return found.report(lines=text.count("\n"), dropped=self._dropped)


def _tools_own(data: bytes, found: Found) -> str:
    """The tool's output as text, what stands beside it in the line protocol taken out."""
    kept: list[bytes] = []
    # Where lines were lost, the one before may have no end.
    lines = data.replace(LOST, b"\n" + LOST).split(b"\n")
    # Half a number is a number as well, so a line that may go on is not read.
    if lines.pop().strip():
        found.problem(f"line {len(lines) + 1}: the output ends in the middle of a line")
    for number, content in enumerate(lines, start=1):
        if not _OF_PROTOCOL.match(content):
            kept.append(content)
            continue
        try:
            body = protocol_body(Line(number, content))
            _take(body or {}, found)
        except Broken as broken:
            found.problem(f"line {number}: {broken}")
    text = (
        b"".join(line + b"\n" for line in kept).decode("utf-8", "replace").replace("\0", "\ufffd")
    )
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _RANK.sub("", _COLOUR.sub("", text))


def _take(body: dict[str, object], found: Found) -> None:
    kind = body.pop("type", None)
    if kind == "env":
        if found.env is not None:
            raise Broken("a second env")
        found.env = read_env(body)
    elif kind == "lost":
        raise Broken(str(body.get("message", "lines were lost")))
    else:
        raise Broken(f"{str(kind)[:80]!r} beside a tool's output; only env may stand there")
