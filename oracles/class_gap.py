"""Restricting the competitor changes the target (MATH 9.2, 1.4).

At t = s = eps = 3/4 the two-bit matrix has unrestricted (and nonnegative) rank one, but row-
stochastic rank two: the best row-stochastic rank-one error is 33/32.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import numpy as np

from . import game
from .claims import Claim, Inputs, arithmetic
from .kernel_steps import closed, nonzero_rank, rank_at_most
from .rational import Matrix, identity, matrix, norm, ones
from .two_bit import approximant, attention

T = Fraction(3, 4)


def stochastic_rank_one(A: Matrix) -> tuple[Fraction, Matrix, Matrix, Matrix]:
    """The least ||A - 1 p|| over probability rows p, exactly, for an m x n matrix with n small.

    Returns (error, p, mu, S): p (n) attains it; mu (m probabilities) and S (m x n, |S_ij| <= 1)
    prove that none is better, as ``stochastic_bound`` shows. A matrix game with m 2^n rows: the
    maximiser picks a row of A and signs, the minimiser a column.
    """
    m, n = A.shape
    signs = matrix(product((1, -1), repeat=n))
    payoff = np.vstack([(signs @ row)[:, None] - signs for row in A])
    equilibrium = game.solve(payoff)
    weights = equilibrium.p.reshape(m, len(signs))
    mu = weights.sum(axis=1)
    S = (weights @ signs) / np.where(mu == 0, 1, mu)[:, None]
    return equilibrium.value, equilibrium.q, mu, S


def stochastic_bound(A: Matrix, mu: Matrix, S: Matrix) -> Fraction:
    """A lower bound on ||A - 1 p|| for every probability row p, given mu >= 0, sum 1, |S| <= 1.

    max_i ||A_i - p||_1 >= sum_i mu_i <S_i, A_i - p> >= <mu S, A> - max_j (mu S)_j.
    Raises ``ValueError`` if mu or S are not as required.
    """
    if not (min(mu) >= 0 and mu.sum() == 1 and abs(S).max() <= 1):
        raise ValueError("mu must be a probability vector and |S_ij| <= 1")
    weighted = mu[:, None] * S
    return Fraction((weighted * A).sum() - max(weighted.sum(axis=0)))


def claims() -> Iterator[Claim]:
    """All claims of MATH 9.2."""
    A = attention(T, T)
    inputs = {"t": T, "s": T, "epsilon": T, "matrix": A}
    yield unrestricted(A, inputs)
    yield best_stochastic_rank_one(A, inputs)
    yield stochastic_rank(A, inputs)


def unrestricted(A: Matrix, inputs: Inputs) -> Claim:
    """r = r^+ = 1: the approximant (7/64) J is nonnegative and has error exactly epsilon."""
    X, Y = approximant(T, T, 1)
    B = X @ Y
    return closed(
        "class-gap/unrestricted-rank",
        "MATH 9.2",
        "approximation rank over all competitors, and over nonnegative ones",
        inputs,
        nonzero_rank(A, T),
        rank_at_most(A, T, X, Y),
        arithmetic(
            "B = (7/64) J >= 0, and its error is exactly epsilon",
            np.array_equal(B, ones(4, 4) * Fraction(7, 64)) and norm(A - B) == T,
        ),
    )


def best_stochastic_rank_one(A: Matrix, inputs: Inputs) -> Claim:
    """33/32: the uniform row attains it; mu = 1/4 and signs 2 I - J prove it."""
    uniform, mu, S = ones(4) / 4, ones(4) / 4, 2 * identity(4) - 1
    error = norm(A - uniform[None, :])
    return Claim(
        "class-gap/row-stochastic-rank-one-error",
        "MATH 9.2",
        "least error of a row-stochastic competitor of rank one",
        inputs,
        error,
        (
            arithmetic(
                "the uniform row has this error",
                (uniform >= 0).all() and uniform.sum() == 1,
                p=uniform,
            ),
            arithmetic(
                "no probability row has a smaller one",
                stochastic_bound(A, mu, S) == error,
                mu=mu,
                S=S,
            ),
            arithmetic(
                "the linear program, solved exactly, agrees", stochastic_rank_one(A)[0] == error
            ),
        ),
    )


def stochastic_rank(A: Matrix, inputs: Inputs) -> Claim:
    """r^st = 2: K_t (x) J/2 is row-stochastic of rank two with error exactly epsilon."""
    X, Y = approximant(T, T, 2)
    B = X @ Y
    upper = rank_at_most(A, T, X, Y)
    return Claim(
        "class-gap/row-stochastic-rank",
        "MATH 9.2",
        "approximation rank over row-stochastic competitors",
        inputs,
        upper.witness["rank"],
        (
            upper,
            arithmetic(
                "B is row-stochastic and its error is exactly epsilon",
                (B >= 0).all() and (B.sum(axis=1) == 1).all() and norm(A - B) == T,
            ),
            arithmetic("rank one needs more than epsilon", stochastic_rank_one(A)[0] > T),
        ),
    )
