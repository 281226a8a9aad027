"""Lines of a stream, and the events that they make."""

from __future__ import annotations

import pytest
from gate_stand_in import StandIn, Told
from hypothesis import given
from hypothesis import strategies as st

from compatgate.client import Client
from compatgate.client.clients import LONGEST_LINE, LineSplitter
from compatgate.errors import DamagedContent, RequestTooLarge, Unavailable

END = 'event: end\ndata: {"state": "passed", "reason": ""}\n\n'
STATE = 'event: state\ndata: {"state": "running"}\n\n'


def output(number: int, text: str) -> str:
    return f'event: output\nid: {number}\ndata: {{"step": "a", "text": "{text}"}}\n\n'


def told(*events: str, cut: bool = False) -> Told:
    return Told(body="".join(events).encode(), cut=cut)


@given(st.lists(st.binary(max_size=8)))
def test_lines_are_the_same_however_they_are_cut(parts: list[bytes]) -> None:
    lines = LineSplitter()
    found = [line for part in parts for line in lines.feed(part)] + lines.rest()
    whole = b"".join(parts).split(b"\n")
    expected = [line.decode("utf-8", "replace") + "\n" for line in whole[:-1]]
    expected += [whole[-1].decode("utf-8", "replace")] if whole[-1] else []
    assert found == expected


def test_a_line_without_end_is_refused() -> None:
    lines = LineSplitter()
    for _ in range(LONGEST_LINE // 2**20):
        assert lines.feed(b"x" * 2**20) == []
    with pytest.raises(RequestTooLarge):
        lines.feed(b"x")


def test_a_stream_that_ends_too_early_is_taken_up_where_it_ended(
    client: Client, gate: StandIn
) -> None:
    gate.tell(
        told(STATE, output(7, "one"), ": alive\n\n"),
        told(STATE, output(9, "two"), "event: output\nid: 11\nda", cut=True),
        Told(503),
        told(output(11, "three"), END),
    )
    events = list(client.follow_run("run_1", step="a"))
    assert [e.data["text"] for e in events if e.name == "output"] == ["one", "two", "three"]
    assert events[-1].name == "end"
    afters = [asked.path.rpartition("after=")[2] for asked in gate.asked]
    assert afters == ["0", "7", "9", "9"]
    assert gate.asked[0].headers["Accept"] == "text/event-stream"


def test_a_stream_that_says_nothing_is_not_asked_for_for_ever(
    client: Client, gate: StandIn
) -> None:
    gate.tell(told())
    with pytest.raises(Unavailable, match="without an event"):
        list(client.follow_run("run_1"))
    assert len(gate.asked) == 1


def test_an_error_of_the_gate_ends_the_stream(client: Client, gate: StandIn) -> None:
    gate.tell(told('event: error\ndata: {"detail": "the database does not answer"}\n\n'))
    (event,) = client.follow_run("run_1")
    assert (event.name, event.data["detail"]) == ("error", "the database does not answer")


def test_what_is_no_event_is_refused(client: Client, gate: StandIn) -> None:
    gate.tell(told("event: output\ndata: <html>\n\n"))
    with pytest.raises(DamagedContent, match="is a gate's"):
        list(client.follow_run("run_1"))
