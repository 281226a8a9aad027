"""Wheels are asked for at the place that serves their label, and only there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from catalogue import own_cache
from cuda_toolkit import toolkit
from gpu_binaries import make_entry, make_fatbin
from wheel_server import WheelServer, wheel_server
from wheels import make_shared_object, make_wheel

__all__ = ["toolkit"]

NAME = "gpu_pkg-1.0+cu124-cp312-cp312-manylinux_2_28_x86_64.whl"
STACK = "python=3.12,cuda=12.4,gpu-pkg=1.0+cu124"
POOL = "driver=580.95.05,gpu=A100-SXM4-80GB"
Ask = Callable[..., tuple[dict[str, Any], str]]


@pytest.fixture
def other() -> Iterator[WheelServer]:
    with wheel_server() as served:
        code = make_fatbin(make_entry("sass", 80))
        library = make_shared_object(needs=["libcudart.so.12"], code=code)
        served.add(
            NAME, make_wheel({"gpu_pkg/lib.so": library}, name="gpu-pkg", version="1.0+cu124")
        )
        yield served


@pytest.fixture
def ask(command, server, tmp_path, monkeypatch) -> Ask:
    """Check the stack as a user whose pip asks ``server``, with a place in an overlay."""
    monkeypatch.setenv("XDG_CACHE_HOME", own_cache(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", server.index)
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)

    def run(url: str, kind: str = "index", how: str = "--read-wheels", **more: Any) -> Any:
        place = {"name": "ours", "packages": ["gpu-pkg"], "kind": kind, "labels": r"cu\d{3}"}
        place |= {"url": url, "source": "the tests", "confidence": "published", **more}
        overlay = tmp_path / "wheel_places.yaml"
        overlay.write_text(json.dumps({"schema": "facts/wheel_places/v1", "places": [place]}))
        options = ["--facts", str(overlay), "--format", "json", *filter(None, [how])]
        _, text, errors = command("check", "--pool", POOL, "--stack", STACK, *options)
        return json.loads(text), errors

    return run


def rules(verdict: dict[str, Any]) -> set[str]:
    return {finding["rule"] for finding in verdict["findings"]}


@pytest.mark.parametrize("kind", ["index", "page", "file"])
def test_a_wheel_is_measured_at_the_place_of_its_label(ask: Ask, server, other, kind: str) -> None:
    other.html = kind == "page"
    more = {"files": ["{name}-{version}+{label}-cp{py}-cp{py}-manylinux_2_28_{cpu}.whl"]}
    url = {"index": other.index, "page": f"{other.index}/gpu-pkg/", "file": f"{other.url}/files"}
    verdict, errors = ask(url[kind], kind, **(more if kind == "file" else {}))
    assert "CG410" not in rules(verdict), errors
    assert f"gpu-pkg 1.0+cu124: measured now, {NAME}" in errors
    assert "MB from 127.0.0.1" in errors
    assert server.paths == []


def test_the_answer_names_what_was_asked(ask: Ask, server, other) -> None:
    del other.files[NAME]
    verdict, errors = ask(other.index)
    assert "CG410" in rules(verdict)
    assert f"asked: ours ({other.index}), {server.index}" in errors


def test_links_to_other_hosts_are_not_followed(ask: Ask, other) -> None:
    elsewhere = other.url.removeprefix("http://").replace("127.0.0.1", "localhost")
    other.files_at = f"http://{elsewhere}/files"
    verdict, _ = ask(other.index)
    assert "CG410" in rules(verdict)
    assert not any(path.startswith("/files/") for path in other.paths)
    verdict, _ = ask(other.index, hosts=[elsewhere])
    assert "CG410" not in rules(verdict)


def test_without_a_network_the_answer_names_the_place_and_the_file(ask: Ask, other) -> None:
    verdict, errors = ask(other.index, how="--cached-wheels")
    assert "CG410" in rules(verdict)
    assert f"fetch gpu_pkg-1.0+cu124-*.whl from ours ({other.index})" in errors
    assert other.paths == []


def test_nothing_is_asked_unless_the_question_says_so(ask: Ask, server, other) -> None:
    verdict, _ = ask(other.index, how="")
    assert "CG410" in rules(verdict)
    assert (other.paths, server.paths) == ([], [])


def test_wheels_that_lie_in_a_folder_are_an_index(
    ask: Ask, other, tmp_path: Path, monkeypatch
) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    (folder / NAME).write_bytes(other.files[NAME])
    monkeypatch.setenv("PIP_INDEX_URL", f"file://{folder}")
    verdict, errors = ask(other.index, packages=["another"])
    assert "CG410" not in rules(verdict), errors
    assert other.paths == []
