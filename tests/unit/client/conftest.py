"""A stand-in for a gate, and clients of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gate_stand_in import StandIn, standing_in

from compatgate.client import Client, Retries


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COMPATGATE_SERVER", raising=False)
    monkeypatch.delenv("COMPATGATE_TOKEN", raising=False)


@pytest.fixture
def gate() -> Iterator[StandIn]:
    """A server that answers what it was told."""
    with standing_in() as server:
        yield server


@pytest.fixture
def client(gate: StandIn) -> Iterator[Client]:
    """A client of it that hardly pauses before it tries again."""
    with Client(gate.url, "secret", timeout=5.0, retries=Retries(most=3, first_s=0.001)) as made:
        yield made
