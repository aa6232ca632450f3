"""Gauges, profiles, grids, effective dimension, slack, projective: against other engines."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import effective, gauges, grid, profiles, projective, size, slack
from oracles.exact_rank import corank_one
from oracles.kernel_steps import rank_at_most
from oracles.rational import (
    centred,
    full_rank_factors,
    identity,
    inner,
    inverse,
    is_positive_semidefinite,
    matrix,
    norm,
    null_space,
    ones,
    rank,
    square_norm,
    zeros,
)
from oracles.two_bit import channel

small = st.integers(-3, 3)
weights = st.fractions("1/9", 9, max_denominator=9)


def square(n):
    return st.lists(st.lists(small, min_size=n, max_size=n), min_size=n, max_size=n).map(matrix)


def residual_by_highs(F):
    """q(F) = min 2 max |F_ij - a_i - b_j| as a float linear program."""
    optimize = pytest.importorskip("scipy.optimize")
    m, n = F.shape
    A, b = [], []
    for i, j in product(range(m), range(n)):
        row = np.zeros(m + n + 1)
        row[[i, m + j]], row[-1] = 1, 0
        for sign in (1, -1):
            bound = sign * row
            bound[-1] = -1
            A.append(bound)
            b.append(sign * float(F[i, j]))
    cost = np.r_[np.zeros(m + n), 1]
    return 2 * optimize.linprog(cost, A, b, bounds=[(None, None)] * (m + n) + [(0, None)]).fun


def test_all_claims_of_these_modules_are_proven():
    for module in (effective, gauges, grid, profiles, projective, slack):
        for claim in module.claims():
            assert claim.proven, (claim.id, [s.says for s in claim.steps if not s.holds])


def test_three_cycle_by_highs():
    claim = profiles.three_cycle()
    F = claim.inputs["matrix"]
    assert claim.value == {"contrast": Fraction(3, 2), "q": Fraction(2)}
    assert residual_by_highs(F) == pytest.approx(2)


@pytest.mark.parametrize("g", [Fraction(1), Fraction(2), Fraction(4), Fraction(1, 2)])
def test_best_native_direction_by_sampling(g):
    head = gauges.Head(gauges.CROSS, gauges.CROSS).gauged(g, 1)
    claim = gauges.best_direction(g)
    angles = np.linspace(0, np.pi, 20001)
    u = np.stack([np.cos(angles), np.sin(angles)])
    widths = [np.ptp(P.astype(float) @ u, axis=0) for P in (head.Q, head.K)]
    sampled = (widths[0] * widths[1] / 2).min()
    assert sampled >= float(claim.value["q"]) - 1e-12
    assert sampled == pytest.approx(float(claim.value["q"]), rel=1e-3)
    direction = claim.steps[1].witness["discarded_direction"]
    assert residual_by_highs(gauges.discarded(head, direction)) == pytest.approx(sampled, rel=1e-3)


def test_published_residuals_of_the_gauge_example():
    one, two = gauges.best_direction(Fraction(1)), gauges.best_direction(Fraction(2))
    assert one.value["q"] == 1
    assert two.value["q"] == Fraction(8, 5)
    assert float(one.value["tau"].lower) == pytest.approx(2 * np.tanh(1 / 4), abs=1e-15)
    assert float(two.value["tau"].lower) == pytest.approx(2 * np.tanh(2 / 5), abs=1e-15)


def test_native_size_by_brute_force():
    head = gauges.Head(gauges.SQUARE, gauges.SQUARE).gauged(2, Fraction(1, 2))
    largest = [max(np.linalg.norm(row) for row in P.astype(float)) for P in (head.Q, head.K)]
    assert largest[0] * largest[1] == pytest.approx(17 / 4)


def test_a_centre_that_is_not_optimal_is_no_proof():
    points = matrix([[0], [1], [3]])
    _, radius, step = size.enclosing_ball(points, matrix(["1/2", 0, "1/2"]))
    assert (radius, step.holds) == (Fraction(9, 4), True)
    assert not size.enclosing_ball(points, matrix(["1/3", "1/3", "1/3"]))[2].holds
    assert not size.enclosing_ball(points, matrix([2, 0, -1]))[2].holds


def test_size_proofs_can_fail():
    T = centred(matrix([[1, -1], [-1, 1]]))
    x, half = matrix([[1], [-1]]), ones(2) / 2
    good = (T, Fraction(1), (x, x), (half, half), (half, half, T / 4))
    assert all(step.holds for step in size.size_steps(*good))
    above = size.size_steps(T, Fraction(2), (x, x), (half, half), (half, half, T / 2))
    assert [step.holds for step in above] == [False, False]
    off_centre = size.size_steps(T, Fraction(1), (x, x), (half, half), (half, half, x @ x.T / 2))
    assert not off_centre[1].holds


def test_residual_proofs_can_fail():
    F, nil = matrix([[1, -1], [-1, 1]]), zeros(2)
    assert all(s.holds for s in size.residual_steps(F, Fraction(2), (nil, nil), F / 2))
    assert not size.residual_steps(F, Fraction(1), (nil, nil), F / 2)[0].holds
    assert not size.residual_steps(F, Fraction(4), (nil, nil), F)[1].holds
    assert not size.residual_steps(F, Fraction(2), (nil, nil), matrix([[2, 0], [0, 0]]))[1].holds


@settings(deadline=None, max_examples=30)
@given(square(3))
def test_definiteness_agrees_with_sympy(B):
    S = B + B.T
    assert is_positive_semidefinite(S) == sympy.Matrix(S.tolist()).is_positive_semidefinite
    assert is_positive_semidefinite(B @ B.T)


@settings(deadline=None, max_examples=30)
@given(square(4))
def test_linear_algebra_agrees_with_sympy(A):
    reference = sympy.Matrix(A.tolist())
    r = reference.rank()
    assert rank(A) == r
    kernel = null_space(A)
    assert kernel.shape == (4, 4 - r)
    assert not (A @ kernel).any()
    assert rank(kernel) == 4 - r
    if A.any():
        X, Y = full_rank_factors(A)
        assert X.shape[1] == r
        assert np.array_equal(X @ Y, A)
    if r == 4:
        assert sympy.Matrix(inverse(A).tolist()) == reference.inv()
    else:
        with pytest.raises(ZeroDivisionError):
            inverse(A)


@pytest.mark.parametrize(("example", "epsilon"), grid.INSTANCES)
def test_grid_by_sympy_and_floats(example, epsilon):
    A = example.attention
    C = np.log(A.astype(float))
    C = C - C.mean(axis=0) - C.mean(axis=1, keepdims=True) + C.mean()
    s = -np.log(float(example.theta))
    assert np.allclose(C / s, example.interaction.astype(float))
    assert sympy.Matrix(example.interaction.tolist()).rank() == example.dimension
    assert np.linalg.norm(A.astype(float) - np.eye(len(A)), np.inf) < 1 - epsilon
    assert (A.sum(axis=1) == 1).all()


@pytest.mark.parametrize("lattice", effective.LATTICES)
def test_singular_subspace_of_the_extended_keys_by_numpy(lattice):
    r, Z = len(lattice.sides), lattice.appended
    keys = np.hstack([lattice.points, effective.TINY * Z]).astype(float)
    queries = np.hstack([lattice.points, Z]).astype(float)
    _, values, V = np.linalg.svd(keys - keys.mean(axis=0), full_matrices=False)
    assert values[r - 1] > 1e6 * values[r]
    assert np.allclose(np.abs(V[:r, :r]), np.eye(r))
    radius = np.linalg.norm(queries, axis=1).max()
    for kept in range(r + 1):
        W = V[:kept]
        rest = keys - keys @ W.T @ W
        width = max(np.linalg.norm(a - b) for a in rest for b in rest)
        tau = 2 * np.tanh(lattice.beta * radius * width / 4)
        assert (tau <= effective.EPSILON / 3) == (kept == r)


@pytest.mark.parametrize("lattice", effective.LATTICES)
def test_perturbation_stays_within_alpha(lattice):
    Z = lattice.appended
    change = lattice.beta * effective.TINY * (Z @ Z.T)
    before = (lattice.beta * lattice.queries @ lattice.keys.T).astype(float)
    alpha = max(max(row) - min(row) for row in change) / 2

    def softmax(logits):
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    moved = softmax(before + change.astype(float)) - softmax(before)
    assert np.abs(moved).sum(axis=1).max() <= float(alpha) + 1e-12
    assert float(alpha) < 1e-7


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.fractions("1/9", 9, max_denominator=9), st.fractions("1/9", 9, max_denominator=9)
        ),
        min_size=1,
        max_size=5,
    )
)
def test_projective_inequality(pairs):
    p, q = (matrix(column) for column in zip(*pairs, strict=True))
    assert projective.bounded(p / p.sum(), q / q.sum())


def test_projective_inequality_without_the_factor_two_is_false():
    """The sharp instance contradicts a bound of tanh(osc/4)."""
    claim = projective.sharp(1, Fraction(7))
    assert claim.value == Fraction(3, 2) > Fraction(6, 8)


def test_cross_ratio_determines_the_interaction():
    A = profiles.weighted(Fraction(7)).astype(float)
    B = channel(Fraction(3, 4)).astype(float)

    def interaction(M):
        H = np.log(M)
        return H - H.mean(axis=0) - H.mean(axis=1, keepdims=True) + H.mean()

    assert np.allclose(interaction(A), interaction(B))


@pytest.mark.parametrize("w", [Fraction(7, 2), Fraction(7), Fraction(100)])
def test_any_weight_from_seven_halves_on_gives_rank_one(w):
    A, half = profiles.weighted(w), Fraction(1, 2)
    distance = 1 / norm(inverse(A))
    assert distance <= half
    assert rank_at_most(A, half, *corank_one(A).factors(A)).holds


def test_slack_of_exactly_alpha_is_refused():
    claim = slack.charged()
    assert claim.value == 0
    assert claim.proven


def test_square_norms():
    assert square_norm(matrix([3, 4])) == 25
    assert inner(identity(2), matrix([[1, 2], [3, 4]])) == 5
