"""Which images a submitted canary run may name: the service's own list."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from canary_runs import host

from compatgate.service.app import open_rooms

ASKED = {"suite": "smoke", "target": "prod-a100", "stack": {"cuda": "12.4"}}
INSIDE, OUTSIDE = "registry.example/team/app:1", "registry.example/other/app:1"


@pytest.fixture
def submitted(serve: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Submit a run with an image to a service with options: its answer."""

    def ask(image: str, *options: str, **environment: str) -> Any:
        server = serve(*options, **environment)
        rooms = open_rooms(str(tmp_path / "gate.db"), overlays=[])
        rooms.runs.queue.register("w1", [host(driver=None)])
        rooms.close()
        return server.ask("POST", "/api/v1/runs", ASKED | {"image": image}, server.bearer)

    return ask


@pytest.mark.parametrize("how", ["option", "environment"])
@pytest.mark.parametrize(("image", "status"), [(INSIDE, 201), (OUTSIDE, 400)])
def test_a_run_names_an_image_of_the_list(
    submitted: Callable[..., Any], image: str, status: int, how: str
) -> None:
    pattern = "registry.example/team/*"
    answer = (
        submitted(image, "--canary-image", pattern)
        if how == "option"
        else submitted(image, COMPATGATE_CANARY_IMAGES=pattern)
    )
    assert answer.status == status
    if status == 400:
        problem = answer.json()
        assert (problem["field"], problem["value"]) == ("image", OUTSIDE)
        assert "allowed: registry.example/team/*" in problem["detail"]
        assert "serve --canary-image PATTERN" in problem["hint"]


@pytest.mark.parametrize(("address", "status"), [("127.0.0.1", 201), ("0.0.0.0", 400)])
def test_without_a_list_only_a_loopback_address_takes_images(
    submitted: Callable[..., Any], address: str, status: int
) -> None:
    answer = submitted(INSIDE, "--host", address)
    assert answer.status == status
    if status == 400:
        assert "allowed: none" in answer.json()["detail"]


def test_a_pattern_that_names_no_registry_stops_the_start(run_serve: Callable[..., Any]) -> None:
    server = run_serve("--canary-image", "ubuntu", ready=False)
    _, log = server.process.communicate(timeout=30)
    assert server.process.returncode == 2
    assert "--canary-image: 'ubuntu' is not an image pattern" in log
