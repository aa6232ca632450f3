"""Targets: what is accepted, how den is chosen, and that alpha bounds the true distance."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from softrank_exact import Target, UserError
from softrank_exact.targets import BUDGET

EPS = Fraction(1, 4)


def true_softmax(logits: list[Any]) -> list[arb]:
    """Softmax in balls, computed apart from intake: plain exponentials, no shift."""
    weights = [arb(0) if h is None else arb(h).exp() for h in logits]
    total = sum(weights, arb(0))
    return [weight / total for weight in weights]


logit = st.one_of(st.floats(-700, 700), st.sampled_from([0.0, 1e-300, 5e-324, -700.0, 700.0]))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(logit, min_size=3, max_size=3), min_size=1, max_size=3))
def test_alpha_bounds_the_distance_of_logits(rows: list[list[float]]) -> None:
    target = Target.logits(np.array(rows), EPS)
    with ctx.workprec(4000):
        for row, integers in zip(rows, target.N.tolist(), strict=True):
            pairs = zip(true_softmax(row), integers, strict=True)
            distance = sum((abs(p - arb(k) / target.den) for p, k in pairs), arb(0))
            assert distance < arb(target.alpha.numerator) / target.alpha.denominator
    assert target.budget(EPS) == "within"


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=6, max_size=6), st.sampled_from(["1/4", "1/1000", "0"]))
def test_alpha_is_the_distance_of_a_matrix(values: list[float], eps: str) -> None:
    A = np.array(values).reshape(2, 3)
    target = Target.matrix(A, eps)
    distance = max(
        sum(abs(Fraction(a) - Fraction(k, target.den)) for a, k in zip(row, integers, strict=True))
        for row, integers in zip(A.tolist(), target.N.tolist(), strict=True)
    )
    assert distance <= target.alpha <= distance + Fraction(1, 1 << 80)
    if eps == "0":
        assert target.alpha == 0
    else:
        assert target.alpha <= min(Fraction(1, 10**8), Fraction(eps) / (1 << 20)) + Fraction(
            1, 1 << 80
        )


def test_dyadic_entries_stay_exact() -> None:
    target = Target.matrix(np.array([[0.5, 0.25, 0.25]]), EPS)
    assert (target.den, target.alpha, target.N.tolist()) == (4, 0, [[2, 1, 1]])


def test_a_float32_attention_matrix_is_not_the_softmax_of_its_logits() -> None:
    """Its distance is over the budget, and that of float64 is within."""
    H = np.random.default_rng(0).standard_normal((64, 64)) * 4
    exact = Target.logits(H, EPS)
    single = H.astype(np.float32)
    weights = np.exp(single - single.max(axis=1, keepdims=True))
    stored = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float64)
    declared = Target.logits(H, EPS).declared
    N = np.rint(stored * exact.den).astype(np.int64)
    assert declared.distance_bound(N) > BUDGET
    assert exact.alpha < BUDGET


def test_qk_is_the_exact_product() -> None:
    """A product that float64 rounds: 2^53 + 1 - 2^53 against 0."""
    Q, K = np.array([[2.0**53, 1.0, -(2.0**53)]]), np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    target = Target.qk(Q, K, EPS)
    # Softmax of (1, 0), although float64 may have summed to (0, 0) or (2, 0).
    with ctx.workprec(200):
        expected = true_softmax([1, 0])
        pairs = zip(expected, target.N.tolist()[0], strict=True)
        distance = sum((abs(p - arb(k) / target.den) for p, k in pairs), arb(0))
        assert distance <= arb(target.alpha.numerator) / target.alpha.denominator


def test_over_sqrt_and_bias() -> None:
    Q, K = np.array([[1.0, 2.0], [0.5, -1.0]]), np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 1.0]])
    bias = np.array([[0.0, -np.inf, 1.0], [0.25, 0.0, 0.0]])
    target = Target.qk(Q, K, EPS, over_sqrt=2, bias=bias)
    reference = Q @ K.T / np.sqrt(2) + bias
    weights = np.exp(reference)
    assert np.allclose(target.float_matrix, weights / weights.sum(axis=1, keepdims=True), atol=1e-8)
    assert target.N[0, 1] == 0
    assert target.budget(EPS) == "within"


def test_budget_words() -> None:
    H = np.zeros((1, 3))
    assert Target.logits(H, "1/4").budget(EPS) == "within"
    tiny = Fraction(1, 10**30)
    assert Target.logits(H, tiny).budget(tiny) == "unusable"
    assert Target.matrix(np.eye(2), 0).budget(Fraction(0)) == "within"


def test_the_ledger_sums_to_alpha() -> None:
    for target in (
        Target.logits(np.arange(6.0).reshape(2, 3), EPS),
        Target.qk(np.eye(2), np.eye(2), EPS),
        Target.matrix(np.random.default_rng(0).random((2, 3)), EPS),
    ):
        assert sum(line.bound for line in target.ledger) == target.alpha
        assert all(line.bound >= 0 for line in target.ledger)


def test_fractions_of_any_denominator() -> None:
    target = Target.fractions([[Fraction(1, 3), Fraction(2, 3)], [Fraction(1, 7), Fraction(6, 7)]])
    assert (target.den, target.alpha) == (21, 0)
    with pytest.raises(UserError, match=r"2\^62"):
        Target.fractions([[1 - Fraction(1, 3**30), Fraction(1, 2**40)]])


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.array([[np.nan, 1.0]]), "A[0, 0] is nan"),
        (np.array([[1.0, np.inf]]), "A[0, 1] is inf"),
        (np.zeros((0, 3)), "shape (0, 3)"),
        (np.zeros(3), "shape (3,)"),
        (np.zeros((1, 2, 2)), "shape (1, 2, 2)"),
        (np.ones((2, 2), dtype=complex), "dtype complex128"),
        (np.ones((2, 2), dtype=bool), "dtype bool"),
        (np.array([["a"]]), "dtype"),
        (np.array([[Fraction(1, 3)]]), "dtype object"),
        (np.ones((2, 2), dtype=np.longdouble), "dtype"),
        (np.ma.masked_array([[1.0]], mask=[[True]]), "masked array"),
        (np.array([[(1 << 53) + 1]]), "integer over 2^53"),
        (np.zeros((1, 4097)), "4097"),
        ([[1.0], [1.0, 2.0]], "not an array"),
    ],
)
def test_refused_matrices(array: Any, words: str) -> None:
    with pytest.raises(UserError) as error:
        Target.matrix(array, EPS)
    assert words in str(error.value)
    assert "accepted" in str(error.value)


def test_refused_logits_and_factors() -> None:
    with pytest.raises(UserError, match="fully masked row"):
        Target.logits(np.array([[-np.inf, -np.inf], [0.0, 0.0]]), EPS)
    with pytest.raises(UserError, match="columns"):
        Target.qk(np.ones((2, 3)), np.ones((2, 2)), EPS)
    with pytest.raises(UserError, match="over_sqrt"):
        Target.qk(np.eye(2), np.eye(2), EPS, over_sqrt=0)
    with pytest.raises(UserError, match="bias"):
        Target.qk(np.eye(2), np.eye(2), EPS, bias=np.zeros((3, 2)))
    with pytest.raises(UserError, match="overflow"):
        Target.qk(np.full((2, 2), 1e200), np.full((2, 2), 1e200), EPS)


def test_half_precision_embeds_exactly() -> None:
    values = np.array([[0.1, 0.9]], dtype=np.float16)
    target = Target.matrix(values, 0)
    assert [Fraction(k, target.den) for k in target.N.tolist()[0]] == [
        Fraction(float(v)) for v in values[0]
    ]
