"""Deciding on a pool: facts alone, and nothing heavy is imported for it."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest

from compatgate.core.facts import Facts
from compatgate.errors import BadInput
from compatgate.gate.local import decide_pool

HEAVY = ("sqlalchemy", "yaml", "jsonschema", "alembic", "flask", "rich", "platformdirs")


def test_a_described_pool_is_decided_from_facts(facts: Facts, now: datetime) -> None:
    body = {
        "pool": {"driver": "470.57.02", "gpu": "A100-SXM4-80GB"},
        "stack": {"cuda": "12.4", "arch": ["sm_80"]},
    }
    verdict = decide_pool(body, facts, now=now)
    assert verdict.verdict == "fail"
    assert (verdict.target, verdict.matrix_revision) == (None, 0)
    mended = decide_pool({**body, "set": {"driver": "550.54.15"}}, facts, now=now)
    assert mended.allowed


def test_the_present_is_meant_where_no_time_is_given(facts: Facts) -> None:
    body = {"pool": {"driver": "550.54.15", "gpu": "L4"}, "stack": {"cuda": "12.4"}}
    verdict = decide_pool(body, facts)
    decided = datetime.fromisoformat(verdict.decided_at)
    assert abs((datetime.now(UTC) - decided).total_seconds()) < 60


def test_facts_alone_know_no_targets(facts: Facts) -> None:
    with pytest.raises(BadInput, match="facts alone know no targets"):
        decide_pool({"target": "prod", "stack": {"cuda": "12.4"}}, facts)


def test_nothing_heavy_is_imported_to_decide_on_a_pool() -> None:
    program = f"""
import sys
from compatgate.catalog import load_facts
from compatgate.gate.local import decide_pool
imported = [name for name in {HEAVY!r} if name in sys.modules]
assert not imported, imported
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
