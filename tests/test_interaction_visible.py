"""The visible interaction and its rank (MATH 3.2, 3.3), and what is refused."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from softrank_exact import Target, UserError
from softrank_exact.interaction import (
    ExactMatrix,
    VisibleInteraction,
    of_logits,
    of_matrix,
    of_qk,
    residual,
    visible,
)


def sympy_rank(C: ExactMatrix) -> int:
    return int(sympy.Matrix(C.numerators.tolist()).rank())


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 4), st.randoms(use_true_random=False))
def test_the_rank_of_factors_is_that_of_sympy(m: int, n: int, d: int, random: object) -> None:
    rng = np.random.default_rng(random.randrange(10**6))  # type: ignore[attr-defined]
    Q, K = rng.integers(-1, 2, (m, d)), rng.integers(-1, 2, (n, d))
    found = of_qk(Q, K, Fraction(1, 3), 2)
    rank = found.rank()
    assert rank.lower == rank.upper == sympy_rank(found.centred())


def test_the_visible_dimension_forgets_what_queries_do_not_see() -> None:
    """rank C = dim P_U span{k_j - k_1}: the third key component is orthogonal to U (MATH 3.3)."""
    Q = [[1, 0, 5], [0, 1, 5], [-1, -1, 5]]
    K = [[1, 0, 7], [2, 0, -3], [3, 0, 1], [4, 0, 0]]
    assert of_qk(Q, K).rank().lower == 1
    assert of_qk(Q, K).rank().upper == 1


def test_row_terms_never_matter_and_column_terms_only_to_the_base_weights() -> None:
    rng = np.random.default_rng(0)
    H = rng.integers(-8, 9, (5, 6)) / 8
    shifted = H + rng.integers(-8, 9, (5, 1)) + rng.integers(-8, 9, (1, 6))
    assert of_logits(H).centred().equals(of_logits(shifted).centred())


def test_a_target_gives_its_declared_interaction() -> None:
    rng = np.random.default_rng(1)
    Q, K = rng.integers(-4, 5, (5, 3)) / 4, rng.integers(-4, 5, (6, 3)) / 4
    target = Target.qk(Q, K, "1/4", scale="3/2", over_sqrt=2)
    found = visible(target)
    assert found.exact
    assert found.unit.lower**2 <= Fraction(9, 8) <= found.unit.upper**2
    logits = visible(Target.logits(Q @ K.T, "1/4"))
    assert logits.centred().equals(found.centred())
    A = [[Fraction(1, 3), Fraction(2, 3)], [Fraction(1, 2), Fraction(1, 2)]]
    assert visible(Target.fractions(A)).rank().lower == 1
    assert visible(Target.matrix(np.array([[0.25, 0.75], [0.5, 0.5]]))).rank().lower == 1


def test_a_bias_over_an_irrational_scale_is_enclosed() -> None:
    rng = np.random.default_rng(2)
    Q, K = rng.integers(-4, 5, (4, 2)) / 4, rng.integers(-4, 5, (5, 2)) / 4
    bias = rng.integers(-4, 5, (4, 5)) / 4
    found = of_qk(Q, K, Fraction(1), 2, bias)
    assert 0 < found.radius < Fraction(1, 1 << 80)
    expected = Q @ K.T / np.sqrt(2) + bias
    assert np.abs(found.logits.floats() - expected).max() < 1e-14
    assert of_qk(Q, K, Fraction(1), 4, bias).exact


def test_powers_of_one_base_are_exact() -> None:
    """The finite grid of MATH 9.3: C = 2 s P (x.y) P with s = log(3/2)."""
    x = np.arange(4)
    theta = Fraction(2, 3)
    rows = [[theta ** int((a - b) ** 2) for b in x] for a in x]
    A = [[entry / sum(row) for entry in row] for row in rows]
    found = of_matrix(A)
    assert found.exact
    assert found.rank().lower == found.rank().upper == 1
    assert found.unit.lower < Fraction(np.log(2.25)) + Fraction(1, 10**12)
    assert found.unit.upper > Fraction(np.log(2.25)) - Fraction(1, 10**12)
    assert found.centred().equals(ExactMatrix.of(np.outer(x, x)).doubly_centred())


def test_a_matrix_of_several_bases_is_enclosed() -> None:
    A = np.array([[2.0, 3, 5], [7, 11, 13], [17, 19, 23]])
    found = of_matrix(A / A.sum(axis=1, keepdims=True))
    assert not found.exact
    assert found.radius < Fraction(1, 1 << 250)
    assert np.abs(found.logits.doubly_centred().floats() - _centred(np.log(A))).max() < 1e-14
    assert found.rank().lower == found.rank().upper == 2


def test_the_rank_of_an_enclosure_sees_proportional_rows() -> None:
    rows = [[Fraction(2), Fraction(3), Fraction(5)], [Fraction(7), Fraction(11), Fraction(13)]]
    A = [rows[0], rows[1], [3 * entry for entry in rows[1]], [entry / 7 for entry in rows[0]]]
    rank = of_matrix(A).rank()
    assert (rank.lower, rank.upper) == (1, 1)


def test_the_rank_of_an_enclosure_is_never_above_the_truth() -> None:
    """Rank two by construction; the enclosure cannot know it, and must not claim three."""
    x = np.array([[1, 0], [0, 1], [1, 1], [2, 1], [1, 3]])
    A = [[Fraction(2) ** int(a * c) * Fraction(3) ** int(b * d) for c, d in x] for a, b in x]
    rank = of_matrix(A).rank()
    assert rank.lower == 2
    assert rank.upper >= 2


@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (1, 1)])
def test_one_row_or_column_sees_nothing(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(5)
    found = of_logits(rng.standard_normal(shape))
    assert found.rank().upper == 0
    assert residual(found.logits).value == 0


def test_constant_and_repeated_rows() -> None:
    H = np.array([[1.0, 2, 3], [5, 6, 7], [0, 0, 1], [0, 0, 1]])
    assert of_logits(H).rank().lower == 1
    assert of_logits(np.ones((4, 3))).rank().upper == 0


def test_scale_zero_sees_nothing() -> None:
    found = of_qk(np.eye(3), np.eye(3), Fraction(0))
    assert found.rank().upper == 0


def test_keys_that_every_query_masks_are_left_out() -> None:
    H = np.array([[0.0, -np.inf, 1], [1, -np.inf, 0]])
    found = of_logits(H)
    assert found.columns == (0, 2)
    assert found.rank().lower == 1


def test_a_row_dependent_mask_is_refused_by_name() -> None:
    H = np.where(np.tri(4, dtype=bool), 0.0, -np.inf)
    with pytest.raises(UserError, match=r"row-dependent mask.*common-support block"):
        visible(Target.logits(H, "1/4"))
    with pytest.raises(UserError, match="row-dependent mask"):
        of_qk(np.eye(4), np.eye(4), bias=H)


@pytest.mark.parametrize("entry", [0.0, -0.25])
def test_entries_without_a_logarithm_are_refused(entry: float) -> None:
    A = np.array([[0.5, 0.5], [1.0, entry]])
    with pytest.raises(UserError, match=r"A\[1, 1\] is (zero|negative)"):
        visible(Target.matrix(A))


@pytest.mark.parametrize(
    "H", [np.zeros((0, 3)), np.array([[np.nan]]), np.array([[np.inf, 0]]), [[1, 2], [3]], [["a"]]]
)
def test_no_matrix_is_refused(H: object) -> None:
    with pytest.raises(UserError, match=r"expected|accepted|not a finite"):
        of_logits(H)


def test_factors_must_fit() -> None:
    with pytest.raises(UserError, match="Q has 2 columns and K 3"):
        of_qk(np.eye(2), np.eye(3))


def test_tiny_entries() -> None:
    A = np.array([[1e-300, 1.0, 1e-5], [0.5, 0.25, 0.25], [0.1, 0.2, 0.7]])
    found: VisibleInteraction = of_matrix(A)
    assert np.abs(found.centred().floats() - _centred(np.log(A))).max() < 1e-11
    assert found.rank().lower == 2


def _centred(H: np.ndarray) -> np.ndarray:
    return H - H.mean(axis=0) - H.mean(axis=1, keepdims=True) + H.mean()
