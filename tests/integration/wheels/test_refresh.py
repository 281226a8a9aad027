"""``scripts/refresh_facts.py`` against an index: what is new, what is written, what goes on."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import refresh_facts
from catalogue import own_cache
from gpu_binaries import make_entry, make_fatbin
from tables import read_table
from wheels import make_shared_object, make_wheel

from compatgate.catalog import load_facts
from compatgate.cli.main import main

CODE = make_fatbin(make_entry("sass", 80), make_entry("ptx", 90, isa=(8, 7)))
MAY, JUNE, JULY = "2026-05-01T10:00:00Z", "2026-06-01T10:00:00Z", "2026-07-01T10:00:00Z"
X86, ARM = "manylinux_2_28_x86_64", "manylinux_2_28_aarch64"


def file_name(version: str, python: str = "cp312", platform: str = X86, build: str = "") -> str:
    return f"gpu_pkg-{version}-{build}{python}-{python}-{platform}.whl"


@pytest.fixture
def add(server):
    """Upload a wheel with GPU code."""

    def upload(version: str, when: str = MAY, **tags: str) -> str:
        name = file_name(version, **tags)
        library = make_shared_object(needs=["libcudart.so.12"], code=CODE)
        content = make_wheel(
            {"gpu_pkg/_C.so": library, "gpu_pkg/name.txt": name.encode()},
            name="gpu-pkg",
            version=version,
            requires=["torch==2.9.1"],
        )
        server.add(name, content)
        server.uploads[name] = when
        return name

    return upload


@pytest.fixture
def refresh(server, tmp_path, monkeypatch, capsys):
    """Run the command; gives its status, JSON and what it said."""
    monkeypatch.setenv("XDG_CACHE_HOME", own_cache(tmp_path / "cache"))

    def run(*arguments: str, index: bool = True) -> tuple[int, dict[str, Any], str]:
        where = ["--index", server.index] if index else []
        status = refresh_facts.main(["--format", "json", *where, *arguments])
        printed = capsys.readouterr()
        return status, json.loads(printed.out) if printed.out else {}, printed.err

    return run


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def known(add, refresh, tmp_path) -> list[str]:
    """Facts that know release 1.0, as options of the command."""
    add("1.0")
    add("1.0", platform=ARM)
    first = tmp_path / "known"
    assert refresh("gpu-pkg", "--out", str(first))[0] == 0
    return ["--facts", str(first)]


def new(document: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    return [
        (news["kind"], news["version"], [wheel["name"] for wheel in news["wheels"]])
        for news in document["new"]
    ]


def records(out: Path) -> list[dict[str, Any]]:
    return read_table(out / "packages" / "gpu-pkg.yaml")["records"]


# --- what is new ---------------------------------------------------------------------------


def test_nothing_is_new_where_the_facts_know_everything(refresh, known):
    assert refresh("gpu-pkg", "--check", *known) == (
        0,
        {"new": [], "left_out": {}, "not_told": [], "written": [], "problems": []},
        "",
    )


def test_a_check_names_a_new_release_measures_nothing_and_is_1(refresh, add, known, server):
    names = [add("1.1", JUNE), add("1.1", JUNE, platform=ARM)]
    add("1.1", JUNE, python="cp313")
    server.sent = 0
    status, document, _ = refresh("gpu-pkg", "--check", *known)
    assert (status, new(document)) == (1, [("release", "1.1", names)])
    assert document["new"][0]["uploaded"] == JUNE
    assert document["new"][0]["facts"] == "packages/gpu-pkg"
    assert server.sent == 0


def test_a_python_that_is_added_later_is_new_and_one_of_the_same_upload_is_not(refresh, add, known):
    add("1.0", "2026-05-01T11:00:00Z", python="cp313")
    name = add("1.0", JUNE, python="cp314")
    status, document, _ = refresh("gpu-pkg", "--check", *known)
    assert (status, new(document)) == (1, [("wheel", "1.0", [name])])


def test_a_rebuild_in_the_same_place_is_new_by_its_digest(refresh, add, known, server):
    name = file_name("1.0")
    library = make_shared_object(needs=["libcudart.so.13"], code=CODE)
    server.files[name] = make_wheel({"gpu_pkg/_C.so": library}, name="gpu-pkg")
    status, document, _ = refresh("gpu-pkg", "--check", *known)
    assert (status, new(document)) == (1, [("rebuild", "1.0", [name])])


def test_a_rebuild_with_a_build_number_is_new_by_its_date(refresh, add, known):
    name = add("1.0", JUNE, build="1-")
    assert new(refresh("gpu-pkg", "--check", *known)[1]) == [("wheel", "1.0", [name])]


def test_a_build_for_another_cuda_is_new(refresh, add, known):
    name = add("1.0+cu130", JUNE)
    status, document, _ = refresh("gpu-pkg", "--check", *known)
    assert (status, new(document)) == (1, [("build", "1.0+cu130", [name])])


def test_yanked_wheels_and_pre_releases_are_new_only_when_asked_for(refresh, add, known, server):
    yanked, pre = add("1.1", JUNE), add("2.0rc1", JULY)
    server.yanked.add(yanked)
    assert refresh("gpu-pkg", "--check", *known)[0] == 0
    assert new(refresh("gpu-pkg", "--check", "--pre", *known)[1]) == [("release", "2.0rc1", [pre])]
    asked = refresh("gpu-pkg", "--check", "--yanked", *known)[1]
    assert new(asked) == [("release", "1.1", [yanked])]


def test_a_gap_among_older_releases_is_new_only_when_it_is_asked_for(refresh, add, known):
    name = add("0.9", "2026-04-01T10:00:00Z")
    assert refresh("gpu-pkg", "--check", *known)[0] == 0
    named = refresh("gpu-pkg==0.9", "--check", *known)[1]
    assert new(named) == [("release", "0.9", [name])]
    since = refresh("gpu-pkg", "--check", "--since", "2026-03-01", *known)[1]
    assert new(since) == [("release", "0.9", [name])]


def test_a_late_release_of_an_older_line_is_new(refresh, add, known):
    name = add("0.9.1", JUNE)
    assert new(refresh("gpu-pkg", "--check", *known)[1]) == [("release", "0.9.1", [name])]


def test_the_limit_keeps_the_newest_and_says_how_many_are_left_out(refresh, add, known):
    for number in range(1, 6):
        add(f"1.{number}", JUNE)
    _, document, _ = refresh("gpu-pkg", "--check", "--limit", "2", *known)
    assert [version for _, version, _ in new(document)] == ["1.5", "1.4"]
    assert document["left_out"] == {"packages/gpu-pkg": 3}
    assert len(refresh("gpu-pkg", "--check", "--limit", "0", *known)[1]["new"]) == 5


# --- what is written -----------------------------------------------------------------------


def test_a_record_that_is_left_out_comes_back_equal_offline(
    refresh, add, server, tmp_path, out, known
):
    add("1.1", JUNE)
    assert refresh("gpu-pkg", "--out", str(out), *known)[0] == 0
    folder = tmp_path / "stored" / "gpu-pkg"
    folder.mkdir(parents=True)
    page = server.page("gpu-pkg")
    for row in page["files"]:
        row["url"] = row["filename"]
        (folder / row["filename"]).write_bytes(server.files[row["filename"]])
    (folder / "index.json").write_text(json.dumps(page))
    again = tmp_path / "again"
    options = ["--offline", str(folder.parent), "--no-cache", "--out", str(again), *known]
    assert refresh("gpu-pkg==1.1", *options, index=False)[0] == 0
    assert records(again) == records(out)
    assert records(out)[0]["source"].startswith(
        f"{file_name('1.1')} on the package index, measured"
    )
    assert load_facts([str(again)]).records("gpu-pkg") == load_facts([str(out)]).records("gpu-pkg")


def test_what_is_written_can_be_tried_at_once(refresh, add, out, capsys):
    add("1.0")
    assert refresh("gpu-pkg", "--out", str(out))[0] == 0
    question = ["check", "--stack", "gpu-pkg=1.0,torch=2.9.1+cu128", "--format", "json"]
    pool = ["--pool", "gpu=A100-SXM4-80GB,driver=580.65.06"]
    assert main([*question, *pool]) == 3
    capsys.readouterr()
    main([*question, *pool, "--facts", str(out)])
    found = json.loads(capsys.readouterr().out)["findings"]
    assert "gpu-pkg" not in {one["component"] for one in found if one["outcome"] == "unknown"}
    assert main(["facts", "verify", "--facts", str(out)]) == 0


def test_a_second_run_measures_only_what_the_first_one_did_not(refresh, add, out, server):
    names = [add("1.0"), add("1.1", JUNE)]
    server.digests[names[1]] = "0" * 64
    status, _, errors = refresh("gpu-pkg", "--out", str(out), "--no-cache")
    assert status == 2
    assert "has the SHA-256" in errors
    assert [record["version"] for record in records(out)] == ["1.0"]
    server.digests = {names[0]: records(out)[0]["sha256"]}
    server.files[names[0]] = b"read a second time, this is not a wheel"
    assert refresh("gpu-pkg", "--out", str(out), "--no-cache")[0] == 0
    assert [record["version"] for record in records(out)] == ["1.1", "1.0"]


def test_metadata_only_measures_no_wheel(refresh, add, out, server):
    add("1.0")
    server.sent = 0
    assert refresh("gpu-pkg", "--out", str(out), "--metadata-only")[0] == 0
    assert not out.exists()
    assert server.sent == 0


# --- what cannot be asked ------------------------------------------------------------------


def test_a_package_that_the_index_does_not_have_is_said_and_the_others_go_on(refresh, add, out):
    add("1.0")
    status, document, errors = refresh("no-such-pkg", "gpu-pkg", "--out", str(out))
    assert status == 2
    assert document["problems"] == ["no-such-pkg: the index has no wheels"]
    assert "no-such-pkg: the index has no wheels" in errors
    assert len(records(out)) == 1


def test_an_index_that_does_not_answer_is_given_up(refresh):
    names = ["torch", "jax", "cudnn", "nccl", "xformers", "cupy"]
    options = ["--check", "--index", "http://127.0.0.1:9/simple"]
    status, document, errors = refresh(*names, *options, index=False)
    assert status == 2
    assert len(document["problems"]) == 3
    assert errors.splitlines()[-1] == "the index does not answer: skipped the rest"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gpu-pkg"], "--out: no output folder is given; name a folder with --out"),
        (["gpu pkg>1", "--check"], "gpu pkg>1: is not a package or a release"),
        (["gpu-pkg>=1", "--check"], "gpu-pkg>=1: is not a package or a release"),
        (["--check", "--since", "soon"], "--since: 'soon'"),
        (["--check", "--limit", "-1"], "--limit: -1"),
        (["--check", "--timeout", "0"], "--timeout: 0.0"),
        (["--check", "--offline", "/no/such/folder"], "--offline"),
    ],
)
def test_bad_input_is_one_line_and_2(server, arguments, said, capsys):
    index = [] if "--offline" in arguments else ["--index", server.index]
    assert refresh_facts.main([*arguments, *index]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ")
    assert said.split(": ")[0] in line


def test_the_shipped_facts_are_never_written(refresh, add, capsys, tmp_path, monkeypatch):
    from compatgate.catalog import sources

    copied = tmp_path / "facts"
    shutil.copytree(sources.facts_dir(), copied)
    monkeypatch.setenv(sources.ROOT, str(copied))
    for folder in (copied, copied / "packages"):
        status, _, errors = refresh("gpu-pkg", "--out", str(folder))
        assert status == 2
        assert "holds the shipped facts" in errors
