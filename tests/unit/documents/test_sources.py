"""Files, folders and standard input."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from compatgate.documents.sources import read_paths
from compatgate.errors import BadInput


def test_a_folder_stands_for_its_documents_in_order(tmp_path: Path) -> None:
    for name in (
        "b.yaml",
        "a.yml",
        "c.json",
        "notes.md",
        ".hidden.yaml",
        "sub/d.yaml",
        ".git/e.yaml",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    names = [str(Path(s.file).relative_to(tmp_path)) for s in read_paths([tmp_path])]
    assert names == ["a.yml", "b.yaml", "c.json", "sub/d.yaml"]


def test_a_file_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("{}")
    assert len(read_paths([tmp_path, tmp_path / "a.yaml"])) == 1


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a: 1")))
    (source,) = read_paths(["-"])
    assert (source.file, source.text) == ("<stdin>", "a: 1")


def test_a_byte_order_mark_is_not_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbfa: 1")
    assert read_paths([tmp_path / "a.yaml"])[0].text == "a: 1"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda p: None, "No such file"),
        (lambda p: p.mkdir(), "no documents below"),
        (lambda p: p.write_bytes(b"a: 1\nb: \xff\n"), ":2: not UTF-8"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, make: object, says: str) -> None:
    path = tmp_path / "x.yaml"
    make(path)  # type: ignore[operator]
    with pytest.raises(BadInput, match=says):
        read_paths([path])
