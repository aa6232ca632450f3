"""MATH 7: weighted Gibbs rows."""

from __future__ import annotations

from flint import arb
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from oracles.balls import ball
from oracles.rational import Matrix

from .clauses import at_most, equal
from .formulas import balls, entrywise, l1, largest, softmax
from .lemma import lemma
from .strategies import matrices, probability_vectors, rationals, vectors


def _log(x: Matrix) -> Matrix:
    return entrywise(arb.log, x)


def _kl(p: Matrix, q: Matrix) -> arb:
    """KL(p || q) of positive balls."""
    return (p * (_log(p) - _log(q))).sum()


@st.composite
def _family(draw: DrawFn):
    """Base weights pi (n), points y (n x 2) and some parameters theta (k x 2)."""
    n = draw(st.integers(2, 4))
    count = draw(st.integers(2, 3))
    pi = draw(probability_vectors(n, positive=True))
    return pi, draw(matrices((n, 2))), draw(matrices((count, 2), rationals(2)))


def _row(pi: Matrix, Y: Matrix, theta: Matrix) -> Matrix:
    """p_theta(j) proportional to pi_j exp(<theta, y_j>)."""
    weights = balls(pi) * softmax(Y @ theta)
    return weights / weights.sum()


def _log_partition(pi: Matrix, Y: Matrix, theta: Matrix) -> arb:
    return (balls(pi) * entrywise(arb.exp, balls(Y @ theta))).sum().log()


def _bregman_gap(pi, Y, theta, other):
    gradient = _row(pi, Y, theta) @ balls(Y)
    linear = (gradient * balls(other - theta)).sum()
    return _log_partition(pi, Y, other) - _log_partition(pi, Y, theta) - linear


@lemma(
    "7-bregman",
    r"\mathrm{KL}(p_\theta\Vert p_{\theta'}) = F(\theta') - F(\theta)"
    r" - \langle\nabla F(\theta), \theta' - \theta\rangle",
    assumes="F the log-partition function of positive base weights",
    given=_family(),
    mutants={
        "the arguments exchanged": {
            "gap": lambda pi, Y, theta, other: _bregman_gap(pi, Y, other, theta)
        },
        "without the linear term": {
            "gap": lambda pi, Y, theta, other: (
                _log_partition(pi, Y, other) - _log_partition(pi, Y, theta)
            )
        },
    },
)
def bregman_gap(pi, Y, thetas, *, gap=_bregman_gap):
    """The divergence of two Gibbs rows is the Bregman gap of the log-partition function."""
    theta, other = thetas[:2]
    divergence = _kl(_row(pi, Y, theta), _row(pi, Y, other))
    yield equal("KL", divergence, gap(pi, Y, theta, other))


@lemma(
    "7-pinsker",
    r"\lVert p - q\rVert_1^2 \le 2\,\mathrm{KL}(p\Vert q)",
    assumes="positive probability vectors",
    given=st.integers(2, 4).flatmap(
        lambda n: st.tuples(probability_vectors(n, True), probability_vectors(n, True))
    ),
    mutants={
        "the factor 2 is dropped": {"factor": 1},
        "the root is dropped": {"power": 1},
    },
)
def pinsker(p, q, *, factor=2, power=2):
    """The l1 distance of two probability rows is at most sqrt(2 KL)."""
    yield at_most("squared", ball(l1(p - q) ** power), factor * _kl(balls(p), balls(q)))


@lemma(
    "7-covering",
    r"\lVert A - B\rVert^2 \le 2\max_i\min_\nu \mathrm{KL}(p_{\theta_i}\Vert p_{\theta_\nu})",
    assumes="A has Gibbs rows, B repeats the representatives nu",
    given=_family().flatmap(
        lambda case: st.tuples(*map(st.just, case), vectors(len(case[2]), st.integers(0, 1)))
    ),
    mutants={
        "the factor 2 is dropped": {"factor": 1},
        "the mean gap": {"worst": lambda gaps: sum(gaps, arb(0)) / len(gaps)},
    },
)
def covering(pi, Y, thetas, kept, *, factor=2, worst=largest):
    """Representatives within a Bregman gap eps^2 / 2 of every row approximate A within eps."""
    rows = [_row(pi, Y, theta) for theta in thetas]
    chosen = [i for i, keep in enumerate(kept) if keep] or [0]
    gaps, errors = [], []
    for i, theta in enumerate(thetas):
        found = {v: _bregman_gap(pi, Y, theta, thetas[v]) for v in chosen}
        nearest = min(chosen, key=lambda v: float(found[v]))
        gaps.append(found[nearest])
        errors.append(l1(rows[i] - rows[nearest]))
    error = largest(errors)
    yield at_most("squared", error * error, factor * worst(gaps))
