"""Read kernel messages from dmesg, syslog, journal and /dev/kmsg, in bounded memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from compatgate.discovery.gpucode.source import ByteReader
from compatgate.errors import BadInput

Clock = Literal["boot", "epoch", "iso", "ctime", "syslog"]


class Stamp(NamedTuple):
    """A time on one clock; times of different clocks are not compared."""

    clock: Clock
    text: str


class Record(NamedTuple):
    """A kernel message from ``NVRM:`` or ``nvidia`` on, with a time per clock of its line."""

    text: str
    at: tuple[Stamp, ...] = ()
    quoted: bool = False


_STARTS = re.compile(
    r"(?=\bNVRM: |\bnvidia-nvswitch\d+:? SXid|\bnvidia [0-9a-f:.]{7,16}: (?:AER|PCIe Bus))"
)
_BARE_XID = re.compile(r"(?=\bS?Xid \()", re.IGNORECASE)
_REPETITION = re.compile(r"message repeated \d+ times: \[\s*$")
_TAG = re.compile(r"(?:^|\s)([\w./@-]+?)(?:\[\d+\])?:\s*(?:\[[^\]]{0,40}\]:?\s*)?$")
_KERNEL = frozenset({"kernel", "kern", "vmkernel", "dmesg"})
_LEVELS = frozenset(("emerg", "alert", "crit", "err", "error", "warn", "warning", "notice", "info"))
_FIELD = re.compile(rb'^\s*"(\w+)"\s*:\s*(".*"|[\d.]+)\s*,?\s*$')
_EXPORT = re.compile(rb"^([A-Z_][A-Z0-9_]{1,63})=(.*)$", re.DOTALL)
_TEXT_FIELDS = ("MESSAGE", "msg", "message", "log", "text")
_FIELDS = frozenset(
    (
        *_TEXT_FIELDS,
        "time",
        "timestamp",
        "SYSLOG_IDENTIFIER",
        "_TRANSPORT",
        "__REALTIME_TIMESTAMP",
        "_SOURCE_MONOTONIC_TIMESTAMP",
        "_SOURCE_BOOTTIME_TIMESTAMP",
    )
)


_WORDS = (
    b"nvrm",
    b"xid",
    b"nvidia",
    b"nvml",
    b"nvlink",
    b"rminit",
    b"gsp",
    b"fabricmanager",
    b"fabric manager",
    b"nouveau",
    b"unsigned module",
    b"cuda",
    b"pcie bus err",
    b"fallen off",
)
"""One of these is in each line that a GPU error or a signature of a host needs."""


def _is_relevant(line: bytes) -> bool:
    """Return whether a line may concern a GPU; most do not, and logs can have millions of lines."""
    low = line.lower()
    return any(word in low for word in _WORDS)


class RecordReader:
    """Reader of a log, line by line; keeps the state that earlier lines began."""

    def __init__(self) -> None:
        self.seen = 0
        self._fields: dict[str, Any] = {}
        self._structured = False
        self._binary: str | None = None

    def read(self, stream: ByteReader) -> Iterator[Record]:
        """Yield every record that may concern a GPU."""
        for line in read_lines(stream):
            yield from self.feed(line)
        yield from self._end()

    def feed(self, line: bytes) -> Iterator[Record]:
        """Yield the records that a line completes."""
        bare = line.strip(b" \t\r\x1e\0")
        if bare:
            self.seen += 1
        if bare[:1] == b"{" or bare in (b"[", b'"dmesg": ['):
            self._structured = True
            yield from self._end()
            if len(bare) > 1:
                yield from _read_json_line(bare)
        elif bare.startswith(b"__CURSOR="):
            self._structured = True
            yield from self._end()
        elif self._structured:
            yield from self._structured_line(line, bare)
        elif _is_relevant(line):
            yield from read_text(line.decode("utf-8", "replace"))

    def _structured_line(self, line: bytes, bare: bytes) -> Iterator[Record]:
        if self._binary is not None:  # eight bytes of length, then the value
            self._fields[self._binary] = line[8:].decode("utf-8", "replace")
            self._binary = None
        elif not bare or bare[:1] in b"}]":
            yield from self._end()
        elif bare == b"MESSAGE":
            self._binary = "MESSAGE"
        elif match := _EXPORT.match(bare):
            self._keep(match[1].decode(), match[2].decode("utf-8", "replace"))
        elif match := _FIELD.match(line):
            raw = match[2]
            try:
                value = json.loads(raw)
            except (ValueError, RecursionError):
                value = raw.strip(b'"').decode("utf-8", "replace")
            self._keep(match[1].decode(), value)
        elif _is_relevant(line):  # the structure ended: files written one after another
            yield from read_text(line.decode("utf-8", "replace"))

    def _keep(self, name: str, value: Any) -> None:
        if name in _FIELDS:
            self._fields[name] = value

    def _end(self) -> Iterator[Record]:
        fields, self._fields, self._binary = self._fields, {}, None
        if fields:
            yield from _read_fields(fields)


def read_text(line: str) -> Iterator[Record]:
    """Yield the messages of a line; more than one if line breaks were lost."""
    head, *found = _STARTS.split(line)
    if not found:
        head, *found = _BARE_XID.split(line)
    if not found and _is_relevant(line.encode()):
        yield Record(line.strip(), parse_stamps(line[:120]), quoted=False)
        return
    before = head
    for text in found:
        prefix = before[-200:]
        repeated = _REPETITION.search(prefix)
        at = () if repeated else parse_stamps(prefix)
        yield Record(
            text.strip().removesuffix("]") if repeated else text.strip(), at, _is_quoted(prefix)
        )
        before = text


def _is_quoted(prefix: str) -> bool:
    """Return whether the tag before a message is that of a program."""
    if any(f"{name}:" in prefix or f"{name} " in prefix for name in _KERNEL):
        return False
    match = _TAG.search(prefix)
    if not match:
        return False
    name = match[1].lower()
    return name not in _LEVELS and not name[:1].isdigit()


# --- JSON and the journal's export format -------------------------------------------------------


_OBJECT = re.compile(rb"\{[^{}]{2,4096}\}")


def _read_json_line(bare: bytes) -> Iterator[Record]:
    """Yield the record of a JSON object on one line; of a damaged one, what its text contains."""
    # A message that is no UTF-8 is a list of numbers in the journal.
    if not _is_relevant(bare) and b'"MESSAGE":[' not in bare.replace(b" ", b""):
        return
    try:
        document = json.loads(bare.rstrip(b","))
    except (ValueError, RecursionError):
        any_read = False
        for match in _OBJECT.finditer(bare):  # the whole objects in a piece of a longer document
            try:
                document = json.loads(match[0])
            except (ValueError, RecursionError):
                continue
            any_read = True
            yield from _read_fields(document)
        if not any_read:
            yield from read_text(bare.decode("utf-8", "replace"))
        return
    listed = document.get("dmesg") if isinstance(document, dict) else None
    for one in listed if isinstance(listed, list) else [document]:
        if isinstance(one, dict):
            yield from _read_fields(one)


def _read_fields(fields: dict[str, Any]) -> Iterator[Record]:
    values = [fields.get(name) for name in _TEXT_FIELDS]
    text = next((t for value in values if (t := _field_text(value))), "")
    at = _field_stamps(fields)
    transport, tag = fields.get("_TRANSPORT"), fields.get("SYSLOG_IDENTIFIER")
    program = transport not in (None, "kernel") and tag not in (None, "kernel")
    for line in text.splitlines():
        for record in read_text(line):
            yield Record(record.text, at or record.at, program or record.quoted)


def _field_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(n, int) and 0 <= n < 256 for n in value):
        return bytes(value).decode("utf-8", "replace")
    return ""


def _field_stamps(fields: dict[str, Any]) -> tuple[Stamp, ...]:
    field_stamps: list[Stamp] = []
    for name in ("_SOURCE_BOOTTIME_TIMESTAMP", "_SOURCE_MONOTONIC_TIMESTAMP"):
        if (number := _field_number(fields.get(name))) is not None:
            field_stamps.append(make_boot_stamp(number / 1e6))
            break
    if (number := _field_number(fields.get("__REALTIME_TIMESTAMP"))) is not None:
        field_stamps += make_epoch_stamps(number)
    when = fields.get("time", fields.get("timestamp"))
    if isinstance(when, str):
        field_stamps += parse_stamps(when)
    elif (number := _field_number(when)) is not None:
        field_stamps.append(make_boot_stamp(number))
    return tuple(field_stamps)


def _field_number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number < 1e18 else None


CLOCK_ORDER: tuple[Clock, ...] = ("epoch", "iso", "ctime", "syslog", "boot")
"""Clocks in the order of preference."""

# 6,1234,5678,-;message: priority, sequence, microseconds since boot (Documentation/ABI/dev-kmsg).
_KMSG = re.compile(r"^(?:<\d+>)?\s*\d{1,3},\d+,(\d{1,18})(?:,[^;]{0,80})?;")
_BOOT = re.compile(r"\[\s*(\d{1,10}\.\d{1,9})\](?!:? \w+\[)")
_ISO = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
)
_CTIME = re.compile(r"\b[^\W\d_]{2,4} [^\W\d_]{3,4} {1,2}\d{1,2} \d\d:\d\d:\d\d \d{4}")
_SYSLOG = re.compile(r"(?:^|[>\s])([^\W\d_]{3,4}\.? {1,2}\d{1,2} \d\d:\d\d:\d\d(?:\.\d{1,9})?)\b")
_UNIX = re.compile(r"^(\d{9,11}\.\d{1,9}) ")


def parse_stamps(prefix: str) -> tuple[Stamp, ...]:
    """Return the times before a message; none if it has none."""
    stamps = []
    if match := _KMSG.match(prefix):
        stamps.append(make_boot_stamp(int(match[1]) / 1e6))
    elif boots := _BOOT.findall(prefix):
        stamps.append(make_boot_stamp(float(boots[-1])))
    if match := _ISO.search(prefix):
        stamps.append(Stamp("iso", match[0]))
    elif match := _CTIME.search(prefix):
        stamps.append(Stamp("ctime", match[0]))
    elif match := _SYSLOG.search(prefix):
        stamps.append(Stamp("syslog", match[1]))
    elif match := _UNIX.match(prefix):
        stamps += make_epoch_stamps(float(match[1]) * 1e6)
    return tuple(stamps)


def make_boot_stamp(seconds: float) -> Stamp:
    """Return a stamp of seconds since boot."""
    return Stamp("boot", f"{seconds:.6f} s after boot")


def make_epoch_stamps(microseconds: float) -> tuple[Stamp, ...]:
    """Return stamps of microseconds since 1970, as journald counts; none if that is not a date."""
    try:
        moment = datetime.fromtimestamp(microseconds / 1e6, UTC)
    except (OverflowError, ValueError, OSError):
        return ()
    return (Stamp("epoch", moment.isoformat(timespec="microseconds")),)


CHUNK_BYTES = 1 << 16
MAX_LINE = 1 << 16
"""Longer lines are cut; kernel messages have 1 KiB at most, so such a log has no line breaks."""


_COMPRESSION_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
}
_CUTS = (b"},", b"\\n", b"NVRM:", b" ")


def read_lines(stream: ByteReader) -> Iterator[bytes]:
    """Yield the lines, without their ends."""
    rest = b""
    first = True
    while chunk := stream.read(CHUNK_BYTES):
        if first:
            first = False
            for magic, name in _COMPRESSION_MAGIC.items():
                if chunk.startswith(magic):
                    raise BadInput(
                        f"the log is compressed ({name})",
                        field="--dmesg",
                        hint="unpack it first, for example: zcat FILE"
                        " | compatgate health --dmesg -",
                    )
        rest += chunk
        *whole, rest = rest.split(b"\n")
        yield from whole
        while len(rest) > MAX_LINE:
            cut = MAX_LINE
            for mark in _CUTS:  # between two JSON records if possible
                place = rest.rfind(mark, MAX_LINE // 2, MAX_LINE)
                if place > 0:
                    cut = place if mark == b"NVRM:" else place + len(mark)
                    break
            yield rest[:cut]
            rest = rest[cut:]
    if rest:
        yield rest
