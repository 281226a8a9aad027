"""``compatgate facts`` as people and scripts use it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

Write = Callable[..., str]
pytestmark = pytest.mark.usefixtures("schemas_asked_once")


@pytest.fixture
def facts(command: Callable[..., tuple[int, str, str]]) -> Callable[..., tuple[int, str, str]]:
    """Run the command; gives status, output and errors."""
    return lambda *arguments: command("facts", *arguments)


def parsed(result: tuple[int, str, str]) -> Any:
    assert result[0] == 0
    return json.loads(result[1])


Facts = Callable[..., tuple[int, str, str]]


def test_list_counts_records_and_names_the_digest(facts: Facts) -> None:
    answer = parsed(facts("list", "--format", "json"))
    assert answer["tables"]["cuda_driver"]["releases"] > 60
    assert answer["digest"].startswith("sha256:")
    assert answer["overlays"] == []


def test_list_is_aligned_for_people(facts: Facts) -> None:
    status, out, _ = facts("list")
    lines = out.splitlines()
    assert status == 0
    assert len({line.index("  ") for line in lines if line.startswith("cuda_arch_support")}) == 1
    assert "overlays           none" in lines


def test_list_names_overlays(facts: Facts, overlay: Write) -> None:
    path = overlay("schema: facts/nccl/v1\nreleases: []")
    answer = parsed(facts("list", "--facts", path, "--format", "json"))
    assert answer["overlays"][0].startswith("ours.yaml@")


def test_show_gives_a_whole_record(facts: Facts) -> None:
    _, out, _ = facts("show", "cuda_driver", "12.4.1")
    assert out.startswith("releases 12.4.1\n")
    assert "  linux_toolkit_driver_min    550.54.15\n" in out
    assert "confidence                  published" in out


def test_show_goes_into_nested_records(facts: Facts) -> None:
    _, out, _ = facts("show", "torch", "2.4.1")
    assert "    - name     cu118\n" in out
    assert "sass        3.7, 5.0, 6.0, 7.0, 7.5, 8.0, 8.6, 9.0\n" in out


def test_show_without_a_key_names_the_records(facts: Facts) -> None:
    _, out, _ = facts("show", "pytorch")
    assert out.splitlines()[0] == "releases"
    assert "2.4.1" in out
    assert "2.4.1" in parsed(facts("show", "pytorch", "--format", "json"))["releases"]


def test_show_json_is_the_record(facts: Facts) -> None:
    answer = parsed(facts("show", "gpus", "L4", "--format", "json"))
    assert [gpu["compute_capability"] for gpu in answer["gpus"]] == ["8.9"]


def test_show_lays_overlays_over(facts: Facts, overlay: Write) -> None:
    path = overlay("branches: [{branch: 570, note: ours}]", "driver_branches.yaml")
    answer = parsed(facts("show", "driver_branches", "570", "--facts", path, "--format", "json"))
    assert answer["branches"][0]["note"] == "ours"


def test_an_unknown_table_is_an_error_on_one_line(facts: Facts) -> None:
    status, out, err = facts("show", "cudadriver")
    assert (status, out) == (2, "")
    assert err == "error: table: no facts are named 'cudadriver' (did you mean cuda_driver?)\n"


def test_an_unknown_record_is_an_error_on_one_line(facts: Facts) -> None:
    status, _, err = facts("show", "cuda_driver", "12.7.1")
    assert status == 2
    assert err.startswith("error: key: cuda_driver has no '12.7.1' (did you mean")


def test_a_bad_overlay_is_an_error_without_a_traceback(facts: Facts, overlay: Write) -> None:
    path = overlay("branches: [{branch: 570, eol: soon}]", "driver_branches.yaml")
    status, _, err = facts("list", "--facts", path)
    assert status == 2
    assert err.startswith(f"error: {path}: branches[branch=570].eol: 'soon' is not")
    assert "Traceback" not in err


def test_verify_answers_0_when_all_is_well(facts: Facts) -> None:
    status, out, err = facts("verify")
    assert (status, err) == (0, "")
    assert out.startswith("the facts are consistent\nmeasured ")
    assert parsed(facts("verify", "--format", "json"))["problems"] == []


def test_verify_tells_what_is_measured_from_what_is_derived(facts: Facts, overlay: Write) -> None:
    before = parsed(facts("verify", "--format", "json"))["origins"]
    assert set(before) == {"measured", "published", "metadata", "derived"}
    issue = "{id: X, title: t, components: {torch: 2.*}, outcome: warn, message: m, source: s"
    text = f"schema: facts/known_issues/v1\nissues: [{issue}, confidence: derived}}]"
    told = parsed(facts("verify", "--format", "json", "--facts", overlay(text)))["origins"]
    assert told == before | {"derived": before["derived"] + 1}
    _, out, _ = facts("verify")
    assert f"measured   {before['measured']:>5} wheels, each with its SHA-256" in out
    assert f"derived    {before['derived']:>5} statements, derived from other facts: never" in out


def test_verify_finds_a_record_that_was_copied_instead_of_measured(
    facts: Facts, overlay: Write
) -> None:
    rows = "\n".join(
        f"- {{version: '{v}', wheel: gpu_pkg-{v}-py3-none-any.whl, sha256: {'a' * 64}}}"
        for v in ("1.0", "1.1")
    )
    path = overlay(f"schema: facts/packages/v1\npackage: gpu-pkg\nrecords:\n{rows}")
    status, out, _ = facts("verify", "--facts", path)
    assert status == 1
    assert "package-digest: packages/gpu-pkg gpu_pkg-1.1-py3-none-any.whl" in out


def test_verify_answers_1_and_names_the_problem(facts: Facts, overlay: Write) -> None:
    path = overlay("branches: [{branch: 550, nvidia_smi_cuda: '12.5'}]", "driver_branches.yaml")
    status, out, err = facts("verify", "--facts", path)
    assert status == 1
    assert "branch-cuda: driver_branches 550: reports CUDA 12.5" in out
    assert err.strip().endswith("problems")
    status, out, _ = facts("verify", "--facts", path, "--format", "json")
    assert status == 1
    assert json.loads(out)["problems"][0]["check"] == "branch-cuda"


def test_the_environment_names_overlays(
    facts: Facts, overlay: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPATGATE_FACTS", overlay("schema: facts/nccl/v1\nreleases: []"))
    assert parsed(facts("list", "--format", "json"))["overlays"]
