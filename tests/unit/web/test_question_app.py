"""Questions on the event loop leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

import httpx
import pytest
from flask.testing import FlaskClient

from compatgate.errors import CompatgateError
from compatgate.web.app import EXTENSION
from compatgate.web.asgi import Front

GATE = "/api/v1/gate"
QUESTION = json.dumps({"target": "prod-a10", "stack": {"cuda": "12.4"}}).encode()


@pytest.mark.parametrize("body", [b"{", b'{"target": 1}', QUESTION, b"[" * 100 + b"]" * 100])
def test_a_refused_question_is_freed_without_the_collector(
    client: FlaskClient, body: bytes
) -> None:
    front = Front(client.application, client.application.extensions[EXTENSION], 2)

    async def ask() -> int:
        transport = httpx.ASGITransport(front)
        async with httpx.AsyncClient(transport=transport, base_url="http://gate") as asker:
            kind = {"Content-Type": "application/json"}
            return (await asker.post(GATE, content=body, headers=kind)).status_code

    def errors() -> int:
        return sum(isinstance(found, CompatgateError) for found in gc.get_objects())

    async def count() -> Any:
        assert await ask() >= 400  # what is made once is made now
        gc.collect()
        others = errors()  # of tests before this one
        gc.disable()
        try:
            assert await ask() >= 400
            await asyncio.sleep(0.05)  # the thread forgets after it reported the result
            return errors() - others
        finally:
            gc.enable()

    assert asyncio.run(count()) <= 0
