"""A gate with one staging host on the tests' engine, where a GPU is simulated."""

from __future__ import annotations

from pathlib import Path

import pytest
from engines import Engine
from staging import Staging, make_staging

from compatgate.service.app import Rooms


@pytest.fixture
def staging(rooms: Rooms, database_url: str, tmp_path: Path, gpu_engine: Engine) -> Staging:
    """A target of one pool, and the host ``stage`` with one slot."""
    return make_staging(rooms, database_url, tmp_path, gpu_engine)
