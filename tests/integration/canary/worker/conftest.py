"""A gate with one staging host on the tests' engine, where a GPU is simulated."""

from __future__ import annotations

from pathlib import Path

import pytest
from engines import Engine
from staging import DRIVER, GPU, Staging, host_table

from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms


@pytest.fixture
def staging(
    rooms: Rooms, database_url: str, by: Authorship, tmp_path: Path, gpu_engine: Engine
) -> Staging:
    """A target of one pool, and the host ``stage`` with one slot."""
    pool = {"name": "a100", "gpu": GPU, "driver": DRIVER}
    policy = {"canary": {"require": True, "suites": ["good"]}}
    body = {"metadata": {"name": "prod"}, "spec": {"pools": [pool], "policy": policy}}
    rooms.matrix.create("Target", body, Authorship(by.author, by.reason, force=True))
    made = Staging(rooms, database_url, tmp_path)
    made.hosts(host_table("stage", gpu_engine))
    return made
