"""A cache drops what was used longest ago before it takes more bytes than it may."""

from __future__ import annotations

import random
import threading

from compatgate.core.bounded_cache import BoundedCache

KIB = 1024


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
