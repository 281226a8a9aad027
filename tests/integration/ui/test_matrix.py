"""The page of the matrix: bad addresses, exports and hostile text."""

from __future__ import annotations

import pytest

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


@pytest.mark.parametrize(
    "query",
    ["columns=x", "top=-1", "top=x", "nonsense=1", "q=a&q=b", "sort=%00"],
)
def test_a_bad_address_says_what_is_wrong(pages, query):
    answer = pages().get(f"/ui/matrix?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0] in answer.text


def test_the_whole_table_is_exported(pages):
    answer = pages().get("/ui/matrix?format=csv")
    assert answer.content_type == "text/csv; charset=utf-8"
    lines = answer.text.splitlines()
    assert lines[0] == "stack,target,state,verdict,rule,why"
    assert any(line.startswith("torch24-cu124,prod-a100,") for line in lines)


@pytest.mark.parametrize("name", ["torch24-cu124", "torch24*"])
def test_the_rows_are_narrowed_by_the_name_of_an_entry(pages, name):
    lines = pages().get(f"/ui/matrix?q={name}&format=csv").text.splitlines()[1:]
    assert lines
    assert all(line.startswith("torch24") for line in lines)


def test_hostile_text_is_text(pages, stocked, by, entry_body):
    stocked.matrix.create("Entry", entry_body("made", reason=HOSTILE, replacement=HOSTILE), by)
    client = pages()
    for path in (
        "matrix?row=made&column=prod-a100",
        f"matrix?q={HOSTILE}",
        f"find?q={HOSTILE}",
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
