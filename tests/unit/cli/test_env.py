"""Variables for builders, in the forms of shells and CI."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from compatgate.cli.main import main

POOL = "driver=535.104.05,gpu=A100-SXM4-80GB"
POOLS = ["--pool", "driver=550.54.15,gpu=L4", "--pool", "driver=570.124.06,gpu=H100"]


def test_a_shell_takes_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", *POOLS]) == 0
    script = f'{capsys.readouterr().out}\necho "$TORCH_CUDA_ARCH_LIST/$CONDA_OVERRIDE_CUDA"'
    result = subprocess.run(["sh", "-ec", script], capture_output=True, text=True)
    assert result.stdout == "8.9;9.0/12.4\n"


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("export", "export TORCH_CUDA_ARCH_LIST='8.9;9.0'"),
        ("export", "export CONDA_OVERRIDE_CUDA=12.4"),
        ("dotenv", 'TORCH_CUDA_ARCH_LIST="8.9;9.0"'),
        ("github", "TORCH_CUDA_ARCH_LIST=8.9;9.0"),
        ("docker", "--build-arg=TORCH_CUDA_ARCH_LIST=8.9;9.0"),
    ],
)
def test_each_form_quotes_as_its_reader_expects(
    form: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["env", *POOLS, "--format", form]) == 0
    assert line in capsys.readouterr().out.splitlines()


def test_json_is_the_mapping(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--pool", POOL, "--format", "json"]) == 0
    variables = json.loads(capsys.readouterr().out)
    assert variables["UV_CUDA_DRIVER_VERSION"] == "535.104.05"
    assert variables["CONDA_OVERRIDE_CUDA_ARCH"] == "8.0"


def test_what_does_not_suit_every_pool_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    pools = ["--pool", "driver=580.65.06,gpu=P100", "--pool", "driver=580.65.06,gpu=B200"]
    assert main(["env", *pools]) == 0
    output = capsys.readouterr()
    assert "UV_TORCH_BACKEND" not in output.out
    assert output.err.startswith("note: no UV_TORCH_BACKEND")


def test_a_pool_or_a_target_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env"]) == 2
    assert main(["env", "--pool", POOL, "--target", "prod"]) == 2


def test_a_malformed_pool_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--pool", "driver=banana,gpu=L4"]) == 2
    assert "pool.driver" in capsys.readouterr().err


def test_help_says_what_each_variable_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--help"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"CONDA_OVERRIDE_CUDA_ARCH +lowest compute capability", out)
