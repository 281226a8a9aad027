"""Only what is asked for is read, once, and only from files that belong together."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from compatgate import catalog
from compatgate.catalog import compiled as kept
from compatgate.catalog import library, load_facts, read_source, sources
from compatgate.core.facts import Facts
from compatgate.errors import CatalogError, NotFound

pytestmark = pytest.mark.usefixtures("cache")


def load_anew(overlays: list[str]) -> Facts:
    """Load the facts as a new process does."""
    catalog._loaded = None
    return load_facts(overlays)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files that were parsed."""
    seen: list[str] = []
    parse = sources.parse

    def spy(data: bytes, path: str) -> dict[str, object]:
        seen.append(Path(path).name)
        return parse(data, path)

    monkeypatch.setattr(sources, "parse", spy)
    return seen


def test_a_question_about_torch_reads_torch_only(parsed: list[str], cache: Path) -> None:
    facts = load_anew([])
    assert parsed == []
    facts.framework("torch")
    assert parsed == ["torch.yaml"]
    tables = {path.name.split(".")[0] for path in cache.iterdir()} - {"digests"}
    assert tables == {"framework-torch"}


def test_the_second_process_parses_nothing(parsed: list[str]) -> None:
    first = load_anew([]).cuda_driver
    parsed.clear()
    assert load_anew([]).cuda_driver == first
    assert parsed == []


def test_a_table_is_read_once(parsed: list[str]) -> None:
    facts = load_anew([])
    assert facts.nccl is facts.nccl
    assert facts.framework("jax") is facts.framework("jax")
    assert parsed == ["nccl.yaml", "jax.yaml"]


def test_a_cached_table_of_other_content_is_made_anew(parsed: list[str], cache: Path) -> None:
    known = load_anew([]).nccl
    path = next(cache.glob("nccl.*"))
    path.write_bytes(b"not a table")
    parsed.clear()
    assert load_anew([]).nccl == known
    assert parsed == ["nccl.yaml"]


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load_anew([]).cuda_driver.toolkits


def test_the_code_that_makes_tables_is_where_the_cache_looks_for_it() -> None:
    for name in kept._CODE:
        assert os.path.exists(os.path.join(kept._PACKAGE, *name.split("/"))), name


def test_old_forms_of_a_table_are_forgotten(cache: Path, overlay: Callable[..., str]) -> None:
    for month in range(1, 13):
        text = f"branches:\n- {{branch: 580, eol: 2027-{month:02d}-01}}\n"
        load_anew([overlay(text, "driver_branches.yaml")])
    assert len(list(cache.glob("driver_branches.*"))) == 8


def test_a_framework_without_facts_has_no_table() -> None:
    assert load_anew([]).framework("flash-attn") is None


def test_the_digest_is_that_of_the_files() -> None:
    assert load_anew([]).digest == load_anew([]).digest
    assert load_anew([]).digest.startswith("sha256:")
    assert len(load_anew([]).digest) == len("sha256:") + 64


def test_digests_are_remembered_until_a_file_changes(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "nccl.yaml"
    file.write_text("one")
    paths = {"nccl": str(file)}
    monkeypatch.setattr(kept, "_SETTLED_S", -1)
    first = kept.file_digests(paths)
    with monkeypatch.context() as reading:
        reading.setattr(kept, "file_digest", lambda path: pytest.fail(f"reads {path}"))
        assert kept.file_digests(paths) == first
    before = file.stat()
    file.write_text("two")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert kept.file_digests(paths) == {"nccl": sha256(b"two").hexdigest()} != first


def test_digests_of_a_file_that_changed_just_now_are_not_kept(tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "nccl.yaml"
    file.write_text("one")
    kept.file_digests({"nccl": str(file)})
    assert not list(cache.glob("digests.*"))


def test_sources_are_the_files_and_not_how_they_are_checked() -> None:
    assert {"cuda_driver", "frameworks/torch", "xid", "require_cuda"} <= set(sources.names())
    assert "exceptions" not in sources.names()


def test_a_source_is_given_whole() -> None:
    document = read_source("require_cuda", [])
    assert document["schema"] == "facts/require_cuda/v1"
    assert document["images"][0]["value"] == "cuda>=9.0"


def test_a_source_that_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFound, match="no facts are named 'cudadriver'"):
        read_source("cudadriver", [])


class TestInstalled:
    def test_an_installation_parses_nothing(self, installed: Path, parsed: list[str]) -> None:
        facts = load_anew([])
        assert facts.framework("torch") is not None
        assert facts.gpus.gpus
        assert read_source("xid", [])["xids"]
        assert parsed == []

    def test_it_writes_nothing(self, installed: Path, cache: Path) -> None:
        assert load_anew([]).cudnn.releases
        assert not cache.exists()

    def test_its_digest_is_that_of_the_checkout(
        self, built: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        checkout = load_anew([]).digest
        monkeypatch.delenv(sources.ROOT)
        monkeypatch.setattr("compatgate.resources._PACKAGE", str(built.parent))
        monkeypatch.setattr(
            "compatgate.resources.find_packaged", lambda *p: str(built.joinpath(*p))
        )
        assert load_anew([]).digest == checkout

    def test_a_changed_source_is_refused(self, installed: Path) -> None:
        path = installed / "matrix" / "facts" / "nccl.yaml"
        path.write_text(path.read_text().replace("2.27.7", "2.27.8"))
        facts = load_anew([])
        assert facts.cuda_driver.toolkits
        with pytest.raises(CatalogError, match=r"nccl.yaml: does not match the facts"):
            _ = facts.nccl

    def test_a_changed_table_is_refused(self, installed: Path) -> None:
        path = installed / "catalog" / "nccl.msgpack"
        path.write_bytes(path.read_bytes().replace(b"2.27.7", b"2.27.8"))
        with pytest.raises(CatalogError, match=r"nccl.msgpack: does not match the facts"):
            _ = load_anew([]).nccl

    def test_a_missing_table_is_refused(self, installed: Path) -> None:
        (installed / "catalog" / "nccl.msgpack").unlink()
        with pytest.raises(CatalogError, match=r"nccl.msgpack"):
            _ = load_anew([]).nccl

    def test_a_damaged_manifest_is_refused(self, installed: Path) -> None:
        (installed / "catalog" / "manifest.msgpack").write_bytes(b"\x00")
        with pytest.raises(CatalogError, match=r"reinstall compatgate"):
            load_anew([])

    def test_another_folder_that_tests_name_is_read_instead(
        self, installed: Path, tmp_path: Path, parsed: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        carried = load_anew([])
        shutil.copytree(sources.facts_dir(), tmp_path / "facts")
        (tmp_path / "facts" / "frameworks" / "torch.yaml").unlink()
        monkeypatch.setenv(sources.ROOT, str(tmp_path / "facts"))
        other = load_anew([])
        assert other.nccl == carried.nccl
        assert parsed == ["nccl.yaml"]
        assert carried.framework_names - other.framework_names == {"torch"}
        assert other.digest != carried.digest

    def test_an_overlay_touches_its_own_table_only(
        self, installed: Path, parsed: list[str], overlay: Callable[..., str]
    ) -> None:
        path = overlay("schema: facts/nccl/v1\nreleases: [{version: 2.27.7, remove: true}]\n")
        facts = load_anew([path])
        assert all(r.version.text != "2.27.7" for r in facts.nccl.releases)
        assert facts.framework("torch") is not None
        assert sorted(set(parsed)) == ["nccl.yaml", "ours.yaml"]


def test_a_table_that_does_not_exist_is_a_mistake_in_the_program() -> None:
    with pytest.raises(KeyError):
        library.Library().compiled("framework/nothing")
