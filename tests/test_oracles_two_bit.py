"""The two-bit oracle and the class gap against the published numbers and against other engines."""

import json
import subprocess
import sys
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

import softrank_exact
from oracles import class_gap, two_bit
from oracles.exact_rank import exact_rank
from oracles.kernel_steps import rank_at_least, rank_at_most
from oracles.rational import identity, matrix, norm, ones, rank
from softrank_exact.intake.audit import audit_bytes

CELLS = [*two_bit.PUBLISHED_CELLS, two_bit.SEVENTH_CELL]
PUBLISHED = [4, 3, 2, 1, 3, 1]
T, S = sympy.symbols("t s", positive=True)

proper = st.fractions(min_value="1/50", max_value="49/50", max_denominator=50)


@pytest.fixture(scope="module")
def claims():
    return {claim.id: claim for claim in two_bit.claims()}


def test_published_sequence(claims):
    assert claims["two-bit/published-sequence"].value == PUBLISHED
    assert claims["two-bit/cell-7"].value == 3
    assert all(claim.proven for claim in claims.values())


def test_published_numbers_at_five_eighths(claims):
    value = {name.removeprefix("two-bit/"): claim.value for name, claim in claims.items()}
    assert value["frobenius-tail-fails"]["tail_squared"] == Fraction(15, 16) ** 2
    assert value["frobenius-tail-fails"]["threshold_squared"] == Fraction(5, 4) ** 2
    assert value["truncated-pseudoinverse-fails"]["norm"] == Fraction(11, 6)
    assert value["row-selected-inverse-fails"] == Fraction(75, 128) < Fraction(5, 8)
    assert value["explicit-reconstruction"] == {"norm": Fraction(4, 3), "margin": Fraction(1, 6)}
    assert value["rank-three-upper"] == Fraction(9, 16)


@pytest.mark.parametrize("cell", CELLS)
def test_certificates_pass_both_checkers(cell, tmp_path):
    certificate = two_bit.certificate(*cell)
    r = two_bit.rank_of(*cell)
    assert (certificate.lower, certificate.upper) == (r, r)
    audit = audit_bytes(certificate.to_bytes())
    assert (audit.lower, audit.upper) == (r, r)
    path = certificate.save(tmp_path / "cell.softrank.safetensors")
    minicheck = Path(softrank_exact.__file__).with_name("minicheck.py")
    run = subprocess.run(
        [sys.executable, "-I", "-S", minicheck, path], capture_output=True, text=True, check=True
    )
    assert run.stdout.count(" verified ok") == 2


@pytest.mark.parametrize("cell", CELLS)
def test_small_solver_agrees(cell):
    t, s, epsilon = cell
    assert exact_rank(two_bit.attention(t, s), epsilon).rank == two_bit.rank_of(*cell)


@settings(deadline=None, max_examples=25)
@given(proper, proper)
def test_theorem_on_random_pairs(a, b):
    assert all(two_bit.theorem_steps(max(a, b), min(a, b)))


@settings(deadline=None, max_examples=25)
@given(proper, proper, st.integers(1, 3))
def test_nothing_is_proven_beyond_the_threshold(a, b, k):
    t, s = max(a, b), min(a, b)
    A, distance = two_bit.attention(t, s), two_bit.distances(t, s)[k]
    below = distance * Fraction(10**12 - 1, 10**12)
    G = two_bit.reconstruction(t, s, k + 1)
    assert not rank_at_least(A, distance, G).holds
    assert rank_at_least(A, below, G).holds
    assert not rank_at_most(A, below, *two_bit.approximant(t, s, k)).holds


def symbolic(builder, *arguments):
    return sympy.Matrix(builder(T, S, *arguments).tolist())


def symbolic_attention():
    def channel(x):
        return sympy.Matrix([[1 + x, 1 - x], [1 - x, 1 + x]]) / 2

    return sympy.Matrix(sympy.kronecker_product(channel(T), channel(S)))


def test_reconstructions_hold_identically_in_t_and_s():
    """MATH 9.1 as identities of rational functions, by sympy."""
    A = symbolic_attention()
    one = sympy.ones(4, 1)
    chi = [sympy.Matrix(two_bit.character(bits).tolist()) for bits in [(0,), (1,), (0, 1)]]
    lam = [(1 + 1 / T) / 2, 0, (1 / S - 1 / T) / 2, (1 - 1 / S) / 2]
    G = sympy.Matrix(4, 4, lambda x, y: lam[x ^ y])
    rest = (1 - T * S * (1 + 1 / T - 1 / S)) / 4
    assert sympy.simplify(sympy.eye(4) - G * A - rest * chi[2] * chi[2].T) == sympy.zeros(4, 4)
    assert sympy.simplify(lam[0] + lam[2] - lam[3] - 1 / S) == 0
    for vector, value in zip([one, *chi], [1, T, S, T * S], strict=True):
        assert sympy.simplify(A * vector - value * vector) == sympy.zeros(4, 1)
    exact = two_bit.reconstruction(Fraction(5, 7), Fraction(2, 9), 3)
    substituted = G.subs({T: sympy.Rational(5, 7), S: sympy.Rational(2, 9)})
    assert sympy.Matrix(exact.tolist()) == substituted


def test_every_constant_in_the_stated_intervals_works():
    t, s = Fraction(3, 4), Fraction(1, 2)
    A, J = two_bit.attention(t, s), ones(2, 2)
    for weight in (Fraction(0), Fraction(1, 3), Fraction(1)):
        low, high = (1 - t) * (1 + s) / 4, (1 + t) * (1 - s) / 4
        assert norm(A - (low + weight * (high - low))) == t
        low, high = (1 - s) / 2, (1 + s) / 2
        c = low + weight * (high - low)
        assert norm(A - np.kron(two_bit.channel(t), c * J)) == s


@settings(deadline=None, max_examples=15)
@given(st.lists(proper, min_size=1, max_size=4))
def test_many_bits(correlations):
    claim = two_bit.many_bits(sorted(correlations, reverse=True))
    assert claim.proven
    assert claim.value == sorted(correlations, reverse=True)


def test_many_bit_weights_act_as_stated():
    correlations = [Fraction(3, 4), Fraction(1, 2), Fraction(1, 3)]
    A = two_bit.attention(*correlations)
    G = two_bit.many_bit_reconstruction(correlations, 2)
    for bits in [(), (0,), (1,)]:
        chi = two_bit.character(bits, 3)
        assert np.array_equal(G @ A @ chi, chi)
    assert rank(identity(8) - G @ A) == 5


def rational(z3, value):
    return z3.Q(value.numerator, value.denominator)


def competitor(z3, A, epsilon, columns):
    """Is there B with ||A - B|| <= eps whose columns lie in the span of the given ones?

    The coefficients are bounded by one, as they are for the columns of largest volume.
    """
    solver = z3.SolverFor("QF_NRA")
    rest = [j for j in range(A.shape[1]) if j not in columns]
    P = {(c, j): z3.Real(f"p_{c}_{j}") for c in columns for j in rest}
    solver.add(*(z3.And(p >= -1, p <= 1) for p in P.values()))
    for i, row in enumerate(A):
        X = {c: z3.Real(f"x_{i}_{c}") for c in columns}
        error = [z3.Real(f"e_{i}_{j}") for j in range(len(row))]
        for j, a in enumerate(row):
            B = X[j] if j in X else z3.Sum([X[c] * P[c, j] for c in columns])
            solver.add(error[j] >= rational(z3, a) - B, error[j] >= B - rational(z3, a))
        solver.add(z3.Sum(error) <= rational(z3, epsilon))
    return str(solver.check())


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("k", [1, 3])
def test_z3_decides_ranks_one_and_three(cell, k):
    """Nonlinear real arithmetic, all competitors. The group of A moves any column to the first and
    any missing column to the last, so one choice of columns stands for all."""
    z3 = pytest.importorskip("z3")
    t, s, epsilon = cell
    expected = "sat" if two_bit.rank_of(*cell) <= k else "unsat"
    assert competitor(z3, two_bit.attention(t, s), epsilon, list(range(k))) == expected


@pytest.mark.parametrize("cell", CELLS)
def test_z3_decides_rank_two_on_the_span_of_three_characters(cell):
    """No x in span{1, chi_1, chi_2} has ||A x|| <= eps ||x||: codimension 2 always meets it."""
    z3 = pytest.importorskip("z3")
    t, s, epsilon = cell
    A = two_bit.attention(t, s)
    basis = matrix(two_bit.character(bits) for bits in [(), (0,), (1,)])
    coefficients = z3.Reals("c0 c1 c2")

    def combination(vectors):
        scaled = [
            [rational(z3, v) * c for v in row] for row, c in zip(vectors, coefficients, strict=True)
        ]
        return [z3.Sum(terms) for terms in zip(*scaled, strict=True)]

    x, image = combination(basis), combination(basis @ A.T)
    solver = z3.Solver()
    solver.add(x[0] == 1, *(z3.And(v >= -1, v <= 1) for v in x))
    solver.add(*(z3.And(-rational(z3, epsilon) <= v, v <= rational(z3, epsilon)) for v in image))
    expected = "unsat" if two_bit.rank_of(*cell) >= 3 else "sat"
    assert str(solver.check()) == expected


def test_class_gap_values():
    claims = {claim.id.removeprefix("class-gap/"): claim for claim in class_gap.claims()}
    assert all(claim.proven for claim in claims.values())
    assert claims["unrestricted-rank"].value == 1
    assert claims["row-stochastic-rank"].value == 2
    assert claims["row-stochastic-rank-one-error"].value == Fraction(33, 32)


@settings(deadline=None, max_examples=20)
@given(
    st.lists(
        st.lists(st.integers(0, 5), min_size=3, max_size=3).filter(any), min_size=2, max_size=4
    )
)
def test_stochastic_rank_one_against_highs(rows):
    optimize = pytest.importorskip("scipy.optimize")
    A = matrix(rows)
    A = A / A.sum(axis=1, keepdims=True)
    error, p, mu, S = class_gap.stochastic_rank_one(A)
    assert norm(A - p[None, :]) == error == class_gap.stochastic_bound(A, mu, S)
    n = A.shape[1]
    signs = np.array(list(product((1, -1), repeat=n)), dtype=float)
    A_ub = np.vstack([np.hstack([-signs, -np.ones((len(signs), 1))]) for _ in A])
    b_ub = np.concatenate([-signs @ row.astype(float) for row in A])
    found = optimize.linprog(
        np.r_[np.zeros(n), 1], A_ub, b_ub, [np.r_[np.ones(n), 0]], [1], bounds=[(0, None)] * (n + 1)
    )
    assert float(error) == pytest.approx(found.fun, abs=1e-9)


def test_stochastic_bound_refuses_what_is_no_dual():
    A = two_bit.attention(Fraction(3, 4), Fraction(3, 4))
    with pytest.raises(ValueError, match="probability vector"):
        class_gap.stochastic_bound(A, ones(4), 2 * identity(4) - 1)
    with pytest.raises(ValueError, match="probability vector"):
        class_gap.stochastic_bound(A, ones(4) / 4, 3 * identity(4) - 1)


def test_cells_are_json(claims):
    entry = claims["two-bit/cell-5"].as_json()
    assert entry["inputs"]["epsilon"] == "5/8"
    assert [step["kind"] for step in entry["proof"]] == ["bernstein", "factor"]
    assert json.loads(json.dumps(entry)) == entry
