"""``compatgate inspect`` prints what was found and where."""

from __future__ import annotations

import argparse
import json
import os

import pytest

from compatgate.cli import inspect
from compatgate.errors import BadInput, NotFound

_PTX = ".version 8.4\n.target sm_90a\n.address_size 64\n"


@pytest.fixture
def run(capsys):
    def run(*arguments: str) -> str:
        parser = argparse.ArgumentParser()
        inspect.run.add_arguments(parser)
        assert inspect.run(parser.parse_args(arguments)) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def ptx(tmp_path):
    path = tmp_path / "kernel.ptx"
    path.write_text(_PTX)
    return str(path)


def test_json_has_the_stack_the_observations_and_the_conflicts(run, ptx):
    assert json.loads(run(ptx, "--format", "json")) == {
        "stack": {"cuda": "12.4", "arch": ["compute_90a"]},
        "observations": [
            {
                "component": "cuda",
                "version": "12.4",
                "origin": f"{ptx}: has PTX ISA 8.4",
                "confidence": "derived",
            },
            {
                "component": "arch",
                "version": "compute_90a",
                "origin": ptx,
                "confidence": "measured",
            },
        ],
        "conflicts": [],
    }


def test_text_names_each_component_with_its_origin(run, ptx):
    text = run(ptx)
    assert "arch         compute_90a\n" in text
    assert f"12.4  {ptx}: has PTX ISA 8.4 (derived)" in text


def test_a_file_name_that_is_no_text_is_shown_escaped(run, ptx, tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff.ptx"
    os.rename(ptx, path)
    assert "udcff.ptx" in run(os.fsdecode(path))


def test_nothing_found_is_said(run, tmp_path):
    assert "no GPU code found" in run(str(tmp_path))


def test_what_is_not_there_and_what_is_unknown_are_errors(run, tmp_path):
    with pytest.raises(NotFound):
        run(str(tmp_path / "nothing"))
    (tmp_path / "x").write_text("hello")
    with pytest.raises(BadInput):
        run(str(tmp_path / "x"))


def test_no_name_of_a_file_commands_the_terminal(run, tmp_path):
    path = tmp_path / "\x1b[2J\nsm_80 forged.ptx"
    path.write_text(_PTX)
    text = run(str(path))
    assert "\x1b" not in text
    assert not any(line.startswith("sm_80 forged") for line in text.splitlines())
