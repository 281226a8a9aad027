"""Share the parts of the tool readers: reading of whole outputs, results, JSON documents.

`ToolOutput` collects a tool's output and calls its reader; the reader adds its findings to
`ToolResults`, which makes the report.

`ToolResults.note_fault` recognizes a tool whose own CUDA is too new for the driver; that says
nothing about the stack. Two conditions together prove it; neither is enough alone:

- The tool fails with its own message, in a form that only its own code prints. A message of the
  stack's libraries (``NCCL WARN Cuda failure ...``) or of a program of the stack has another form
  and counts against the stack.
- The code that failed is the tool's. It fails in a CUDA runtime, which is its own only if it is
  linked into it: ``own_cuda`` of the env line, which ``canary/lib/canary_tool.py`` reads from the
  tool's file. A tool that loads the image's libcudart fails as the image's own programs would.

Source: https://github.com/NVIDIA/nvbandwidth ``error_handling.h``,
https://github.com/NVIDIA/nccl-tests ``src/common.h``; the messages are those of
``cudaGetErrorString(35)`` and ``(222)``, the same in CUDA 12 and 13.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from compatgate.canary.protocol.jsonl import (
    LOST_LINE,
    BrokenLine,
    Collector,
    Line,
    parse_protocol_line,
    read_number,
)
from compatgate.canary.run import Check, Device, Env, Report
from compatgate.canary.workload import Workload
from compatgate.core.versions import parse_version, same_release
from compatgate.errors import BadInput, quote_error


class ToolResults(Collector):
    """Collector of metrics, checks, versions and problems.

    Metrics that ``workload.toml`` does not declare are left out, because tools print many; without
    a workload, all are kept. Checks are always stored, because a failed one must not be lost.
    """

    def __init__(self, workload: Workload | None) -> None:
        super().__init__()
        self.workload = workload
        self.other: dict[str, Any] = {}
        self.own_fault = ""
        self._gpus: list[Device] = []
        self._versions: dict[str, str] = {}

    def metric(self, name: str, unit: str, value: object) -> None:
        """Add a value of a metric; repeated calls append.

        A value that is not finite, or a unit that differs from the declared one, is a problem.
        """
        if self.workload is not None:
            declared = self.workload.metrics.get(name)
            if declared is None:
                return None
            if declared.unit != unit:
                what = f"the metric {name} is in {unit}, but workload.toml declares {declared.unit}"
                return self.problem(what)
        if name in self._values and self._values[name][0] != unit:
            return self.problem(f"{name} is printed both in {self._values[name][0]} and in {unit}")
        try:
            self.add_values(name, unit, [read_number(name, value)])
        except BrokenLine as broken:
            self.problem(str(broken))

    def check(self, name: str, ok: bool, message: str = "", *, host: bool = False) -> None:
        """Add a check; ``host`` marks one of the host's GPU, not of the stack."""
        self.add_check(Check(name, ok, message, host=host))

    def note_fault(self, pattern: re.Pattern[str], text: str) -> bool:
        """Record a failure if it has the form of the tool's own; return whether it is."""
        own = self.env is not None and self.env.other.get("own_cuda") is True
        if not own or pattern.fullmatch(text.strip()) is None:
            return False
        self.own_fault = self.own_fault or text.strip()
        return True

    def version(self, component: str, version: str) -> None:
        """Record the version of the driver, or of a library that the tool has loaded."""
        try:
            parse_version(component, version)
        except BadInput:
            self.problem(f"{version[:80]!r} is not a version of {component}")
        else:
            self._agree(self._versions, component, version)

    def gpu(self, device: Device) -> None:
        """Record a GPU that the tool names; a repeated GPU is recorded once."""
        if device not in self._gpus:
            self._gpus.append(device)

    def _agree(self, versions: dict[str, str], component: str, text: str) -> None:
        """Note a version; another release than the known one is a problem."""
        known = versions.setdefault(component, text)
        one, other = parse_version(component, known), parse_version(component, text)
        if not same_release(component, one, other):
            self.problem(f"{component} is both {known} and {text}")

    def report(self, *, lines: int, dropped: int) -> Report:
        """Return the whole report, with the env line completed by the tool's statements."""
        env = self.env or Env()
        versions = env.versions | ({"driver": env.driver} if env.driver else {})
        for component, text in self._versions.items():
            self._agree(versions, component, text)
        silent = self.env is None and not (versions or self._gpus)
        driver = versions.pop("driver", None)
        whole = replace(
            env,
            driver=driver,
            gpus=env.gpus or tuple(self._gpus),
            versions=versions,
            other=env.other | self.other,
        )
        more = {"lines": lines, "dropped_bytes": dropped, "own_fault": self.own_fault[:_MESSAGE]}
        return self.make_report(None if silent else whole, **more)


ToolReader = Callable[[str, ToolResults], None]
"""Reader of a tool's whole output; raises `BrokenLine` if it cannot go on."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_RANK = re.compile(r"^\[\d+,\d+\]<std(?:out|err)>:", re.MULTILINE)
_PROTOCOL_LINE = re.compile(rb'\s*\{\s*"type"\s*:\s*"(?:env|metric|check|progress|lost)"')
RUNTIME_FAULT = "CUDA driver version is insufficient for CUDA runtime version"
_MAX_IN_MEMORY = 256 << 20
"""Maximum number of bytes to read, whatever ``limits.output`` says; more is only counted."""


class ToolOutput:
    """Reader of one execution of a tool, which is read at its end."""

    progress: float | None = None

    def __init__(self, read: ToolReader, workload: Workload | None = None) -> None:
        self._read = read
        self._found = ToolResults(workload)
        most = workload.limits.output if workload else _MAX_IN_MEMORY
        self._most = min(most, _MAX_IN_MEMORY)
        self._data = bytearray()
        self._dropped = 0

    def feed(self, data: bytes) -> None:
        """Take the next piece of output."""
        room = self._most - len(self._data)
        self._data += data[:room]
        self._dropped += max(len(data) - room, 0)

    def report(self) -> Report:
        """Read the whole output, and return the report."""
        result = self._found
        text = _tool_text(bytes(self._data), result)
        try:
            self._read(text, result)
        except BrokenLine as broken:
            result.problem(str(broken))
        return result.report(lines=text.count("\n"), dropped=self._dropped)


def _tool_text(data: bytes, found: ToolResults) -> str:
    kept: list[bytes] = []
    # If lines were lost, the line before may have no end.
    lines = data.replace(LOST_LINE, b"\n" + LOST_LINE).split(b"\n")
    # Half a number is also a number, so a line that may go on is not read.
    if lines.pop().strip():
        found.problem(f"line {len(lines) + 1}: the output ends in the middle of a line")
    for number, content in enumerate(lines, start=1):
        if not _PROTOCOL_LINE.match(content):
            kept.append(content)
            continue
        try:
            body = parse_protocol_line(Line(number, content)) or {}
            kind = body.pop("type", None)
            if kind == "env":
                found.read_env(body)
            elif kind == "lost":
                raise BrokenLine(str(body.get("message", "lines were lost")))
            else:
                what = f"a tool's output has a line of type {str(kind)[:80]!r}"
                raise BrokenLine(f"{what}; only env is allowed")
        except BrokenLine as broken:
            found.problem(f"line {number}: {broken}")
    text = (
        b"".join(line + b"\n" for line in kept).decode("utf-8", "replace").replace("\0", "\ufffd")
    )
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _RANK.sub("", _COLOUR.sub("", text))


_MESSAGE = 2000
_MAX_DOCUMENTS = 10_000


def find_documents(text: str, first: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects that begin a line and have a given first member."""

    def refuse_constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    begins = re.compile(rf'^[ \t]*(?=\{{\s*"(?:{first})"\s*:)', re.MULTILINE)
    decoder = json.JSONDecoder(parse_constant=refuse_constant)
    at, count = 0, 0
    while match := begins.search(text, at):
        count += 1
        if count > _MAX_DOCUMENTS:
            raise BrokenLine(f"more than {_MAX_DOCUMENTS} documents")
        try:
            body, at = decoder.raw_decode(text, match.end())
        except RecursionError:
            raise BrokenLine("the JSON document is nested too deeply") from None
        except ValueError as error:
            raise BrokenLine(
                f"the JSON document is cut off or malformed: {quote_error(error)}"
            ) from None
        yield body


def read_member(body: dict[str, Any], name: str, kind: type, default: Any = None) -> Any:
    """Return a member of a type, or the default if it is missing or null."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise BrokenLine(f"{name} has the wrong type: {str(value)[:80]}")
    return value


def read_objects(body: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a list of objects; ``null`` between them, as some versions print, is left out."""
    values = read_member(body, name, list)
    if values is None:
        raise BrokenLine(f"{name} is missing")
    kept = [value for value in values if value is not None]
    if not all(isinstance(value, dict) for value in kept):
        raise BrokenLine(f"{name} has an item that is not an object")
    return kept
