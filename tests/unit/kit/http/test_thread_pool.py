"""A lane starts few threads for short calls, more for long ones, and ends them again."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Coroutine
from typing import Any

import pytest

from compatgate.kit.http import wsgi
from compatgate.kit.http.wsgi import Lane

PATIENCE_SECONDS = 10


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, PATIENCE_SECONDS))


def count_threads(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


def wait_until_few(name: str, most: int) -> int:
    end = time.monotonic() + PATIENCE_SECONDS
    while (found := count_threads(name)) > most and time.monotonic() < end:
        time.sleep(0.005)
    return found


def test_a_call_returns_its_result() -> None:
    async def ask() -> Any:
        return await Lane("results", 4).start(max, 3, 5)

    assert run(ask()) == 5


def test_an_error_reaches_the_caller() -> None:
    async def ask() -> Any:
        return await Lane("errors", 4).start(int, "five")

    with pytest.raises(ValueError, match="five"):
        run(ask())


def test_short_calls_share_few_threads() -> None:
    async def ask() -> int:
        pool = Lane("short", 32)
        for _ in range(20):
            await asyncio.gather(*(pool.start(len, "short") for _ in range(50)))
        return count_threads("short")

    assert 1 <= run(ask()) <= 3


def test_one_thread_is_enough_for_short_calls_where_the_pool_says_so() -> None:
    async def ask() -> tuple[int, Any]:
        pool = Lane("single", 32, short=1)
        await asyncio.gather(*(pool.start(len, "single") for _ in range(50)))
        few = count_threads("single")
        released = threading.Event()
        waiting = pool.start(released.wait)
        found = await pool.start(len, "four")  # a call that lasts does not hold it up
        released.set()
        await waiting
        return few, found

    assert run(ask()) == (1, 4)


def test_long_calls_get_threads_up_to_the_limit() -> None:
    released = threading.Event()

    async def ask() -> int:
        pool = Lane("long", 8)
        calls = [pool.start(released.wait) for _ in range(12)]
        while count_threads("long") < 8:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.1)  # a ninth would be there by now
        found = count_threads("long")
        released.set()
        await asyncio.gather(*calls)
        return found

    assert run(ask()) == 8


def test_a_short_call_passes_long_ones() -> None:
    released = threading.Event()

    async def ask() -> Any:
        pool = Lane("passing", 8)
        waiting = [pool.start(released.wait) for _ in range(6)]
        found = await pool.start(len, "four")
        released.set()
        await asyncio.gather(*waiting)
        return found

    assert run(ask()) == 4


def test_threads_end_with_the_long_calls() -> None:
    released = threading.Event()

    async def ask() -> None:
        pool = Lane("ending", 16)
        calls = [pool.start(released.wait) for _ in range(16)]
        while count_threads("ending") < 16:
            await asyncio.sleep(0.005)
        released.set()
        await asyncio.gather(*calls)

    run(ask())
    assert wait_until_few("ending", 3) <= 3


def test_idle_threads_end_and_new_ones_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wsgi, "_IDLE_SECONDS", 0.02)

    async def ask() -> tuple[int, Any]:
        pool = Lane("idle", 4)
        await pool.start(len, "one")
        found = await asyncio.to_thread(wait_until_few, "idle", 0)
        return found, await pool.start(len, "two")

    assert run(ask()) == (0, 3)


def test_a_cancelled_call_is_skipped_while_it_waits() -> None:
    released = threading.Event()
    called: list[int] = []

    async def ask() -> None:
        pool = Lane("cancelled", 1)
        first = pool.start(released.wait)
        second = pool.start(called.append, 1)
        second.cancel()
        third = pool.start(called.append, 2)
        released.set()
        await asyncio.gather(first, third)

    run(ask())
    assert called == [2]


def test_nothing_of_a_call_is_kept() -> None:
    class Large:
        pass

    async def ask() -> weakref.ref[Large]:
        pool = Lane("keeping", 2)
        large = Large()
        kept = weakref.ref(large)

        def fail(thing: Large) -> None:
            raise ValueError("refused")

        gc.disable()
        try:
            future = pool.start(fail, large)
            del large
            await asyncio.wait([future])
            assert isinstance(future.exception(), ValueError)
            del future
            end = time.monotonic() + 1
            while kept() is not None and time.monotonic() < end:
                await asyncio.sleep(0.005)  # the thread forgets after it told the result
        finally:
            gc.enable()
        return kept

    assert run(ask())() is None
