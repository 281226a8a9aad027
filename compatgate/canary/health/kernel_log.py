"""Read this machine's kernel log: stored messages, new ones, and when Xid errors were logged.

A gate counts an error once by its time and code, so the same line must give the same time in every
report: seconds since boot are added to the kernel's own time of boot, which does not drift.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatch
from typing import Self

from msgspec import Struct

from compatgate.canary.health.events import LOADING, Event, KernelErrors
from compatgate.canary.health.gpu_errors import parse_sighting
from compatgate.canary.health.records import CLOCK_ORDER, Record, RecordReader, Stamp
from compatgate.core.facts.errors import ErrorTable
from compatgate.core.facts.xid import XidTable
from compatgate.core.versions import Version
from compatgate.discovery.driver import PROC, SYS, read_kernel_driver
from compatgate.discovery.machine import Root
from compatgate.errors import Unavailable, quote_error

KMSG = "/dev/kmsg"
_RECORD = 1 << 14
_PATIENCE_S = 30
_DMESG = ("dmesg",)
_JOURNAL = ("journalctl", "-k", "-b", "-o", "json", "--no-pager", "-q")
_HINT = (
    "run it as root or with CAP_SYSLOG (kernel.dmesg_restrict), "
    "or pipe the log: sudo dmesg | compatgate health --dmesg -"
)


def read_kernel_log(
    table: XidTable,
    driver: Version | None = None,
    signatures: ErrorTable | None = None,
    *,
    kmsg: str = KMSG,
) -> tuple[KernelErrors, str]:
    """Return the errors in this machine's stored kernel log, and the source of the log.

    ``driver`` is as for `KernelErrors`.
    """
    errors = KernelErrors(table, driver, signatures)
    records, name = read_kernel_records(kmsg=kmsg)
    errors.add_all(records)
    return errors, name


def read_kernel_records(*, kmsg: str = KMSG) -> tuple[list[Record], str]:
    """Return what this machine's stored kernel log says that may concern a GPU, and its source."""
    tried = []
    ways: tuple[tuple[str, Callable[[], Iterator[bytes]]], ...] = (
        (kmsg, lambda: _read_stored(kmsg)),
        ("dmesg", lambda: _read_output(_DMESG)),
        ("journalctl -k", lambda: _read_output(_JOURNAL)),
    )
    for name, lines in ways:
        reader = RecordReader()
        try:
            records = [record for line in lines() for record in reader.feed(line)]
        except OSError as error:
            tried.append(f"{name}: {quote_error(error)}")
            continue
        if reader.seen:
            return records, name
        tried.append(f"{name}: empty")
    raise Unavailable(
        f"this machine's kernel log cannot be read ({'; '.join(tried)})",
        field="kernel log",
        hint=_HINT,
    )


class KernelLog:
    """Collector of kernel messages of this host from a moment on.

    Reads ``/dev/kmsg`` if allowed, else the journal. If neither can be read, `problem` says so and
    there are no events, which does not mean that there were no errors.
    """

    def __init__(self, table: XidTable, driver: Version | None = None, *, kmsg: str = KMSG) -> None:
        self._errors = KernelErrors(table, driver)
        self._reader = RecordReader()
        self._since = time.time()
        self._fd: int | None = None
        self._journal = False
        self.problem: str | None = None
        try:
            self._fd = os.open(kmsg, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            self.close()
            self._without_kmsg(f"{kmsg}: {error.strerror}")

    def _without_kmsg(self, reason: str) -> None:
        try:
            for _ in _read_output((*_JOURNAL, "-n", "1")):
                self._journal = True
        except OSError as error:
            reason += f"; journalctl -k: {quote_error(error)}"
        if not self._journal:
            self.problem = f"new kernel messages cannot be read ({reason})"

    def events(self) -> tuple[Event, ...]:
        """Return every error so far, the most severe first; may be called again."""
        try:
            if self._fd is not None:
                lost: list[bool] = []
                for line in _read_new(self._fd, lost):
                    self._errors.add_all(self._reader.feed(line))
                if lost and not self._journal:
                    self._without_kmsg("messages were overwritten before they were read")
            if self._journal:
                for line in _read_output((*_JOURNAL, f"--since=@{self._since:.6f}")):
                    self._errors.add_all(self._reader.feed(line))
        except OSError as error:
            self.problem = f"new kernel messages cannot be read ({quote_error(error)})"
        return self._errors.events()

    def close(self) -> None:
        """Close the log."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _read_stored(path: str) -> Iterator[bytes]:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield from _read_new(fd, [])
    finally:
        os.close(fd)


def _read_new(fd: int, lost: list[bool]) -> Iterator[bytes]:
    """Yield records up to now; one read returns one record (Documentation/ABI/testing/dev-kmsg).

    ``lost`` gets an item where records were overwritten before they were read.
    """
    while True:
        try:
            record = os.read(fd, _RECORD)
        except BlockingIOError:
            return
        except BrokenPipeError:  # the next read goes on after what was lost
            lost.append(True)
            continue
        if not record:
            return
        yield from record.splitlines()


def _read_output(command: tuple[str, ...]) -> Iterator[bytes]:
    try:
        done = subprocess.run(  # noqa: S603 - fixed commands
            command, capture_output=True, timeout=_PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"no answer in {_PATIENCE_S} s") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise OSError(said[-1] if said else f"exit status {done.returncode}")
    for line in io.BytesIO(done.stdout):
        yield line.rstrip(b"\n")


PROC_STAT = "/proc/stat"
_BOOT_TIME = re.compile(r"^btime (\d+)$", re.MULTILINE)
_AFTER_BOOT = " s after boot"


class XidTime(Struct, frozen=True):
    """An Xid error and its time."""

    xid: int
    at: datetime


class XidTimes(Struct, frozen=True):
    """The Xid errors of a log, and when it says that a driver was loaded for the last time."""

    found: tuple[XidTime, ...]
    loaded: datetime | None = None
    unplaced: tuple[str, ...] = ()


def read_boot_time(path: str = PROC_STAT) -> datetime | None:
    """Return when this machine booted, by its kernel; None: it does not say."""
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            match = _BOOT_TIME.search(stream.read())
    except OSError:
        return None
    return datetime.fromtimestamp(int(match[1]), UTC) if match else None


def list_xids(records: Iterable[Record], boot: datetime | None) -> XidTimes:
    """Return the errors of a log with their times.

    Without ``boot``, the time of the boot, times since boot cannot be placed.
    """
    xids: dict[XidTime, None] = {}
    loaded: datetime | None = None
    unplaced = []
    for record in records:
        if record.quoted:
            continue
        at = _place(record.at, boot)
        if LOADING.search(record.text):
            loaded = at or loaded
        seen = parse_sighting(record.text)
        if seen is None or seen.kind != "xid" or seen.code is None or seen.follows:
            continue
        if at is None:
            unplaced.append(seen.text)
        else:
            xids[XidTime(seen.code, at)] = None
    return XidTimes(tuple(xids), loaded, tuple(unplaced))


def _place(stamps: Iterable[Stamp], boot: datetime | None) -> datetime | None:
    """Return a time in UTC; None: no stamp has a zone."""
    for stamp in sorted(stamps, key=lambda one: CLOCK_ORDER.index(one.clock)):
        if stamp.clock in ("epoch", "iso"):
            at = datetime.fromisoformat(stamp.text.replace(" UTC", "+00:00").replace(",", "."))
            if at.tzinfo is not None:
                return at.astimezone(UTC)
        elif stamp.clock == "boot" and boot is not None:
            seconds = float(stamp.text.removesuffix(_AFTER_BOOT))
            return boot + timedelta(seconds=seconds)
    return None


_NVIDIA = "0x10de"
_DISPLAY = "0x03"
_PCI = "/sys/bus/pci/devices"
_OTHER_DRIVERS = ("/etc/nv_tegra_release", "/dev/nvhost-gpu", "/dev/nvgpu", "/dev/dxg")
"""Files of the drivers of Jetsons and of WSL."""
HERE = Root()


def explain_absence(said: str | None, errors: bool, root: Root = HERE) -> str | None:
    """Return why no GPU could be judged, and what to do; None where a log says enough."""
    if said:
        return f"nvidia-smi lists no GPU: {said[:300]} (compatgate triage explains its words)"
    nodes = any(fnmatch(name, "nvidia[0-9]*") for name in root.list("/dev"))
    module = read_kernel_driver(proc=root.at(PROC), sys=root.at(SYS))
    if errors or nodes or module is not None or any(map(root.has, _OTHER_DRIVERS)):
        return None
    gpus = []
    for address in root.list(_PCI):
        folder = f"{_PCI}/{address}"
        of_nvidia = root.read(f"{folder}/vendor") == _NVIDIA
        if of_nvidia and root.read(f"{folder}/class").startswith(_DISPLAY):
            link = root.at(f"{folder}/driver")
            driver = os.path.basename(os.path.realpath(link)) if os.path.exists(link) else ""
            gpus.append(f"{address}: {driver or 'no driver'}")
    if gpus:
        return (
            f"{len(gpus)} NVIDIA GPU(s) on the PCI bus, and NVIDIA's driver is not loaded"
            f" ({', '.join(gpus[:4])}): install it, or load it with sudo modprobe nvidia and look"
            " again"
        )
    return (
        "this machine has no NVIDIA GPU on its PCI bus and no driver, so a quiet log"
        " proves nothing: run this on the GPU node (in a container, with its GPUs), or pipe the"
        " node's log: sudo dmesg | compatgate health --dmesg -"
    )
