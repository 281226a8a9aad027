"""Lines of real kernel logs, read, counted and classified as the table says."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from tables import read_table

from compatgate.canary.health import Event, read_log
from compatgate.core.facts import Facts
from compatgate.core.versions import parse_version

CASES: list[dict[str, Any]] = read_table(Path(__file__).parent / "xid_lines.yaml")
every_case = pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])


def events_of(case: dict[str, Any], facts: Facts, ending: str = "\n") -> tuple[Event, ...]:
    driver = parse_version("driver", case["driver"]) if "driver" in case else None
    log = case["log"].replace("\n", ending)
    errors, _ = read_log(io.BytesIO(log.encode()), facts.xid, driver, facts.error_signatures)
    return errors.events()


def brief(event: Event) -> list[Any]:
    code = f"s{event.sxid}" if event.sxid is not None else event.xid
    return [event.severity, event.kind if code is None else code, event.device, event.count]


@every_case
def test_the_table_of_lines_holds(case: dict[str, Any], facts: Facts) -> None:
    events = events_of(case, facts)
    assert [brief(event) for event in events] == case["events"]
    for name, value in case.get("also", {}).items():
        assert getattr(events[0], name) == value


@every_case
def test_line_ends_of_windows_change_nothing(case: dict[str, Any], facts: Facts) -> None:
    assert [brief(e) for e in events_of(case, facts, "\r\n")] == case["events"]


@every_case
def test_a_log_that_was_written_twice_is_counted_once(case: dict[str, Any], facts: Facts) -> None:
    twice = {**case, "log": f"{case['log']}\n{case['log']}"}
    assert [brief(event) for event in events_of(twice, facts)] == case["events"]


def test_every_code_of_the_table_has_a_severity_a_meaning_and_something_to_do(
    facts: Facts,
) -> None:
    log = "".join(f"NVRM: Xid (PCI:0000:01:00): {x.code}, x\n" for x in facts.xid.xids)
    log += "".join(
        f"nvidia-nvswitch0: SXid (PCI:0000:02:00): {s.code}, x\n" for s in facts.xid.sxids
    )
    errors, _ = read_log(io.BytesIO(log.encode()), facts.xid)
    events = errors.events()
    assert len(events) == len(facts.xid.xids) + len(facts.xid.sxids)
    assert all(event.known and event.action and event.meaning for event in events)


ACTIONS: list[dict[str, Any]] = read_table(Path(__file__).parent / "xid_actions.yaml")


@pytest.mark.parametrize("case", ACTIONS, ids=[str(case["xid"]) for case in ACTIONS])
def test_the_codes_of_a_runbook_have_the_vendors_actions(
    case: dict[str, Any], facts: Facts
) -> None:
    known = facts.xid.by_xid[case["xid"]]
    assert [known.action, known.investigate, known.severity] == case["says"]
    log = f"NVRM: Xid (PCI:0000:01:00): {case['xid']}, {case['message']}\n"
    errors, _ = read_log(io.BytesIO(log.encode()), facts.xid, None, facts.error_signatures)
    (event,) = errors.events()
    rules = [rule for rule in facts.xid.rma if case["xid"] in rule.xids]
    assert [rule.id for rule in rules] == case.get("rma", [])
    assert all(rule.threshold in (event.rma or "") for rule in rules)
    assert (event.rma is None) is (not rules)
    assert event.guidance
    assert event.source
    assert event.source.startswith("https://docs.nvidia.com/")


def test_no_unrelated_error_is_an_event(facts: Facts) -> None:
    unrelated = read_table(Path(__file__).parent / "triage" / "unrelated.yaml")
    log = "\n".join(case["text"] for case in unrelated).encode()
    errors, _ = read_log(io.BytesIO(log), facts.xid, None, facts.error_signatures)
    assert errors.events() == ()


def test_texts_of_public_threads_are_never_named_wrong_with_certainty(facts: Facts) -> None:
    threads = read_table(Path(__file__).parent / "triage" / "threads.yaml")
    named = 0
    for case in threads:
        log = io.BytesIO(case["text"].encode())
        errors, _ = read_log(log, facts.xid, None, facts.error_signatures)
        kinds = {event.kind for event in errors.events() if event.confidence == "certain"}
        assert kinds <= {case["cause"]}, case["thread"]
        named += bool(kinds)
    assert named >= 15


def test_each_signature_of_a_log_is_found_in_its_sample(facts: Facts) -> None:
    searched = [one for one in facts.error_signatures.signatures if one.health]
    assert len(searched) >= 40
    for signature in searched:
        words = signature.sample
        if signature.id in ("cuda-802", "dso-version", "vgpu-guest-host"):  # a line has more
            words = f"nvidia: {words}"
        log = io.BytesIO(words.encode())
        errors, _ = read_log(log, facts.xid, None, facts.error_signatures)
        found = {event.kind: event for event in errors.events()}
        assert signature.cause in found, signature.id
        event = found[signature.cause]
        assert event.severity == signature.health, signature.id
        assert event.fixes, signature.id
        assert event.next, signature.id
        assert event.source, signature.id
