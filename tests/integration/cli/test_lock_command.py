"""``compatgate lock`` with the real uv, on a local simple index of tiny wheels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from wheel_server import WheelServer, wheel_server
from wheels import make_wheel

Run = Callable[..., tuple[int, str, str]]
H100 = "driver=580.95.05,gpu=H100-SXM5-80GB"
V100 = "driver=535.183.01,gpu=V100-SXM2-16GB"


def publish(server: WheelServer, name: str, version: str, *requires: str) -> None:
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {one}" for one in requires]
    stem = f"{name.replace('-', '_')}-{version}"
    text = "\n".join([*lines, ""])
    tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = {f"{stem}.dist-info/METADATA": text, f"{stem}.dist-info/WHEEL": tag}
    wheel = make_wheel({path: content.encode() for path, content in files.items()})
    server.add(f"{stem}-py3-none-any.whl", wheel)
    server.metadata[f"{stem}-py3-none-any.whl"] = text.encode()


@pytest.fixture(scope="module")
def index() -> Iterator[WheelServer]:
    """The package index: torch of each CUDA that it was the default for, and two users of it."""
    with wheel_server() as server:
        for version in ("2.12.0", "2.13.0", "2.14.0", "2.15.0"):
            publish(server, "torch", version)
        publish(server, "newest-only", "1.0", "torch>=2.15")
        publish(server, "plain", "1.0", "torch")
        publish(server, "stuck", "1.0", "torch<2")
        yield server


@pytest.fixture(scope="module")
def builds() -> Iterator[WheelServer]:
    """The project's own index, of one build."""
    with wheel_server() as server:
        for version in ("2.12.0", "2.13.0", "2.14.0"):
            publish(server, "torch", f"{version}+cu126")
        yield server


@pytest.fixture
def lock(command: Run, index: WheelServer, builds: WheelServer, tmp_path: Path) -> Run:
    """Lock a project: exit status, output, errors."""

    def run(text: str, pool: str, *options: str, name: str = "requirements.in") -> Run:
        (tmp_path / name).write_text(text)
        place = ("--pool", pool, "--in", str(tmp_path / name), "--python", "3.12")
        own = ("--build-index", f"cu126={builds.index}", "--build-index", "none")
        uv = ("--", "--default-index", index.index, "--cache-dir", str(tmp_path / "cache"))
        return command("lock", *place, *own, *options, *uv)

    return run


def test_the_lock_passes_check_and_names_the_index_of_its_build(
    lock: Run, command: Run, builds: WheelServer, tmp_path: Path
) -> None:
    status, out, err = lock("torch<2.15\nplain\n", V100)
    assert status == 0, err
    written = tmp_path / "pylock.toml"
    assert out == f"wrote {written}\n"
    text = written.read_text()
    assert 'requires-python = "==3.12.*"' in text
    assert "+cu126" in text
    assert [line for line in text.splitlines() if builds.url in line and "url =" in line]
    plain = text.partition('name = "plain"')[2].partition("[[packages]]")[0]
    assert builds.url not in plain  # nothing else comes from there
    status, out, _ = command("check", "--pool", V100, "--lock", str(written))
    assert status == 0, out


def test_builds_without_an_index_are_left_out(
    command: Run, index: WheelServer, tmp_path: Path
) -> None:
    (tmp_path / "requirements.in").write_text("torch<2.15\n")
    place = ("--pool", V100, "--in", str(tmp_path / "requirements.in"), "--python", "3.12")
    uv = ("--", "--default-index", index.index, "--cache-dir", str(tmp_path / "cache"))
    _, out, err = command("lock", *place, "--build-index", "none", "--tries", "2", *uv)
    assert "trying" in err
    assert "+cu" not in out + err


def test_a_search_that_was_cut_short_is_no_decision(lock: Run, tmp_path: Path) -> None:
    status, out, _ = lock("transformer-engine\n", H100)
    assert status == 3
    assert out.startswith("no decision")


def test_a_lock_that_leaves_its_cuda_open_is_not_written(lock: Run, tmp_path: Path) -> None:
    status, _, err = lock("torch==2.14.0\n", H100, "--tries", "1")
    assert status == 3
    assert "does not say which CUDA torch 2.14.0 is built for" in err
    assert not (tmp_path / "pylock.toml").exists()


def test_a_conflict_is_told_in_the_words_of_both(lock: Run, tmp_path: Path) -> None:
    status, _, err = lock("torch\nstuck\n", H100, "--tries", "1")
    assert status == 1
    assert "uv found no lock with torch==2.15.0" in err
    assert "stuck" in err.partition("| ")[2]  # uv's own words
    assert not (tmp_path / "pylock.toml").exists()


def test_what_the_target_cannot_run_is_told_without_a_lock(lock: Run, tmp_path: Path) -> None:
    status, out, _ = lock("torch>=2.15\nnewest-only\n", V100)
    assert status == 1
    assert "nearest misses" in out
    assert not (tmp_path / "pylock.toml").exists()


def test_a_project_gets_the_edit_that_makes_uv_lock_agree(lock: Run, builds: WheelServer) -> None:
    project = '[project]\nname = "p"\nversion = "1"\ndependencies = ["torch<2.15", "plain"]\n'
    status, out, err = lock(project, V100, "--tries", "2", "--edit", name="pyproject.toml")
    assert status == 0, err
    assert "constraint-dependencies = [" in out
    assert 'torch = { index = "builds-cu126" }' in out
    assert f'url = "{builds.index}"' in out


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("numpy\n", "requirements.in", "names no part with GPU code"),
        ("torch >> 2\n", "requirements.in", "is not a requirement"),
        ("x = \n", "pyproject.toml", "is not TOML"),
        ("[tool]\n", "pyproject.toml", "has no table [project]"),
    ],
)
def test_a_bad_project_is_named(lock: Run, text: str, name: str, said: str) -> None:
    status, _, err = lock(text, H100, name=name)
    assert status == 2
    assert said in err
