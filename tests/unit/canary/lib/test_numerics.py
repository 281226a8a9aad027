"""Bounds allow what rounding does, and find a product of a coarser precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

Load = Callable[[str], ModuleType]
TERMS = 2048
MANTISSA = {"fp32": 23, "tf32": 10, "bf16": 7}


@pytest.fixture
def numerics(shared: Load) -> ModuleType:
    return shared("canary_numerics")


def _matrices(seed: int) -> tuple[np.ndarray, np.ndarray]:
    source = np.random.default_rng(seed)
    return tuple(source.standard_normal((64, TERMS)).astype(np.float32) for _ in range(2))


def _cut(matrix: np.ndarray, precision: str) -> np.ndarray:
    """Numbers cut off, not rounded, to a shorter mantissa: the worse of what hardware does."""
    mask = np.uint32(0xFFFFFFFF << (23 - MANTISSA[precision]) & 0xFFFFFFFF)
    return (matrix.view(np.uint32) & mask).view(np.float32)


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) @ b.astype(np.float64).T


@pytest.mark.parametrize("seed", range(5))
def test_rounded_inputs_are_allowed_and_coarser_ones_found(numerics: ModuleType, seed: int) -> None:
    a, b = _matrices(seed)
    exact = _product(a, b)
    errors = {p: numerics.error(_product(_cut(a, p), _cut(b, p)), exact) for p in MANTISSA}
    fp32 = numerics.product_bound(None, TERMS)
    tf32 = numerics.product_bound("tf32", TERMS)
    assert numerics.error((a @ b.T).astype(np.float64), exact) < fp32
    assert fp32 < errors["tf32"] < tf32 < errors["bf16"]


@pytest.mark.parametrize("seed", range(5))
def test_sums_in_half_precision_are_found(numerics: ModuleType, seed: int) -> None:
    a, b = (matrix.astype(np.float16) for matrix in _matrices(seed))
    exact = _product(a, b)
    bound = numerics.product_bound(None, TERMS, output="fp16")
    assert numerics.error(exact.astype(np.float16).astype(np.float64), exact) < bound
    sums = np.zeros((64, 64), np.float16)
    for term in range(TERMS):
        sums += np.outer(a[:, term], b[:, term]).astype(np.float16)
    assert numerics.error(sums.astype(np.float64), exact) > bound


@pytest.mark.parametrize("seed", range(3))
def test_a_whole_product_is_checked_with_a_few_vectors(numerics: ModuleType, seed: int) -> None:
    source = np.random.default_rng(seed)
    a = source.standard_normal((96, TERMS)).astype(np.float32)
    b = source.standard_normal((TERMS, 64)).astype(np.float32)
    signs = source.integers(0, 2, (64, numerics.VECTORS)) * 2.0 - 1
    share = numerics.whole_product
    assert 1e-4 < share(a, b, a @ b, signs) < 1
    tf32 = _cut(a, "tf32") @ _cut(b, "tf32")
    assert share(a, b, tf32, signs) > 1
    assert share(a, b, tf32, signs, "tf32", cuts=True) < 1
    assert share(a, b, _cut(a, "bf16") @ _cut(b, "bf16"), signs, "tf32", cuts=True) > 1
    half = (a @ b).astype(np.float16)
    assert share(a, b, half, signs, output="fp16", cuts=True) < 1
    assert share(a, b, half, signs) > 1
    for place in ((0, 0), (95, 63)):
        wrong = a @ b
        wrong[place] += 1
        assert share(a, b, wrong, signs) > 1
        wrong[place] = np.nan
        assert share(a, b, wrong, signs) == math.inf
    swapped = half.copy()
    swapped[[5, 6]] = half[[6, 5]]
    assert share(a, b, swapped, signs, output="fp16", cuts=True) > 1
    assert share(a * 0, b, a @ b * 0, signs) == 0
    assert share(a * 0, b, wrong * 0 + 1e-30, signs) == math.inf


def test_what_is_not_finite_is_infinitely_wrong(numerics: ModuleType) -> None:
    right = np.array([1.0, 2.0])
    assert numerics.error(np.array([1.0, np.nan]), right) == math.inf
    assert numerics.error(np.array([1.0, np.inf]), right) == math.inf
    assert numerics.error(np.zeros(2), np.zeros(2)) == 0
    assert numerics.error(np.ones(2), np.zeros(2)) == math.inf
    assert numerics.error(np.array([1.0, 1.5]), right) == 0.25


def test_digests_are_of_bits(numerics: ModuleType) -> None:
    zero, minus = np.array([0.0]), np.array([-0.0])
    assert zero == minus
    assert numerics.bits(zero) != numerics.bits(minus)
    assert numerics.bits(zero) == numerics.bits(zero.copy())


def test_checks_say_how_far_and_how_many(
    numerics: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    numerics.check_error("right", 0.5, 0.25, "fp16")
    numerics.check_same("same", ["a", "a", "b"])
    first, second = capsys.readouterr().out.splitlines()
    assert '"ok": false, "message": "fp16: error 0.5, allowed 0.25"' in first
    assert '"ok": false, "message": "2 results in 3 runs"' in second
