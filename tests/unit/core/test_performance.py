"""Digests are SHA-256; caches and hints for misspelt names stay within their bounds."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import threading
from contextvars import copy_context

import pytest

from compatgate.core import performance as module
from compatgate.core.performance import BoundedCache, begin_budget, near_names, sha256

KIB = 1024
LENGTHS = (0, 1, 2046, 2047, 2048, 4094, 4095, 5000, 100_000)
KNOWN = ["cudnn", "cublas", "nccl"]


def text(length: int) -> bytes:
    return bytes(index * 31 % 251 for index in range(length))


@pytest.mark.parametrize("length", LENGTHS)
def test_a_text_of_any_length_has_its_sha256(length: int) -> None:
    assert sha256(text(length)) == hashlib.sha256(text(length)).hexdigest()


def test_a_question_about_a_pool_does_without_openssl() -> None:
    """Loading it would take longer than the answer."""
    program = """
import sys
from compatgate.cli.main import main
status = main(["check", "--pool", "driver=535.104.05,gpu=L4", "--stack", "cuda=12.4,arch=sm_89"])
assert status == 0, status
assert "hashlib" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_was_used_longest_ago_makes_room() -> None:
    cache: BoundedCache[str, int] = BoundedCache(32 * KIB)
    for n in range(16):
        cache.put(str(n), n, 1848)  # and 200 for the entry: all that there is room for
    assert cache.get("0") == 0
    cache.put("16", 16, 1848)
    cache.put("17", 17, 1848)
    assert [cache.get(str(n)) for n in (0, 1, 2, 3, 16, 17)] == [0, None, None, 3, 16, 17]


def test_peeking_renews_nothing() -> None:
    cache: BoundedCache[str, int] = BoundedCache(32 * KIB, 2)
    cache.put("a", 1, 10)
    cache.put("b", 2, 10)
    assert cache.peek("a") == 1
    cache.put("c", 3, 10)
    assert (cache.peek("a"), cache.peek("b"), cache.peek("c")) == (None, 2, 3)


def test_a_value_that_would_displace_many_is_not_stored() -> None:
    cache: BoundedCache[str, int] = BoundedCache(32 * KIB)
    cache.put("small", 1, 100)
    cache.put("large", 2, 3 * KIB)
    cache.put("small", 2, 3 * KIB)  # it has grown
    assert (cache.get("small"), cache.get("large"), cache.size, len(cache)) == (None, None, 0, 0)


def test_a_replaced_value_counts_once() -> None:
    cache: BoundedCache[str, int] = BoundedCache(32 * KIB)
    for size in (10, 1000, 100):
        cache.put("a", size, size)
    assert cache.get("a") == 100
    assert cache.size == 300
    cache.drop("a")
    assert cache.size == 0


def test_many_threads_keep_the_count_right() -> None:
    cache: BoundedCache[int, int] = BoundedCache(64 * KIB)

    def work(seed: int) -> None:
        chosen = random.Random(seed)
        for _ in range(3000):
            key = chosen.randrange(200)
            chosen.choice([cache.get, cache.peek, cache.drop])(key)
            cache.put(key, key, chosen.randrange(2000))
            assert cache.size <= 64 * KIB

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.size == sum(size for _, size in cache._entries.values())
    cache.clear()
    assert (cache.size, len(cache)) == (0, 0)


def test_the_nearest_names_come_first() -> None:
    assert near_names("cudn", KNOWN) == ["cudnn"]
    assert near_names("zebra", KNOWN) == []


def test_a_name_beyond_any_slip_is_not_compared() -> None:
    assert near_names("cudnn" * 20, ["cudnn" * 20]) == []
    assert near_names("cudn", [*KNOWN, *map(str, range(6000))]) == []


def test_a_request_pays_for_a_bounded_number_of_comparisons() -> None:
    def request() -> list[list[str]]:
        begin_budget(10)
        return [near_names("cudn", KNOWN) for _ in range(40_000)]

    found = copy_context().run(request)
    assert found[:4] == [["cudnn"], ["cudnn"], ["cudnn"], []]
    assert not any(found[3:])


def test_a_command_has_no_budget() -> None:
    def command() -> None:
        module._left.set(None)
        assert all(near_names("cudn", KNOWN) for _ in range(20))

    copy_context().run(command)
