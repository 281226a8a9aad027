"""``compatgate image-compat check`` with files."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatgate.cli.main import main

FOLDER = Path(__file__).parents[2] / "fixtures" / "neighbours"
POOL = ["--pool", "driver=580.82.07,gpu=L4"]
GPU = "{feature: pci.device, matchExpressions: {vendor: {op: In, value: ['10de']}}}"
ONE = "nvidia.com/gpu.compute.major: {op: In, value: ['1']}"
NONE = f"{{feature: local.label, matchExpressions: {{{ONE}}}}}"


@pytest.fixture
def spec(tmp_path: Path):
    """A file with sets of these rules, by tag."""

    def make(**sets: str) -> str:
        path = tmp_path / "spec.yaml"
        ones = [f"{{tag: {tag}, rules: [{{name: r, matchFeatures: [{terms}]}}]}}"
                for tag, terms in sets.items()]  # fmt: skip
        path.write_text(f"version: v1alpha1\ncompatibilities: [{', '.join(ones)}]\n")
        return str(path)

    return make


def test_the_exit_status_tells_the_outcome(spec) -> None:
    check = ["image-compat", "check"]
    assert main([*check, spec(a=GPU), *POOL]) == 0
    assert main([*check, spec(a=NONE), *POOL]) == 1
    assert main([*check, str(FOLDER / "image-compatibility.yaml"), *POOL]) == 3


def test_sets_that_differ_are_no_decision_until_one_is_chosen(spec, capsys) -> None:
    path = spec(a=GPU, b=NONE)
    assert main(["image-compat", "check", path, *POOL]) == 3
    assert "choose with --tag" in capsys.readouterr().out
    assert main(["image-compat", "check", path, *POOL, "--tag", "a"]) == 0
    assert main(["image-compat", "check", path, *POOL, "--tag", "b"]) == 1
    assert main(["image-compat", "check", path, *POOL, "--tag", "c"]) == 2
    assert "tags: a, b" in capsys.readouterr().err


def test_a_snapshot_says_where(spec) -> None:
    probe = ["--probe", str(FOLDER / "aicr-snapshot-gb200.yaml")]
    assert main(["image-compat", "check", spec(a=GPU), *probe]) == 0


def test_it_has_to_be_said_where(spec, capsys) -> None:
    assert main(["image-compat", "check", spec(a=GPU)]) == 2
    assert "name a target or a pool" in capsys.readouterr().err
    assert main(["image-compat", "check", spec(a=GPU), "--target", "t", *POOL]) == 2
