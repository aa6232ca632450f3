"""The small solver against closed forms, other engines and the symmetries of the rank."""

import json
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from oracles.exact_rank import (
    combinations_of,
    corank_one,
    exact_rank,
    far_hyperplane,
    hyperplane_height,
    rank_one,
)
from oracles.known_answers import PATH
from oracles.rational import identity, inverse, matrix, norm, rank
from softrank_exact import UserError

ANY_SIZE = st.integers(1, 4)
entries = st.integers(-4, 4)
tolerances = st.fractions(min_value=0, max_value=6, max_denominator=6)


@st.composite
def matrices(draw, sizes=ANY_SIZE):
    m, n = draw(sizes), draw(sizes)
    row = st.lists(entries, min_size=n, max_size=n)
    return matrix(draw(st.lists(row, min_size=m, max_size=m)))


def steps_hold(bracket):
    return all(s is None or s.holds for s in (bracket.lower_step, bracket.upper_step))


@settings(deadline=None, max_examples=30)
@given(matrices(), tolerances)
def test_brackets_are_proven_and_consistent(A, epsilon):
    bracket = exact_rank(A, epsilon)
    assert steps_hold(bracket)
    assert 0 <= bracket.lower <= bracket.upper <= min(A.shape)
    assert bracket.lower_step is None or bracket.lower_step.witness["rank"] == bracket.lower
    assert bracket.upper_step is None or bracket.upper_step.witness["rank"] == bracket.upper
    assert min(A.shape) == 4 or bracket.rank is not None


@settings(deadline=None, max_examples=20)
@given(matrices())
def test_tolerance_zero_is_the_algebraic_rank(A):
    bracket = exact_rank(A, 0)
    assert bracket.lower <= rank(A) <= bracket.upper
    assert bracket.rank in (None, rank(A))


@settings(deadline=None, max_examples=20)
@given(matrices(st.integers(1, 3)), tolerances, tolerances)
def test_rank_falls_as_the_tolerance_grows(A, a, b):
    assert exact_rank(A, max(a, b)).rank <= exact_rank(A, min(a, b)).rank


@settings(deadline=None, max_examples=20)
@given(matrices(st.integers(1, 3)), tolerances, st.randoms(use_true_random=False))
def test_permutations_and_signs_do_not_matter(A, epsilon, random):
    m, n = A.shape
    rows, columns = random.sample(range(m), m), random.sample(range(n), n)
    signs = matrix(random.choice((1, -1)) for _ in range(n))
    moved = A[rows][:, columns] * signs
    assert exact_rank(moved, epsilon).rank == exact_rank(A, epsilon).rank


@settings(deadline=None, max_examples=30)
@given(matrices(st.integers(2, 4)))
def test_corank_one_of_an_invertible_matrix_is_one_over_the_norm_of_its_inverse(A):
    assume(A.shape[0] == A.shape[1] and rank(A) == len(A))
    assert corank_one(A).distance == 1 / norm(inverse(A))


@settings(deadline=None, max_examples=30)
@given(matrices(st.integers(1, 4)))
def test_corank_one_is_attained(A):
    nearest = corank_one(A)
    assert norm(nearest.change) == nearest.distance
    assert rank(A - nearest.change) < min(A.shape)
    assert (nearest.distance == 0) == (rank(A) < min(A.shape))


@settings(deadline=None, max_examples=15)
@given(matrices(st.integers(2, 4)))
def test_corank_one_against_highs(A):
    """m <= n: min ||y A||_1 / ||y||_1, one float linear program for each sign pattern of y."""
    optimize = pytest.importorskip("scipy.optimize")
    assume(A.shape[0] <= A.shape[1])
    m, n = A.shape
    best = np.inf
    for signs in product((1.0, -1.0), repeat=m):
        B = np.diag(signs) @ A.astype(float)
        cost = np.r_[np.zeros(m), np.ones(n)]
        bounds = np.vstack([np.hstack([s * B.T, -np.eye(n)]) for s in (1, -1)])
        unit = [np.r_[np.ones(m), np.zeros(n)]]
        best = min(best, optimize.linprog(cost, bounds, np.zeros(2 * n), unit, [1]).fun)
    assert float(corank_one(A).distance) == pytest.approx(best, abs=1e-9)


def rational(z3, value):
    return z3.Q(value.numerator, value.denominator)


def has_rank_one_competitor(z3, A, epsilon):
    """Is there B = u v within epsilon, max |v_j| = 1, by nonlinear real arithmetic?"""
    m, n = A.shape
    for pivot in range(n):
        u, v = z3.RealVector("u", m), z3.RealVector("v", n)
        solver = z3.SolverFor("QF_NRA")
        solver.add(v[pivot] == 1, *(z3.And(x >= -1, x <= 1) for x in v))
        for i in range(m):
            error = z3.RealVector(f"e{i}", n)
            for j in range(n):
                difference = rational(z3, A[i, j]) - u[i] * v[j]
                solver.add(error[j] >= difference, error[j] >= -difference)
            solver.add(z3.Sum(error) <= rational(z3, epsilon))
        answer = solver.check()
        assert answer in (z3.sat, z3.unsat)
        if answer == z3.sat:
            return True
    return False


def test_rank_one_against_z3():
    z3 = pytest.importorskip("z3")
    random = np.random.default_rng(5)
    answers = set()
    for _ in range(12):
        A = matrix(random.integers(-3, 4, size=(3, 3)).tolist())
        for share in (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4)):
            epsilon = share * norm(A)
            found = rank_one(A, epsilon).factors is not None
            assert found == has_rank_one_competitor(z3, A, epsilon)
            answers.add(found)
    assert answers == {True, False}


@settings(deadline=None, max_examples=15)
@given(matrices(st.integers(2, 3)), tolerances)
def test_rank_one_agrees_with_the_other_routes(A, epsilon):
    """With two rows or two columns, rank one is corank one: patterns against games."""
    assume(min(A.shape) == 2)
    assert (rank_one(A, epsilon).factors is not None) == (corank_one(A).distance <= epsilon)


@settings(deadline=None, max_examples=4)
@given(matrices(st.just(4)))
def test_a_hyperplane_never_reaches_above_the_distance_to_rank_two(A):
    """Soundness: height <= ||A - B|| for every B of rank two; B projects rows on two rows of A."""
    assume(rank(A) >= 3)
    height = hyperplane_height(A, far_hyperplane(A, Fraction(100)))
    for i, j in product(range(4), repeat=2):
        Y = A[[i, j]]
        if i < j and rank(Y) == 2:
            assert height <= norm(A - combinations_of(A, Y) @ Y)


def test_height_of_a_hyperplane_by_sampling():
    A, y = identity(4) + 1, matrix([1, -1, 2, 0])
    height = hyperplane_height(A, y)
    basis = np.linalg.svd(y.astype(float)[None, :])[2][1:]
    x = np.random.default_rng(0).normal(size=(20000, 3)) @ basis
    ratios = np.abs(x @ A.astype(float).T).max(axis=1) / np.abs(x).max(axis=1)
    assert ratios.min() >= float(height) - 1e-12
    assert ratios.min() <= float(height) * 1.2


def test_threshold_is_closed():
    A = matrix([["7/8", "1/8"], ["1/8", "7/8"]])
    assert exact_rank(A, "3/4").rank == 1
    assert exact_rank(A, Fraction(3, 4) - Fraction(1, 10**30)).rank == 2
    assert exact_rank(A, 1).rank == 0


@pytest.mark.parametrize(
    ("A", "epsilon", "message"),
    [
        ([[1, 2], [3]], "1/4", "equal rows"),
        ([["x"]], "1/4", "rational"),
        ([[float("nan")]], "1/4", "rational"),
        (np.ones((5, 2)), "1/4", "4 x 4"),
        ([], "1/4", "4 x 4"),
        ([[1]], "-1", "eps"),
        ([[1]], "nan", "eps"),
    ],
)
def test_mistakes_are_told(A, epsilon, message):
    with pytest.raises(UserError, match=message):
        exact_rank(A, epsilon)


def test_solver_reproduces_the_stored_answers_from_the_file_alone():
    """As any implementation would use the file: matrix and tolerances in, ranks out."""
    checked = 0
    for claim in json.loads(PATH.read_text())["claims"]:
        A = claim["inputs"].get("matrix")
        if A is None or len(A) > 4:
            continue
        if claim["quantity"] == "corank-one-distance":
            assert corank_one(matrix(A)).distance == Fraction(claim["value"])
            checked += 1
        elif claim["quantity"] == "approximation-rank" and "epsilon" in claim["inputs"]:
            assert exact_rank(A, claim["inputs"]["epsilon"]).rank == claim["value"]
            checked += 1
    assert checked >= 20
