"""Which facts tests read, and how they run a command line."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

from compatgate.kit import clock

settings.register_profile(
    "ci",
    derandomize=True,
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

pytest_plugins = [
    "prepared",
    "url_rules",
    "statements",
    "catalogue",
    "spreading",
    "image_registry",
    "image_fake",
    "containerd",
]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without the garbage collector, which would walk them again and again.

    What is loaded then lives as long as the process: no later collection walks it either. What a
    test makes mostly dies with it, an application for example: walking it a hundred times meanwhile
    took a third of the time of such tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(20_000, 10, 20)


def pytest_runtest_setup() -> None:
    """Give each test a clock that no test before has set forward."""
    clock._steady = clock.SteadyClock()


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command line in this process: exit status, output, errors."""
    from compatgate.cli.main import main

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(arguments)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run
