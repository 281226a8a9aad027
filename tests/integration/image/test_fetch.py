"""``compatgate canary fetch``: the workload that an image brings, out of a real registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatgate.canary.workloads import Library
from compatgate.cli.main import main

MANIFEST = b"""\
name = "ours"
description = "Looks whether the service answers"
command = ["python3", "program.py"]

[image]
inside = true

[checks]
answers = "it answers"
"""
WORKLOAD = {
    "compatgate": None,
    "compatgate/workload.toml": MANIFEST,
    "compatgate/program.py": b"print()\n",
    "compatgate/data/small.json": b"{}",
    "etc/other": b"left out",
}


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials of whoever runs the tests."""
    for name in ("DOCKER_CONFIG", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))


@pytest.fixture
def fetch(tmp_path: Path):
    """Fetch into a folder; the exit status."""
    return lambda image, *more: main(
        ["canary", "fetch", image.reference, "-o", str(tmp_path / "out"), *more]
    )


def test_a_workload_is_copied_and_is_one_of_the_operators(
    registry, layer, fetch, tmp_path, capsys
) -> None:
    image = registry.push(layer({"usr/bin/python3": b"x"}), layer(WORKLOAD))
    assert fetch(image) == 0
    assert f"ours: 3 files of {image.digest}" in capsys.readouterr().out
    folder = tmp_path / "out" / "ours"
    found = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    assert found == ["data/small.json", "program.py", "workload.toml"]
    assert list((tmp_path / "out").iterdir()) == [folder]
    assert Library.open([tmp_path / "out"]).workload("ours").image.inside


def test_what_layers_above_replaced_or_removed_is_not_copied(
    registry, layer, fetch, tmp_path
) -> None:
    above = {
        "compatgate/program.py": b"print('newer')\n",
        "compatgate/data/.wh.small.json": b"",
        "compatgate/data/other.json": b"[]",
    }
    assert fetch(registry.push(layer(WORKLOAD), layer(above))) == 0
    folder = tmp_path / "out" / "ours"
    assert (folder / "program.py").read_bytes() == b"print('newer')\n"
    assert [p.name for p in (folder / "data").iterdir()] == ["other.json"]
    emptied = {"compatgate/.wh..wh..opq": b"", "compatgate/workload.toml": MANIFEST}
    assert fetch(registry.push(layer(WORKLOAD), layer(emptied)), "--force") == 0
    assert [p.name for p in folder.iterdir()] == ["workload.toml"]


def test_a_folder_that_is_there_is_left_alone(registry, layer, fetch, tmp_path, capsys) -> None:
    image = registry.push(layer(WORKLOAD))
    assert fetch(image) == 0
    (tmp_path / "out" / "ours" / "program.py").write_text("changed by us")
    assert fetch(image) == 2
    assert "--force" in capsys.readouterr().err
    assert (tmp_path / "out" / "ours" / "program.py").read_text() == "changed by us"


@pytest.mark.parametrize(
    ("files", "links", "says"),
    [
        ({"etc/other": b""}, {}, "holds no workload"),
        ({"compatgate/workload.toml": b"name = 3"}, {}, "name"),
        (WORKLOAD, {"compatgate/secret": "/etc/shadow"}, "/compatgate/secret is not a plain file"),
        ({}, {"compatgate": "/etc"}, "/compatgate is not a plain file"),
    ],
)
def test_an_image_without_a_whole_workload_leaves_nothing(
    registry, layer, fetch, tmp_path, capsys, files, links, says
) -> None:
    assert fetch(registry.push(layer(files, links=links))) == 2
    assert says in capsys.readouterr().err
    out = tmp_path / "out"
    assert not out.exists() or not list(out.iterdir())


def test_a_path_that_leads_out_of_the_folder_is_not_in_it(registry, layer, fetch, tmp_path) -> None:
    paths = ("compatgate/../../escaped", "compatgate/data/../../escaped", "/../escaped")
    assert fetch(registry.push(layer({**WORKLOAD, **dict.fromkeys(paths, b"")}))) == 0
    found = [p.name for p in tmp_path.rglob("*") if p.name == "escaped"]
    assert found == []


def test_more_than_a_workload_may_hold_is_refused(registry, layer, fetch, capsys) -> None:
    many = {f"compatgate/data/{n}": b"" for n in range(2001)}
    assert fetch(registry.push(layer({**WORKLOAD, **many}))) == 2
    assert "more than 2000 files" in capsys.readouterr().err
