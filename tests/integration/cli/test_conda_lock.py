"""``compatgate lock --in environment.yml`` with conda's solver, on a local channel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conda_channel import package, write_channel

Run = Callable[..., tuple[int, str, str]]
A100 = "driver=550.54.15,gpu=A100-SXM4-80GB"
OLD = "driver=470.57.02,gpu=A100-SXM4-80GB"


def torch(version: str, cuda: str, number: int) -> dict[str, object]:
    """A build of conda-forge for one CUDA, and one for the CPU."""
    major, minor = cuda.split(".")
    return package(
        "pytorch",
        version,
        f"cuda{major}{minor}_py312h0123456_30{number}",
        "python >=3.12,<3.13.0a0",
        f"cuda-version >={cuda},<{int(major) + 1}",
        "__cuda",
        number=number,
    )


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two releases of PyTorch, of which the newest needs a CUDA that old drivers lack."""
    packages = [
        torch("2.4.1", "12.4", 1),
        torch("2.5.1", "12.6", 2),
        package("python", "3.12.8", "h9e4cc4f_1_cpython"),
        *(package("cuda-version", cuda, "h0", f"__cuda >={cuda[:2]}") for cuda in ("12.4", "12.6")),
        package("numpy", "1.26.4", "py312_0", "python >=3.12,<3.13.0a0"),
        package("stuck", "1.0", "0", "pytorch <2"),
    ]
    return write_channel(tmp_path_factory.mktemp("conda") / "conda-forge", packages)


@pytest.fixture
def lock(command: Run, channel: str, tmp_path: Path) -> Run:
    """Lock an environment: exit status, output, errors."""

    def run(dependencies: str, pool: str, *options: str) -> tuple[int, str, str]:
        file = tmp_path / "environment.yml"
        file.write_text(f"channels: [{channel}]\ndependencies:\n{dependencies}")
        place = ("--pool", pool, "--in", str(file), "--python", "3.12", "--tries", "2")
        return command("lock", *place, *options)

    return run


def test_the_explicit_list_passes_check(lock: Run, command: Run, tmp_path: Path) -> None:
    status, out, err = lock("- pytorch >=2.4\n- numpy\n", A100)
    assert status == 0, err
    written = tmp_path / "conda-linux-64.lock"
    assert out == f"wrote {written}\n"
    lines = written.read_text().splitlines()
    assert "@EXPLICIT" in lines
    assert any("/linux-64/pytorch-2.5.1-cuda126_" in line and "#" in line for line in lines)
    status, out, _ = command("check", "--pool", A100, "--lock", str(written))
    assert status == 0, out


def test_a_conflict_is_told_in_the_words_of_both(lock: Run, tmp_path: Path) -> None:
    status, _, err = lock("- pytorch\n- stuck\n", A100)
    assert status == 1
    assert "conda found no lock with pytorch==2.5.1" in err
    assert "stuck" in err.partition("| ")[2]  # the solver's own words
    assert not (tmp_path / "conda-linux-64.lock").exists()


def test_no_build_is_chosen_that_the_driver_cannot_run(lock: Run, tmp_path: Path) -> None:
    status, out, err = lock("- pytorch\n", OLD)
    assert status == 1
    assert "no known stack" in out or "conda found no lock" in err
    assert not (tmp_path / "conda-linux-64.lock").exists()


@pytest.mark.parametrize(
    ("dependencies", "options", "said"),
    [
        ("- numpy\n", (), "names no part with GPU code"),
        ("- pytorch >> 2\n", (), "is not a conda dependency"),
        ("- {cargo: [x]}\n", (), "a dependency must be text or a pip list"),
        ("- pytorch\n", ("--edit",), "--edit: is an option for uv"),
        ("- pytorch\n", ("--channel", "file:///nowhere"), "--channel: a channel cannot be read"),
        ("- flash-attn\n", (), "has no flash-attn"),
    ],
)
def test_wrong_input_is_named(
    lock: Run, dependencies: str, options: tuple[str, ...], said: str
) -> None:
    status, _, err = lock(dependencies, A100, *options)
    assert status in (2, 3)
    assert said in err
