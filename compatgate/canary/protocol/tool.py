"""Share the parts of the tool readers: reading of whole outputs, results, JSON documents.

`ToolOutput` collects a tool's output and calls its reader; the reader adds its findings to
`ToolResults`, which makes the report.

The ``note_`` functions recognize a tool whose own CUDA is too new for the driver; that says nothing
about the stack. Two conditions together prove it; neither is enough alone:

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
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from compatgate.canary.protocol.jsonl import (
    LOST_LINE,
    BrokenLine,
    Line,
    parse_protocol_line,
    read_env,
    read_number,
)
from compatgate.canary.run import Check, Device, Env, Metric, Report
from compatgate.canary.workload import Workload
from compatgate.core.versions import parse_version, same_release
from compatgate.errors import BadInput, quote_error


class ToolResults:
    """Collector of metrics, checks, versions and problems.

    Metrics that ``workload.toml`` does not declare are left out, because tools print many; without
    a workload, all are kept. Checks are always stored, because a failed one must not be lost.
    """

    def __init__(self, workload: Workload | None) -> None:
        self.workload = workload
        self.env: Env | None = None
        self.other: dict[str, Any] = {}
        self._driver: str | None = None
        self._gpus: list[Device] = []
        self._versions: dict[str, str] = {}
        self._metrics: dict[str, tuple[str, list[float]]] = {}
        self._checks: dict[str, Check] = {}
        self._problems: list[str] = []
        self._unsaid = 0
        self._own_fault = ""

    @property
    def problems(self) -> int:
        """Return the number of problems so far."""
        return len(self._problems) + self._unsaid

    def problem(self, text: str) -> None:
        """Record that output is damaged, or that data is missing."""
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems.append(text[:_MESSAGE])
        else:
            self._unsaid += 1

    def metric(self, name: str, unit: str, values: Iterable[object]) -> None:
        """Add values of a metric; repeated calls append.

        A value that is not finite, or a unit that differs from the declared one, is a problem.
        """
        if not self._wanted(name, unit):
            return
        try:
            kept = [read_number(name, value) for value in values]
        except BrokenLine as broken:
            self.problem(str(broken))
            return
        known = self._metrics.setdefault(name, (unit, []))
        if known[0] != unit:
            self.problem(f"{name} is printed both in {known[0]} and in {unit}")
            return
        known[1].extend(kept)

    def _wanted(self, name: str, unit: str) -> bool:
        if self.workload is None:
            return True
        declared = self.workload.metrics.get(name)
        if declared is not None and declared.unit != unit:
            self.problem(
                f"the metric {name} is in {unit}, but workload.toml declares {declared.unit}"
            )
            return False
        return declared is not None

    def check(self, name: str, ok: bool, message: str = "", *, host: bool = False) -> None:
        """Add a check; one that failed once has failed.

        ``host`` marks a check of the host's GPU, not of the stack.
        """
        known = self._checks.get(name)
        if known is None or known.ok:
            self._checks[name] = Check(name, ok, message[:_MESSAGE], host=host)

    def own_fault(self, message: str) -> None:
        """Record a failure of the tool itself, see `own_cuda`; only the first is stored."""
        self._own_fault = self._own_fault or message[:_MESSAGE]

    def declares(self, check: str) -> bool:
        """Return whether ``workload.toml`` asks for an optional check."""
        return self.workload is None or check in self.workload.checks

    def driver(self, version: str) -> None:
        """Record the driver that the tool names."""
        if self._is_version("driver", version):
            self._driver = self._agreed("driver", self._driver, version)

    def version(self, component: str, version: str) -> None:
        """Record the version of a library that the tool has loaded."""
        if self._is_version(component, version):
            known = self._versions.get(component)
            self._versions[component] = self._agreed(component, known, version)

    def gpu(self, device: Device) -> None:
        """Record a GPU that the tool names; a repeated GPU is recorded once."""
        if device not in self._gpus:
            self._gpus.append(device)

    def _is_version(self, component: str, text: str) -> bool:
        try:
            parse_version(component, text)
        except BadInput:
            self.problem(f"{text[:80]!r} is not a version of {component}")
            return False
        return True

    def _agreed(self, component: str, known: str | None, text: str) -> str:
        if known is None:
            return text
        one, other = parse_version(component, known), parse_version(component, text)
        if not same_release(component, one, other):
            self.problem(f"{component} is both {known} and {text}")
        return known

    def report(self, *, lines: int, dropped: int) -> Report:
        """Return the whole report, as the engine needs it."""
        env = self._whole_env()
        problems = list(self._problems)
        if self._unsaid:
            problems.append(f"and {self._unsaid} more")
        return Report(
            env=env,
            metrics=tuple(
                Metric(name, unit, tuple(values))
                for name, (unit, values) in self._metrics.items()
                if values
            ),
            checks=tuple(self._checks.values()),
            problems=tuple(problems),
            lines=lines,
            dropped_bytes=dropped,
            own_fault=self._own_fault,
        )

    def _whole_env(self) -> Env | None:
        """Return the env line completed by the tool's statements; a difference is a problem."""
        stated = Env(self._driver, tuple(self._gpus), dict(self._versions), {}, dict(self.other))
        if self.env is None:
            return stated if stated.driver or stated.gpus or stated.versions else None
        versions = dict(self.env.versions)
        for component, text in stated.versions.items():
            versions[component] = self._agreed(component, versions.get(component), text)
        driver = self.env.driver
        if stated.driver:
            driver = self._agreed("driver", driver, stated.driver)
        return replace(
            self.env,
            driver=driver,
            gpus=self.env.gpus or stated.gpus,
            versions=versions,
            other={**self.env.other, **stated.other},
        )


ToolReader = Callable[[str, ToolResults], None]
"""Reader of a tool's whole output; raises `BrokenLine` if it cannot go on."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_RANK = re.compile(r"^\[\d+,\d+\]<std(?:out|err)>:", re.MULTILINE)
_PROTOCOL_LINE = re.compile(rb'\s*\{\s*"type"\s*:\s*"(?:env|metric|check|progress|lost)"')
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
    """Return the tool's output as text, without the lines of the protocol."""
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
            body = parse_protocol_line(Line(number, content))
            _read_protocol_line(body or {}, found)
        except BrokenLine as broken:
            found.problem(f"line {number}: {broken}")
    text = (
        b"".join(line + b"\n" for line in kept).decode("utf-8", "replace").replace("\0", "\ufffd")
    )
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _RANK.sub("", _COLOUR.sub("", text))


def _read_protocol_line(body: dict[str, object], found: ToolResults) -> None:
    kind = body.pop("type", None)
    if kind == "env":
        if found.env is not None:
            raise BrokenLine("the output has a second env line")
        found.env = read_env(body)
    elif kind == "lost":
        raise BrokenLine(str(body.get("message", "lines were lost")))
    else:
        raise BrokenLine(
            f"a tool's output has a line of type {str(kind)[:80]!r}; only env is allowed"
        )


_MAX_PROBLEMS = 100
_MESSAGE = 2000

_MAX_DOCUMENTS = 10_000


def find_documents(text: str, first: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects that begin a line and have a given first member."""
    begins = re.compile(rf'^[ \t]*(?=\{{\s*"(?:{first})"\s*:)', re.MULTILINE)
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
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


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_RUNTIME = "CUDA driver version is insufficient for CUDA runtime version"
_PTX = r"the provided PTX was compiled with an unsupported toolchain\.?"
_NVBANDWIDTH = re.compile(
    rf"\[(?:cudaErrorInsufficientDriver\] {_RUNTIME}"
    rf"|(?:cudaErrorUnsupportedPtxVersion|CUDA_ERROR_UNSUPPORTED_PTX_VERSION)\] {_PTX})"
    r" in expression .+"
)
_NCCL_TESTS = re.compile(rf"(?:\S+:)? ?Test CUDA failure \S+:\d+ '{_RUNTIME}'")


def note_nvbandwidth(message: str, found: ToolResults) -> bool:
    """Record an error of nvbandwidth if it is the tool's own; return whether it is."""
    return _has_own_cuda(found) and _note(_NVBANDWIDTH, message, found)


def note_nccl_tests(line: str, found: ToolResults) -> bool:
    """Record a failure of nccl-tests if it is the tool's own; return whether it is.

    PTX is left out: the tool also launches kernels of NCCL, which is under test.
    """
    return _has_own_cuda(found) and _note(_NCCL_TESTS, line, found)


def _has_own_cuda(found: ToolResults) -> bool:
    return found.env is not None and found.env.other.get("own_cuda") is True


def _note(pattern: re.Pattern[str], text: str, found: ToolResults) -> bool:
    if pattern.fullmatch(text.strip()) is None:
        return False
    found.own_fault(text.strip())
    return True
