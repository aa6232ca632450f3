"""Limb arithmetic equals Python's integers and python-flint's, extremes included."""

from __future__ import annotations

from typing import Any

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from softrank_exact.kernel.limbs import HALF, LARGEST, Limbs, identity

BITS = (1, 20, 21, 22, 33, 42, 52, 53, 54, 62, 64, 90, 300)


def entries(bits: int) -> st.SearchStrategy[int]:
    top = 1 << bits
    extreme = st.sampled_from([top, -top, top - 1, 1 - top, HALF, -HALF, 0])
    return st.one_of(st.integers(-top, top), extreme)


@st.composite
def arrays(draw: st.DrawFn, rows: int, columns: int) -> NDArray[Any]:
    bits = draw(st.sampled_from(BITS))
    flat = draw(st.lists(entries(bits), min_size=rows * columns, max_size=rows * columns))
    array = np.empty(rows * columns, dtype=object)
    array[:] = flat
    return array.reshape(rows, columns)


def exact(limbs: Limbs, expected: NDArray[Any]) -> None:
    """Equal entries, digits within the bound, before and after carrying."""
    for form in (limbs, limbs.carried(1), limbs.carried(1 << 30)):
        assert form.integers() == expected.tolist()
        assert all(np.abs(digit).max(initial=0) <= form.bound for digit in form.digits)
        assert all(np.all(digit == np.rint(digit)) for digit in form.digits)


sizes = st.integers(0, 4)


@settings(max_examples=150, deadline=None)
@given(st.data(), sizes, sizes, sizes)
def test_arithmetic(data: st.DataObject, m: int, k: int, n: int) -> None:
    a, b, c = (data.draw(arrays(*shape)) for shape in ((m, k), (k, n), (m, k)))
    x, y, z = Limbs.of(a), Limbs.of(b), Limbs.of(c)
    product = a @ b if k else np.zeros((m, n), dtype=object)
    exact(x, a)
    exact(x @ y, product)
    exact((x @ y).T @ (x @ y), product.T @ product if m else np.zeros((n, n), dtype=object))
    exact(x * z, a * c)
    exact(x + z, a + c)
    exact(x - z, a - c)
    exact((x - z).absolute(), abs(a - c))
    exact(x.T, a.T)
    assert (x - z).absolute().sums() == [sum(map(abs, row)) for row in (a - c).tolist()]


@settings(max_examples=50, deadline=None)
@given(st.data(), st.integers(-(1 << 200), 1 << 200))
def test_scalars(data: st.DataObject, factor: int) -> None:
    a = data.draw(arrays(3, 2))
    exact(Limbs.of(a).times(factor), a * factor)


@pytest.mark.parametrize("shape", [(7, 9, 5), (64, 64, 64), (3, 4096, 2)])
@pytest.mark.parametrize("bits", [(44, 21), (62, 62), (33, 21)])
def test_products_equal_flint(shape: tuple[int, int, int], bits: tuple[int, int]) -> None:
    m, k, n = shape
    rng = np.random.default_rng(k)
    a = rng.integers(-(1 << bits[0]) + 1, 1 << bits[0], (m, k))
    b = rng.integers(-(1 << bits[1]) + 1, 1 << bits[1], (k, n))
    product = flint.fmpz_mat(a.tolist()) * flint.fmpz_mat(b.tolist())
    expected = [[int(entry) for entry in row] for row in product.tolist()]
    assert (Limbs.of(a) @ Limbs.of(b)).integers() == expected


@pytest.mark.parametrize("digit", [HALF, -HALF, HALF - 1])
@pytest.mark.parametrize("length", [1, 2, 40])
def test_full_digits_at_the_largest_inner_dimension(digit: int, length: int) -> None:
    """The worst case of every bound: all digits extreme, 4096 of them, many of one weight."""
    value = sum(digit << (21 * t) for t in range(length))
    row = np.array([[value] * 4096], dtype=object)
    exact(Limbs.of(row) @ Limbs.of(row).T, np.array([[4096 * value**2]], dtype=object))


def test_leading_axes_broadcast() -> None:
    rng = np.random.default_rng(1)
    a = rng.integers(-(1 << 60), 1 << 60, (5, 2, 3)).astype(object)
    b = rng.integers(-(1 << 60), 1 << 60, (3, 4)).astype(object)
    exact(Limbs.of(a) @ Limbs.of(b), np.array([x @ b for x in a], dtype=object))


def test_the_largest_single_digit() -> None:
    for value in (LARGEST, LARGEST + 1, -LARGEST - 1):
        exact(Limbs.of(np.array([value], dtype=np.int64)), np.array([value], dtype=object))


def test_identity() -> None:
    exact(identity(3), np.eye(3, dtype=np.int64).astype(object))
