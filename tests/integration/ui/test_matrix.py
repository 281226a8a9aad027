"""The map of the matrix, as the server makes it."""

from __future__ import annotations

import pytest

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


@pytest.mark.parametrize(
    "query",
    ["rows=nothing", "top=-1", "top=x", "status=good", "nonsense=1", "q=a&q=b", "sort=%00"],
)
def test_a_bad_address_says_what_is_wrong(pages, query):
    answer = pages().get(f"/ui/matrix?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0] in answer.text


def test_the_whole_map_is_exported(pages):
    answer = pages().get("/ui/matrix?format=csv")
    assert answer.content_type == "text/csv; charset=utf-8"
    lines = answer.text.splitlines()
    assert lines[0] == "entry,target,status,open,why"
    assert any(line.startswith("torch24-cu124,prod-a100,blessed") for line in lines)


def test_a_cell_that_is_gone_is_an_empty_one(pages):
    answer = pages().get("/ui/matrix?row=gone&column=prod-a100")
    assert answer.status_code == 200


def test_hostile_text_is_text(pages, stocked, by, entry_body):
    stocked.matrix.create("Entry", entry_body("made", reason=HOSTILE, replacement=HOSTILE), by)
    client = pages()
    for path in (
        "matrix?row=made&column=prod-a100",
        f"matrix?q={HOSTILE}",
        f"search?q={HOSTILE}",
        f"ask?target={HOSTILE}&stack={HOSTILE}",
        f"ask?gpu={HOSTILE}&stack=cuda%3D12.4&image={HOSTILE}",
        f"what-if?target=prod-a100&driver={HOSTILE}",
        f"{HOSTILE}",
        f"matrix?{HOSTILE}=1",
    ):
        text = client.get(f"/ui/{path}").text
        assert "<script>alert" not in text, path
        assert "<img src=x" not in text, path


def test_an_exported_value_is_no_formula(pages, stocked, by, entry_body):
    body = entry_body("made", components={"cuda": "12.4.*", "driver": ">=580.95.05"})
    stocked.matrix.create("Entry", body, by)
    text = pages().get("/ui/matrix?format=csv").text
    assert not any(
        cell.startswith(("=", "+", "@")) for line in text.splitlines() for cell in line.split(",")
    )


@pytest.mark.parametrize("method", ["post", "put", "delete"])
def test_other_methods_are_refused(pages, method):
    assert getattr(pages(), method)("/ui/matrix").status_code == 405
