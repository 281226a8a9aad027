"""A stored verdict, and its signed content."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attest_keys import signer_of

from compatgate.service.audit.statement import (
    VerdictContent,
    verdict_content,
    verdict_statement,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DIGEST = "ab" * 32
IMAGE = f"registry.example:5000/team/app:1.2@sha256:{DIGEST}"


@pytest.fixture
def stored(ask: Any) -> Callable[..., str]:
    """A verdict as the store keeps it."""

    def make(**changes: Any) -> str:
        verdict = ask(
            {"driver": "550.54.15", "gpu": "A100-SXM4-80GB", "name": "a100-80", "count": 512},
            {"cuda": "12.4", "cudnn": "9.1.0", "arch": ["sm_90", "sm_80"]},
            target="prod-a100",
        )
        return json.dumps({**verdict.to_json(), "id": f"vd_{'0' * 32}", **changes})

    return make


@pytest.fixture
def about(stored: Callable[..., str]) -> Callable[..., VerdictContent]:
    """What is vouched for of a verdict."""

    def make(*, days: int = 7, confirmed: datetime | None = None, **changes: Any) -> VerdictContent:
        body = stored(**changes)
        return verdict_content(body, confirmed_at=confirmed, valid_for=timedelta(days=days))

    return make


@pytest.fixture
def statement(about: Callable[..., VerdictContent]) -> Callable[..., dict[str, Any]]:
    """The statement about a verdict."""
    return lambda **changes: verdict_statement(about(**changes))


@pytest.fixture(scope="session")
def signer() -> Any:
    """Who is trusted."""
    return signer_of()


@pytest.fixture(scope="session")
def other() -> Any:
    """Who is not."""
    return signer_of()
