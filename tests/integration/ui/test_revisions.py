"""The history of the matrix, as the server shows it."""

from __future__ import annotations

import pytest


@pytest.fixture
def changed(stocked, by, entry_body):
    """A second revision that changes an entry, and a third that deletes another."""
    body = entry_body("torch24-cu121", targets=["prod-a100"], components={"cuda": "12.1.*"})
    stocked.matrix.change("Entry", "torch24-cu121", body, by)
    stocked.matrix.delete("Entry", "tf215-cu122", by)
    return stocked


def test_revisions_are_listed_and_filtered(pages, changed):
    client = pages()
    shown = client.get("/ui/revisions").text
    assert shown.index("/ui/revisions/3") < shown.index("/ui/revisions/1")
    lines = client.get("/ui/revisions?kind=Entry&name=torch24-cu121&format=csv").text.splitlines()
    assert [line.partition(",")[0] for line in lines[1:]] == ["2", "1"]
    assert "No matches." in client.get("/ui/revisions?author=nobody").text


def test_a_revision_shows_each_field_before_and_after(pages, changed):
    shown = pages().get("/ui/revisions/2").text
    assert "<code>components.cudnn</code>" in shown
    assert "<del>9.1.*</del>" in shown
    assert "/ui/entries/torch24-cu121" in shown
    gone = pages().get("/ui/revisions/3").text
    assert "tensorflow: 2.15.*" in gone
    assert 'href="/ui/entries/tf215-cu122"' not in gone


def test_any_two_are_compared(pages, changed):
    client = pages()
    assert (
        "0 created, 1 changed, 1 deleted" in client.get("/ui/revisions/diff?older=1&newer=3").text
    )
    back = client.get("/ui/revisions/diff?older=3&newer=1").text
    assert "1 created, 1 changed, 0 deleted" in back
    assert "the older revision is on the right" in back
    assert "No differences." in client.get("/ui/revisions/diff?older=2&newer=2").text
    assert "0 created, 0 changed, 1 deleted" in client.get("/ui/revisions/diff").text
    assert "created, 0 changed" in client.get("/ui/revisions/diff?older=0").text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("revisions/99", 404),
        ("revisions/0", 404),
        ("revisions/99999999999999999999999", 404),
        ("revisions/x", 404),
        ("revisions/diff?older=1&newer=99", 404),
        ("revisions/diff?older=-1", 400),
        ("revisions/diff?older=99999999999999999999999", 400),
        ("revisions/1?skip=x", 400),
        ("revisions?kind=Thing", 400),
    ],
)
def test_what_is_not_there_or_makes_no_sense_is_said(pages, path, status):
    assert pages().get(f"/ui/{path}").status_code == status


def test_a_large_revision_is_shown_in_parts(pages, stocked, by, entry_body, source):
    from compatgate.documents.text import to_yaml

    made = [
        {"apiVersion": "compatgate.dev/v1", "kind": "Entry", **entry_body(f"e{n:03}")}
        for n in range(120)
    ]
    stocked.matrix.import_documents(source(to_yaml(made)), by)
    client = pages()
    first = client.get("/ui/revisions/2").text
    assert "documents 1 to 50 of 120" in first
    assert "/ui/revisions/2?skip=50" in first
    last = client.get("/ui/revisions/2?skip=100").text
    assert "e119" in last
    assert "documents 101 to 120 of 120" in last
    assert 'rel="next"' not in last.partition("documents 101")[2]


def test_an_empty_matrix_has_no_history_and_says_how_to_begin(rooms):
    from compatgate.web.app import create_app
    from compatgate.web.service import Settings

    client = create_app(rooms, Settings(anonymous=frozenset({"read"}))).test_client()
    for path, said in (
        ("revisions", "compatgate matrix import"),
        ("targets", "No targets yet."),
        ("entries", "No entries yet."),
        ("waivers", "No waivers"),
        ("decisions", "No decisions yet"),
        ("revisions/diff", "No differences."),
    ):
        answer = client.get(f"/ui/{path}")
        assert answer.status_code == 200, path
        assert said in answer.text, path
