"""Earlier choices and records: kept by what they depend on, and looked at before they count."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from compatgate.core.facts.records import Record
from compatgate.discovery import cache
from compatgate.discovery.cache import WheelCache, read_choice, write_choice

WHEEL = "fast-1.0-cp312-cp312-linux_x86_64.whl"
DIGEST, OTHER = "1a" * 32, "2b" * 32


def kept(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_choice_is_found_by_everything_that_it_depends_on(tmp_path):
    write_choice(str(tmp_path), ["fast", "1.0"], WHEEL, DIGEST)
    found = read_choice(str(tmp_path), ["fast", "1.0"])
    assert found is not None
    assert (found.wheel, found.sha256) == (WHEEL, DIGEST)
    assert read_choice(str(tmp_path), ["fast", "1.1"]) is None
    assert read_choice(None, ["fast", "1.0"]) is None


def test_an_old_choice_counts_only_where_no_index_can_be_asked(tmp_path, monkeypatch):
    write_choice(str(tmp_path), ["fast"], WHEEL, DIGEST)
    now = cache.time.time()
    monkeypatch.setattr(cache.time, "time", lambda: now + 8 * 86400)
    assert read_choice(str(tmp_path), ["fast"]) is None
    assert read_choice(str(tmp_path), ["fast"], aged=True) is not None


@pytest.mark.parametrize("damage", [b"", b"{}", b"\x00" * 100])
def test_a_damaged_file_is_none(tmp_path, damage):
    write_choice(str(tmp_path), ["fast"], WHEEL, DIGEST)
    (path,) = kept(tmp_path)
    path.write_bytes(damage)
    assert read_choice(str(tmp_path), ["fast"]) is None


def test_a_whole_file_of_another_form_is_none(tmp_path):
    write_choice(str(tmp_path), ["fast"], WHEEL, DIGEST)
    (path,) = kept(tmp_path)
    body = b'{"wheel": 1}'
    path.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    assert read_choice(str(tmp_path), ["fast"]) is None


def test_a_record_under_another_wheels_digest_is_none(tmp_path):
    folders = tmp_path / "one", tmp_path / "other"
    for folder, digest in zip(folders, (DIGEST, OTHER), strict=True):
        WheelCache(str(folder), digest).keep_record(Record("fast", "1.0", WHEEL, sha256=digest))
    (mine,), (theirs,) = map(kept, folders)
    assert WheelCache(str(folders[0]), DIGEST).record() is not None
    shutil.copy(theirs, mine)
    assert WheelCache(str(folders[0]), DIGEST).record() is None
