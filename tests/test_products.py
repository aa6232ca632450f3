"""Device products are the kernel's integers; broken devices and false products are caught."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch_devices import DEVICES  # noqa: E402

from float_bridge import products  # noqa: E402
from float_bridge.products import (  # noqa: E402
    HALF,
    MAX_INNER,
    DeviceLimbs,
    Paranoia,
    check_device,
    random_prime,
)
from softrank_exact.errors import UserError  # noqa: E402
from softrank_exact.kernel.limbs import Limbs  # noqa: E402

pytestmark = pytest.mark.bridge


def on(values: np.ndarray, device: str = "cpu") -> DeviceLimbs:
    return DeviceLimbs.of(torch.from_numpy(values).to(device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("left", "right"), [(20, 20), (62, 20), (62, 62), (1, 62)])
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 7, 3), (9, 128, 9), (3, MAX_INNER, 2), (4, 0, 4)])
def test_products_equal_plain_python(
    left: int, right: int, shape: tuple[int, int, int], device: str
) -> None:
    m, k, n = shape
    rng = np.random.default_rng(left + right + k)
    a = rng.integers(-(1 << left), 1 << left, size=(2, m, k), endpoint=True)
    b = rng.integers(-(1 << right), 1 << right, size=(2, k, n), endpoint=True)
    expected = a.astype(object) @ b.astype(object)
    assert np.array_equal((on(a, device) @ on(b, device)).integers(), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_integers_equal_the_kernels(device: str) -> None:
    rng = np.random.default_rng(3)
    a = rng.integers(-(1 << 62), 1 << 62, size=(6, 40), endpoint=True)
    b = rng.integers(-(1 << 31), 1 << 31, size=(40, 8))
    mine = (on(a, device) @ on(b, device)).absolute().sums()
    theirs = (Limbs.of(a) @ Limbs.of(b)).absolute().sums()
    assert mine.tolist() == theirs


@settings(deadline=None, max_examples=50)
@given(
    st.integers(-(1 << 62), 1 << 62),
    st.integers(-(1 << 62), 1 << 62),
    st.integers(-(10**40), 10**40),
)
def test_arithmetic_of_single_integers(x: int, y: int, factor: int) -> None:
    a, b = on(np.array([[[x]]])), on(np.array([[[y]]]))
    assert (a - b).integers().item() == x - y
    assert (a * b).integers().item() == x * y
    assert a.times([factor]).integers().item() == x * factor
    assert a.absolute().sums().item() == abs(x)
    assert (a @ b).T.integers().item() == x * y


def test_sums_of_a_batch() -> None:
    values = np.arange(-12, 12).reshape(2, 3, 4)
    assert np.array_equal(on(values).sums(), values.sum(axis=-1).astype(object))


def test_what_could_overflow_is_refused() -> None:
    with pytest.raises(OverflowError, match="2\\^62"):
        on(np.array([[(1 << 62) + 1]]))
    with pytest.raises(OverflowError, match="inner dimension"):
        on(np.zeros((1, MAX_INNER + 1), dtype=np.int64)) @ on(
            np.zeros((MAX_INNER + 1, 1), dtype=np.int64)
        )
    with pytest.raises(OverflowError, match="summed axis"):
        on(np.zeros((1, MAX_INNER + 1), dtype=np.int64)).sums()
    with pytest.raises(TypeError, match="int64"):
        DeviceLimbs.of(torch.zeros(2, 2))


@pytest.mark.parametrize("device", DEVICES)
def test_the_self_test_passes_here(device: str) -> None:
    assert check_device(device)


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(UserError, match="accepted: cpu or cuda"):
        check_device("no-such-device")


@pytest.mark.parametrize("bits", [24, 45, 51])
def test_the_self_test_catches_reduced_precision(
    bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = torch.matmul

    def reduced(a: Any, b: Any) -> Any:
        product = exact(a, b)
        exponent = torch.floor(torch.log2(product.abs().clamp_min(1.0)))
        unit = torch.exp2(exponent - bits + 1)
        return torch.round(product / unit) * unit

    monkeypatch.setattr(torch, "matmul", reduced)
    with pytest.raises(UserError, match="not multiply integers"):
        products._known_answer(torch.device("cpu"))


@pytest.mark.parametrize("device", DEVICES)
def test_paranoia_accepts_true_products_and_reports_its_risk(device: str) -> None:
    rng = np.random.default_rng(5)
    a = rng.integers(-(1 << 60), 1 << 60, size=(3, 8, 50))
    b = rng.integers(-(1 << 30), 1 << 30, size=(3, 50, 9))
    paranoia = Paranoia()
    product = paranoia.multiply(on(a, device), on(b, device))
    assert np.array_equal(product.integers(), a.astype(object) @ b.astype(object))
    assert paranoia.products == 3
    assert 0 < paranoia.false_accept < Fraction(1, 10**11)


@pytest.mark.parametrize("digit", [0, 1, 4])
def test_paranoia_catches_one_wrong_digit(digit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    a, b = (on(rng.integers(-(1 << 60), 1 << 60, size=(2, 6, 6))) for _ in range(2))
    exact = DeviceLimbs.__matmul__

    def wrong(x: DeviceLimbs, y: DeviceLimbs) -> DeviceLimbs:
        digits = exact(x, y).digits
        digits[digit][1, 2, 3] += 1
        return DeviceLimbs(digits)

    monkeypatch.setattr(DeviceLimbs, "__matmul__", wrong)
    with pytest.raises(UserError, match="false modulo"):
        Paranoia().multiply(a, b)


def test_random_primes_are_prime_and_in_range() -> None:
    sympy = pytest.importorskip("sympy")
    drawn = {random_prime() for _ in range(20)}
    assert len(drawn) > 10
    assert all(1 << 30 < p < 1 << 31 and sympy.isprime(p) for p in drawn)


def test_extreme_digits_sum_exactly() -> None:
    a = np.full((1, MAX_INNER), HALF)
    assert (on(a) @ on(a.T)).integers().item() == MAX_INNER * HALF * HALF


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("inner", [1, 5, 129, MAX_INNER // 2, MAX_INNER // 2 + 1, MAX_INNER])
@pytest.mark.parametrize("bits", [20, 41, 62])
def test_a_gram_matrix_equals_plain_python(inner: int, bits: int, device: str) -> None:
    """Half of its digit products are taken as transposes; their sums stay within 2^52."""
    a = np.random.default_rng(inner).integers(-(1 << bits), 1 << bits, (2, inner, 3), endpoint=True)
    a[0] = sum(HALF << (21 * t) for t in range(1 + bits // 42))  # digits extreme
    limbs = on(a, device)
    expected = a.astype(object).swapaxes(1, 2) @ a.astype(object)
    assert np.array_equal((limbs.T @ limbs).integers(), expected)
