"""Which place a command asks, by its options and the environment."""

from __future__ import annotations

from argparse import Namespace

import pytest

from compatgate.errors import BadInput
from compatgate.kit.cli.parser import server_of

GATE, OTHER = "https://gate.example", "https://other.example"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPATGATE_SERVER", GATE)


def places(**given: str) -> Namespace:
    return Namespace(**{"server": None, "bundle": None, "database": None, **given})


def test_the_environment_names_the_gate_where_no_option_does() -> None:
    assert server_of(places()) == GATE
    assert server_of(places(server=OTHER)) == OTHER


@pytest.mark.parametrize("option", ["bundle", "database"])
def test_another_place_that_is_named_is_asked_instead(option: str) -> None:
    assert server_of(places(**{option: "x"})) is None


def test_an_empty_variable_names_no_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPATGATE_SERVER", "")
    assert server_of(places()) is None


def test_a_command_need_not_know_bundles() -> None:
    assert server_of(Namespace(server=None, database=None)) == GATE


def test_several_places_are_refused_by_name() -> None:
    with pytest.raises(BadInput, match="--server and --bundle cannot be used together"):
        server_of(places(server=OTHER, bundle="x"))
