"""MATH 4: upper certificates."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from oracles.kernel_steps import factor_witness, question
from oracles.rational import norm, rank, zeros
from softrank_exact.kernel.check import check

from .clauses import at_most, equal, that
from .formulas import column_norm, l1
from .lemma import lemma
from .strategies import (
    matrices,
    positive_rationals,
    rationals,
    shapes,
    stochastic_matrices,
    tolerances_near,
)


@st.composite
def _claims(draw):
    """(A0, X, Y, alpha, eps), eps near ||A0 - X Y||, or that plus or minus alpha."""
    m, n = draw(shapes(3))
    k = draw(st.integers(1, 3))
    A, X, Y = draw(matrices((m, n), rationals())), draw(matrices((m, k))), draw(matrices((k, n)))
    alpha, error = draw(positive_rationals(1)), norm(A - X @ Y)
    threshold = draw(st.sampled_from([error + alpha, error, abs(error - alpha)]))
    return A, X, Y, alpha, draw(tolerances_near(threshold))


def _proves(finding):
    return finding.code == "ok"


@lemma(
    "4.1-factor",
    r"\lVert A_0 - XY\rVert \le \varepsilon - \alpha \implies r_\varepsilon(A) \le k",
    assumes="||A - A0|| <= alpha, X has k columns",
    given=_claims(),
    mutants={
        "an open inequality": {"proves": lambda finding: finding.margin > 0},
        "no shift": {"asked": lambda A, e, alpha: question(A, e)},
        "the shift added": {"asked": lambda A, e, alpha: question(A, e + alpha)},
        "the largest l1 norm of a column": {"size": column_norm},
        "the largest entry": {"size": lambda E: abs(E).max()},
    },
)
def factor(A0, X, Y, alpha, epsilon, *, asked=question, proves=_proves, size=norm):
    """The kernel accepts factors iff they are within eps - alpha: then A itself is within eps."""
    error = A0 - X @ Y
    accepted = proves(check(asked(A0, epsilon, alpha), X.shape[1], factor_witness(X, Y)))
    yield that("accepted iff within eps - alpha", accepted == (size(error) <= epsilon - alpha))
    A = A0 + alpha * _away(error)
    yield equal("A is within alpha", norm(A - A0), alpha)
    yield that("accepted only if A is within eps", not accepted or norm(A - X @ Y) <= epsilon)
    yield at_most("rank", rank(X @ Y), X.shape[1])


def _away(error):
    """Signs at the first entry of every row: the move that lengthens each row of the error most."""
    away = zeros(*error.shape)
    away[:, 0] = [Fraction(1) if e >= 0 else Fraction(-1) for e in error[:, 0]]
    return away


@st.composite
def _clusters(draw):
    A = draw(stochastic_matrices(shapes(4, 2)))
    chosen = draw(st.lists(st.integers(0, len(A) - 1), min_size=1, max_size=3, unique=True))
    assignment = draw(st.lists(st.sampled_from(chosen), min_size=len(A), max_size=len(A)))
    return A, chosen, assignment


@lemma(
    "4.2-representatives",
    r"r_\varepsilon^{\mathrm{st}}(A) \le N, \quad \varepsilon = \max_i \min_{\nu\le N}"
    r" \lVert A_i - A_{i_\nu}\rVert_1",
    assumes="A row-stochastic",
    given=_clusters(),
    mutants={
        "the mean distance of the rows": {"worst": lambda d: sum(d) / len(d)},
        "one representative for free": {"count": lambda chosen: len(chosen) - 1},
    },
)
def representatives(A, chosen, assignment, *, worst=max, count=len):
    """Repeating the nearest of N rows of A gives a row-stochastic approximant of rank at most N."""
    B = np.array([A[min(chosen, key=lambda i: l1(row - A[i]))] for row in A], dtype=object)
    error = worst([min(l1(row - A[i]) for i in chosen) for row in A])
    yield equal("the error", norm(A - B), error)
    yield at_most("no other assignment is better", error, norm(A - A[assignment]))
    yield at_most("the rank", rank(B), count(chosen))
    yield that("row-stochastic", (B >= 0).all() and (B.sum(axis=1) == 1).all())


@lemma(
    "4.2-top-k",
    r"\lVert A - \mathrm{top}_k(A)\rVert = 1 - \min_i \textstyle\sum_{j \in \mathrm{top}_k} A_{ij},"
    r" \quad \operatorname{rank}\mathrm{top}_k(A) \text{ up to } \min(m, n)",
    assumes="A row-stochastic",
    given=st.tuples(stochastic_matrices(shapes(4)), st.integers(1, 2)),
    mutants={
        "k entries a row read as rank k": {"rank_bound": lambda A, k: k},
        "the mean mass kept": {"kept": lambda masses: sum(masses) / len(masses)},
    },
)
def top_k_entries(A, k, *, rank_bound=lambda A, k: min(A.shape), kept=min):
    """Keeping k entries of a row is a sparsity budget: its error is a mass, its rank is free."""
    B = zeros(*A.shape)
    for i, row in enumerate(A):
        top = np.argsort(-row, kind="stable")[:k]
        B[i, top] = row[top]
    yield equal("the error", norm(A - B), 1 - kept(list(B.sum(axis=1))))
    yield at_most("the rank", rank(B), rank_bound(A, k))
