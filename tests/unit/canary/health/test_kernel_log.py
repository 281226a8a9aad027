"""The time of each Xid error, the same one whenever the log is read."""

from __future__ import annotations

from datetime import UTC, datetime
from io import BytesIO

from compatgate.canary.health.kernel_log import XidTime, list_xids, read_boot_time
from compatgate.canary.health.records import RecordReader

BOOT = datetime(2026, 11, 3, 9, tzinfo=UTC)
XID = b"NVRM: Xid (PCI:0000:9b:00): 79, pid=7, GPU has fallen off the bus."


def read(*lines: bytes, boot: datetime | None = BOOT):
    return list_xids(RecordReader().read(BytesIO(b"\n".join(lines))), boot)


def at(*place: int) -> datetime:
    return datetime(2026, 11, 3, *place, tzinfo=UTC)


def test_times_of_every_clock_that_names_its_zone_are_placed():
    journal = (
        b'{"MESSAGE": "%s", "_TRANSPORT": "kernel", "__REALTIME_TIMESTAMP": "1793698267000000"}'
    )
    found = read(
        b"[   60.500000] " + XID,
        b"2026-11-03T11:00:00,000000+01:00 " + XID.replace(b"79", b"48"),
        journal % XID.replace(b"79", b"119"),
    ).found
    assert found == (
        XidTime(79, at(9, 1, 0).replace(microsecond=500_000)),
        XidTime(48, at(10, 0)),
        XidTime(119, at(9, 31, 7)),
    )


def test_a_time_without_a_zone_is_said_and_not_guessed():
    for line in (b"Nov  3 09:31:07 gpu-1 kernel: " + XID, XID, b"2026-11-03 09:31:07 " + XID):
        one = read(line)
        assert (one.found, len(one.unplaced)) == ((), 1)
    assert read(b"[   60.5] " + XID, boot=None).unplaced


def test_the_same_line_counts_once_and_what_follows_it_not_at_all():
    follows = b"[   60.500100] NVRM: GPU 0000:9b:00.0: GPU has fallen off the bus."
    assert len(read(b"[   60.500000] " + XID, follows, b"[   60.500000] " + XID).found) == 1


def test_the_last_load_of_a_driver_is_found():
    load = b"[%d.000000] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23"
    assert read(load % 5, load % 120).loaded == at(9, 2)
    assert read(b"[    5.000000] " + XID).loaded is None


def test_the_kernel_says_when_it_booted(tmp_path):
    (tmp_path / "stat").write_text("cpu 1 2 3\nbtime 1793696400\nprocesses 5\n")
    assert read_boot_time(str(tmp_path / "stat")) == BOOT
    assert read_boot_time(str(tmp_path / "none")) is None
