"""A scrape of a gate on PostgreSQL does not wait for tables that somebody has locked."""

from __future__ import annotations

import re
import time
from typing import Any

import psycopg
import pytest
from serving import Server
from staging import until

from compatgate.service.app import Rooms

NAME = "compatgate_stored_figures_age_seconds"


def _age(server: Server) -> float:
    text = server.ask("GET", "/metrics").body.decode()
    found = re.search(rf"^{NAME} (\S+)$", text, re.MULTILINE)
    assert found, text
    assert "\ncompatgate_canary_runs{" in text
    return float(found[1])


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_locked_table_delays_no_scrape(run_serve: Any, rooms: Rooms, database_url: str) -> None:
    server = run_serve("--database", database_url)
    until(lambda: _age(server) < 5, 20)
    with psycopg.connect(database_url) as holder:
        holder.execute("LOCK TABLE runs IN ACCESS EXCLUSIVE MODE")
        until(lambda: _age(server) > 11, 30)  # a reading was due, and waits
        began = time.monotonic()
        ages = [_age(server) for _ in range(10)]
        assert time.monotonic() - began < 5
        assert ages == sorted(ages)
        holder.rollback()
    until(lambda: _age(server) < 5, 40)
