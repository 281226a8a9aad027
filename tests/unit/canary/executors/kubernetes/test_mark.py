"""A log that is read again in parts gives each line once, or says that some are lost."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from compatgate.canary.executors.kubernetes.job_view import LogPosition
from compatgate.canary.protocol.jsonl import LOST_LINE


def _log(texts: Sequence[str]) -> list[bytes]:
    return [f"2026-01-01T00:00:{n:02d}.5Z {text}\n".encode() for n, text in enumerate(texts)]


def _read(parts: Sequence[Sequence[bytes]]) -> bytes:
    mark = LogPosition()
    found = []
    for part in parts:
        mark.rewind()
        for line in part:
            found += mark.new(line)
        found += mark.end()
    return b"".join(found)


@given(
    st.lists(st.sampled_from(["a", "b", ""]), max_size=12),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=5),
)
def test_whatever_is_read_again_comes_once(texts: list[str], cuts: list[tuple[int, int]]) -> None:
    log = _log(texts)
    parts, reached = [], 0
    for start, stop in cuts:
        end = min(stop, len(log))
        last = max(reached - 1, 0)
        parts.append(log[min(start, last) : max(end, reached)])
        reached = max(end, reached)
    parts.append(log[: len(log)])
    assert _read(parts) == "".join(f"{text}\n" for text in texts).encode()


def test_lines_of_the_same_instant_and_text_are_counted() -> None:
    line = b"2026-01-01T00:00:00Z same\n"
    assert _read([[line, line], [line, line, line]]) == b"same\nsame\nsame\n"


def test_a_log_without_the_last_line_has_lost_some() -> None:
    log = _log("abcdef")
    assert _read([log[:2], log[4:]]) == b"a\nb\n" + LOST_LINE + b"e\nf\n"


def test_a_log_that_is_empty_now_has_lost_some() -> None:
    log = _log("ab")
    assert _read([log, []]) == b"a\nb\n" + LOST_LINE


def test_a_fraction_is_compared_as_a_number() -> None:
    early, late = b"2026-01-01T00:00:00.9Z a\n", b"2026-01-01T00:00:00.95Z b\n"
    assert _read([[early], [late]]) == b"a\n" + LOST_LINE + b"b\n"


def test_a_line_without_a_time_comes_as_it_is() -> None:
    assert _read([[b"unable to retrieve container logs\n"]]) == (
        b"unable to retrieve container logs\n"
    )
