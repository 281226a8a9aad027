"""Lines of the log are one event each, in the format asked for, and hold no secret."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Iterator

import pytest

from compatgate.kit import logs
from compatgate.kit.logs import JsonFormatter, LineWriter, TextFormatter, fields, redact

TOKEN = "cg_" + "s3cretS3cret-s3cret_s3cret"
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzM2NyZXQifQ.s3cret-s3cret_s3cret"


def record(message: str, *args: object, **said: object) -> logging.LogRecord:
    made = logging.LogRecord("compatgate.web", logging.WARNING, __file__, 1, message, args, None)
    made.__dict__ |= fields(**said)
    return made


@pytest.mark.parametrize(
    "text",
    [
        f"the token {TOKEN} came",
        f"the session cgs_{TOKEN[3:]} came",
        f"Authorization: Bearer {TOKEN}",
        "{'Authorization': 'Basic dXNlcjpzM2NyZXQ='}",
        f"got {JWT}",
        "Cookie: compatgate_session=s3cret; theme=dark",
        "the cookie __Host-compatgate_session=s3cret;",
        "postgresql://gate:s3cret@db.example/gate does not answer",
        "https://user:s3:cr@et@registry.example/v2/",
        "GET /callback?code=1&client_secret=s3cret&access_token=s3cret",
        "password=s3cret",
        "proxy-authorization: Negotiate s3cret",
    ],
)
def test_what_looks_like_a_secret_is_removed(text: str) -> None:
    for formatter in (TextFormatter(), JsonFormatter()):
        line = formatter.format(record("%s", text, note=text))
        assert "s3cret" not in line.lower()
        assert "dXNlcjp" not in line
        assert "cr@et" not in line


def test_other_text_is_left_as_it_is() -> None:
    text = "postgresql://gate@db.example/gate: 3 tokens, cuda=12.4, image r.example/a@sha256:0a1b"
    assert redact(text) == text


def test_a_traceback_has_no_secret_either() -> None:
    try:
        raise ValueError(f"cannot use {TOKEN}")
    except ValueError as error:
        made = record("defect")
        made.exc_info = (type(error), error, error.__traceback__)
    for formatter in (TextFormatter(), JsonFormatter()):
        line = formatter.format(made)
        assert "cannot use cg_***" in line
        assert "s3cret" not in line.lower()


def test_a_message_cannot_forge_a_line() -> None:
    made = record("bad name %s", "x\n2026-01-01 00:00:00,000 ERROR root: forged\x1b[31m")
    assert "\n" not in TextFormatter().format(made)
    assert "\x1b" not in TextFormatter().format(made)
    assert "\n" not in JsonFormatter().format(made)


def test_fields_are_members_of_json_and_words_of_text() -> None:
    made = record("refused", reason="expired", token="a b", nothing=None)
    line = json.loads(JsonFormatter().format(made))
    assert line["time"].endswith("Z")
    assert (line["level"], line["logger"], line["message"]) == (
        "warning",
        "compatgate.web",
        "refused",
    )
    assert (line["reason"], line["token"]) == ("expired", "a b")
    assert "nothing" not in line
    assert TextFormatter().format(made).endswith('refused reason=expired token="a b"')


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_lines_of_many_threads_are_written_whole(pipe: tuple[int, int]) -> None:
    reader, written = pipe
    writer = LineWriter(written)
    threads = [
        threading.Thread(target=lambda n=n: [writer.put(b"%d-%d\n" % (n, m)) for m in range(50)])
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.flush()
    lines = os.read(reader, 65536).decode().splitlines()
    assert sorted(lines) == sorted(f"{n}-{m}" for n in range(8) for m in range(50))


def test_nobody_waits_for_a_log_that_is_not_read(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, written = pipe
    monkeypatch.setattr(logs, "MAX_BYTES", 200_000)
    writer = LineWriter(written)
    for _ in range(1000):
        writer.put(b"x" * 999 + b"\n", urgent=True)
    assert writer.all_dropped >= 733  # 200 wait, and the pipe takes 64 KiB
    read, told = b"", 0
    while told < writer.all_dropped:  # in one line, or in two if the first was read meanwhile
        read += os.read(reader, 65536)
        told = sum(map(int, re.findall(rb"dropped (\d+) log lines", read)))
    assert told == writer.all_dropped


def test_a_child_process_writes_lines_of_its_own(pipe: tuple[int, int]) -> None:
    reader, written = pipe
    writer = LineWriter(written)
    writer.put(b"parent\n", urgent=True)
    writer.flush()
    child = os.fork()
    if child == 0:
        writer.put(b"child\n", urgent=True)
        writer.flush()
        os._exit(0)
    os.waitpid(child, 0)
    writer.put(b"parent again\n", urgent=True)
    writer.flush()
    assert os.read(reader, 4096) == b"parent\nchild\nparent again\n"
