"""Logs of any size and state of repair; codes that depend on the driver; an operator's own."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.canary.health import Event, read_log
from compatgate.catalog import load_facts
from compatgate.core.facts import Facts
from compatgate.core.versions import Version, parse_version
from compatgate.errors import BadInput

OFF = "NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus."
NETIR = (
    "NVRM: Xid (PCI:0000:04:00): 149, NETIR_INT Fatal XC0 i0 Link 00 ({info} 0x00000000 0x0 0x0)"
)


def events(log: str | bytes, facts: Facts, driver: str | None = None) -> tuple[Event, ...]:
    data = log.encode() if isinstance(log, str) else log
    return read_log(io.BytesIO(data), facts.xid, version(driver))[0].events()


def version(driver: str | None) -> Version | None:
    return parse_version("driver", driver) if driver else None


# --- size and damage ------------------------------------------------------------------------


def test_a_message_beside_a_value_of_absurd_depth_is_read(facts: Facts) -> None:
    nested = "[" * 2000 + "]" * 2000
    found = events(f'{{"lines": [{{"MESSAGE": "{OFF}", "more": {nested}}}', facts)
    assert [event.xid for event in found] == [79]


class Endless:
    """A log of so many bytes that is never in memory."""

    def __init__(self, block: bytes, times: int) -> None:
        self.block, self.left = block, times

    def read(self, size: int) -> bytes:
        if not self.left:
            return b""
        self.left -= 1
        return self.block


@pytest.mark.parametrize("ending", [b"\n", b" ", b"\0"])
def test_a_huge_log_needs_little_memory_with_and_without_line_breaks(
    facts: Facts, ending: bytes
) -> None:
    table = facts.xid
    block = (b"Jan  2 10:00:01 h kernel: nothing of interest here" + ending) * 1000
    tracemalloc.start()
    errors, _ = read_log(Endless(block + OFF.encode() + ending, 40), table)  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.2 * 2**20, "less than the log's 2 MiB"
    assert {event.xid for event in errors.events()} == {79}


def test_a_storm_of_different_errors_is_bounded(facts: Facts) -> None:
    lines = (
        f"[{n}.5] NVRM: Xid (PCI:0000:9b:00): 13, pid={n}, name=a, Graphics Exception {n}\n"
        for n in range(120_000)
    )
    found = events("".join(lines), facts)
    assert [event.xid for event in found] == [13]
    assert found[0].count == 120_000


@pytest.mark.parametrize(
    "packed", [gzip.compress(OFF.encode(), mtime=0), b"\xfd7zXZ\0...", b"BZh91AY"]
)
def test_a_compressed_log_is_refused_because_it_would_look_clean(
    facts: Facts, packed: bytes
) -> None:
    with pytest.raises(BadInput, match="compressed"):
        events(packed, facts)


def test_what_is_no_text_is_not_called_clean(facts: Facts) -> None:
    noise = bytes(range(128, 256)) * 100
    assert read_log(io.BytesIO(noise), facts.xid)[1] is not None
    assert read_log(io.BytesIO(b""), facts.xid)[1] is not None
    assert read_log(io.BytesIO(b"hello\n"), facts.xid)[1] is None


def test_an_error_among_damaged_bytes_is_found(facts: Facts) -> None:
    log = b"\0\0\0\xff\xfe" * 50 + b"\n\x00\x00" + OFF.encode() + b"\xff\n" + b"\0" * 300
    assert [event.xid for event in events(log, facts)] == [79]


def test_records_of_json_that_was_cut_are_still_read(facts: Facts) -> None:
    whole = json.dumps({"dmesg": [{"pri": 4, "time": n / 10, "msg": OFF} for n in range(5000)]})
    found = events(whole[:-30], facts)
    assert [event.xid for event in found] == [79]
    assert found[0].count >= 4900


@given(st.binary(max_size=400))
def test_no_bytes_break_the_reader(facts: Facts, data: bytes) -> None:
    with suppress(BadInput):  # it begins like a compressed file
        events(data, facts)


@given(
    st.sampled_from([OFF, "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20034, Fatal, Link 28", "{"]),
    st.lists(st.tuples(st.integers(0, 200), st.text(max_size=4)), max_size=4),
)
def test_no_damage_of_a_line_breaks_the_reader(
    facts: Facts, line: str, damage: list[tuple[int, str]]
) -> None:
    for position, text in damage:
        line = line[:position] + text + line[position:]
    for event in events(f"{line}\n{OFF}\n", facts):
        assert event.count >= 1
        json.dumps(msgspec.to_builtins(event))


@given(st.permutations([0, 1, 2, 3, 4]), st.integers(1, 3))
def test_neither_order_nor_repetition_changes_what_is_counted(
    facts: Facts, order: list[int], times: int
) -> None:
    lines = [f"[{n}.25] NVRM: Xid (PCI:0000:0{n % 2}:00): 79, GPU has fallen" for n in range(5)]
    found = events("\n".join([lines[n] for n in order] * times), facts)
    assert {event.device: event.count for event in found} == {"0000:00:00": 3, "0000:01:00": 2}


# --- the driver -----------------------------------------------------------------------------


def test_the_same_register_is_another_unit_since_r575(facts: Facts) -> None:
    before = NETIR.format(info="0x00000006")  # NETIR of the first layout
    since = NETIR.format(info="0x00000018")
    for line, driver, decoded in (
        (before, "570.124.06", True),
        (before, "580.65.06", False),
        (since, "570.124.06", False),
        (since, "580.65.06", True),
    ):
        (event,) = events(line, facts, driver)
        assert event.severity == "fatal"
        assert ("SYMPATHETIC" in (event.investigate or "")) is decoded, (line, driver)


def test_the_driver_comes_from_the_log_and_a_stated_one_wins(facts: Facts) -> None:
    loading = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build"
    log = f"{loading}\n{NETIR.format(info='0x00000018')}"
    (event,) = events(log, facts)
    assert event.driver == "580.65.06"
    assert "SYMPATHETIC" in (event.investigate or "")
    (event,) = events(log, facts, "570.124.06")
    assert event.driver == "570.124.06"
    assert "SYMPATHETIC" not in (event.investigate or "")


def test_a_promoted_error_is_fatal(facts: Facts) -> None:
    line = "NVRM: Xid (PCI:0000:04:00): 145, RLW_RXPIPE {} XC0 i0 Link 00 ({} 0x00000001 0x0 0x0)"
    plain = events(line.format("Nonfatal", "0x00000006"), facts, "580.65.06")
    promoted = events(line.format("Fatal", "0x00000086"), facts, "580.65.06")
    assert (plain[0].severity, plain[0].action[:6]) == ("warning", "IGNORE")
    assert (promoted[0].severity, promoted[0].action[:9]) == ("fatal", "RESET_GPU")


def test_registers_that_do_not_fit_leave_it_to_the_message(facts: Facts) -> None:
    line = "NVRM: Xid (PCI:0000:04:00): 147, TREX {} XC0 i0 Link 00 (0x3ff 0x7)"
    assert events(line.format("Fatal"), facts)[0].severity == "fatal"
    assert events(line.format("Nonfatal"), facts)[0].severity == "warning"
    (silent,) = events("NVRM: Xid (PCI:0000:04:00): 147, TREX", facts)
    assert silent.severity == "warning"
    assert "does not say" in silent.meaning


# --- operators' own -------------------------------------------------------------------------

OVERLAY = """\
schema: facts/xid/v1
xids:
- xid: 43
  severity: fatal
- xid: 13
  by_driver:
  - driver: ">=535,<536"
    severity: info
    nvidia_immediate_action: IGNORE
    source: our fleet
    confidence: derived
- xid: 999
  mnemonic: OURS
  meaning: what we saw
  unused_in_current_catalog: false
  nvidia_immediate_action: RESET_GPU
  nvidia_investigatory_action: null
  severity_class: gpu-reset
  source: our fleet
  confidence: derived
"""


def test_operators_override_severity_action_and_driver_range(tmp_path: Path, facts: Facts) -> None:
    path = tmp_path / "xid.yaml"
    path.write_text(OVERLAY)
    own = load_facts([str(path)])
    line = "NVRM: Xid (PCI:0000:04:00): {}, x"
    assert events(line.format(43), facts)[0].severity == "info"
    assert events(line.format(43), own)[0].severity == "fatal"
    assert events(line.format(13), own)[0].severity == "warning"
    assert events(line.format(13), own, "535.104.05")[0].severity == "info"
    assert events(line.format(13), own, "550.54.15")[0].severity == "warning"
    assert events(line.format(999), own)[0].meaning == "what we saw"


def test_a_driver_range_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "xid.yaml"
    path.write_text(OVERLAY.replace(">=535,<536", ">=nonsense"))
    with pytest.raises(BadInput, match="by_driver"):
        load_facts([str(path)])
