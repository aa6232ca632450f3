"""Exact witnesses for matrices A[x, y] = f(x xor y), such as the two-bit games (MATH 9.1).

They are diagonal in the characters (-1)^<S, x>, so a witness of rank k spans k of these, and the
best coefficients are a small linear program, whose vertex is solved again in fractions: the bracket
stays exact where eps is a threshold, which floating point cannot decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from math import lcm

import numpy as np
import sympy
from scipy.linalg import hadamard
from scipy.optimize import linprog

from softrank_exact import Target
from softrank_exact.kernel.check import Factor
from softrank_exact.witness import FloatBernstein

from .types import Proposal

LARGEST = 8  # rows: every subset of the characters is tried
NEAR = 1e-9  # relative: float errors so close to eps are decided exactly
INT32 = (1 << 31) - 1


def is_xor_invariant(N: np.ndarray) -> bool:
    """Whether N (n, n), n a small power of two, depends on x xor y alone."""
    m, n = N.shape
    if m != n or n > LARGEST or n & (n - 1):
        return False
    x = np.arange(n)
    return bool(np.all(N[0][x[:, None] ^ x] == N))


def exact_uppers(target: Target, eps: float) -> Iterator[tuple[int, Factor]]:
    """Combinations of characters that come within eps or so, with their ranks, least first."""
    n = len(target.N)
    signs = hadamard(n)
    f = [Fraction(int(entry), target.den) for entry in target.N[0]]
    for k in range(1, n):
        for chosen in combinations(range(n), k):
            coefficients = _least_l1(signs[list(chosen)], f, eps * (1 + NEAR))
            if coefficients is None:
                continue
            scale = lcm(*(c.denominator for c in coefficients))
            integers = [int(c * scale) for c in coefficients]
            if max(map(abs, [scale, *integers])) <= INT32:
                Y = signs[list(chosen)].astype(np.int64)
                yield k, Factor(np.array(integers) * Y.T, Y, scale)


def bernstein_lowers(A: np.ndarray, eps: float) -> Iterator[Proposal]:
    """G = lambda(x xor y) of least l1 norm that inverts A on a span of characters (MATH 9.1)."""
    n = len(A)
    signs = hadamard(n).astype(float)
    spectrum = signs @ A[0]
    x = np.arange(n)
    for p in range(1, n + 1):
        for chosen in combinations(np.flatnonzero(spectrum), p):
            kept = list(chosen)
            weights = _least_norm(signs[kept], 1 / spectrum[kept])
            if eps * np.abs(weights).sum() < 1:
                others = [S for S in range(n) if S not in kept]
                rest = 1 - spectrum[others] * (signs[others] @ weights)
                G = weights[x[:, None] ^ x]
                witness = FloatBernstein(x, G, signs[:, others] * rest / n, signs[others])
                yield Proposal("lower", p, witness)
                break


def _least_l1(signs: np.ndarray, f: list[Fraction], limit: float) -> list[Fraction] | None:
    """c that minimises ||f - c signs||_1, exactly, unless the norm exceeds the limit.

    At a vertex of the linear program as many residuals vanish as there are unknowns.
    """
    k, n = signs.shape
    values = np.array([float(entry) for entry in f])
    matrix = np.block([[-signs.T, -np.eye(n)], [signs.T, -np.eye(n)]])
    solved = linprog(
        np.r_[np.zeros(k), np.ones(n)],
        A_ub=matrix,
        b_ub=np.r_[-values, values],
        bounds=[(None, None)] * k + [(0, None)] * n,
    )
    if solved.fun > limit:
        return None
    order = np.argsort(np.abs(values - solved.x[:k] @ signs), kind="stable")
    rows = sympy.Matrix(signs.T[order].tolist())
    _, pivots = rows.T.rref()
    tight = [int(order[i]) for i in pivots]
    right = sympy.Matrix([sympy.Rational(f[i].numerator, f[i].denominator) for i in tight])
    exact = sympy.Matrix(signs.T[tight].tolist()).LUsolve(right)
    return [Fraction(int(c.p), int(c.q)) for c in exact]


def _least_norm(signs: np.ndarray, values: np.ndarray) -> np.ndarray:
    """lambda of least l1 norm with signs @ lambda = values."""
    n = signs.shape[1]
    solved = linprog(
        np.ones(2 * n), A_eq=np.hstack([signs, -signs]), b_eq=values, bounds=[(0, None)] * (2 * n)
    )
    return solved.x[:n] - solved.x[n:]
