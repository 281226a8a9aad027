"""Backtest changes of the matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from compatgate.client.request import LONG_S, Operation, Request, post
from compatgate.service.backtests.schemas import BacktestBody, BacktestRequest


@Operation
def backtest(body: BacktestRequest | Mapping[str, Any]) -> Request[BacktestBody]:
    """Backtest a change of the matrix: decide recorded questions before and after it.

    Args:
        body: the documents to create, change or delete, and the period.
    """
    request = post("/backtests", BacktestBody, body=body, reads=BacktestRequest, repeatable=True)
    return structs.replace(request, patience=LONG_S)
