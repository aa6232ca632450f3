"""Upper bounds without an unknown constant, from one profile point (MATH 3.8).

Put z_ij = T_ij - t_j - s_i, t a weighted mean of the rows of T and s_i the middle of the range of
row i of T - t: then |z_ij| <= sigma, half the largest oscillation of a row of T - t, and sigma <=
kappa(T) if t belongs to a ball centre. Some softmax matrix w_j e^z_ij / Z_i is within tau(T) of A.
Replace its e^z by a polynomial P of degree D and keep its normaliser Z: the l1 error of a row is at
most rho = max_{|z| <= sigma} |1 - P(z) e^-z|, and all rows lie in the span of w_j y_j^a, |a| <= D.
So rho + tau(T) <= eps implies r_eps(A) <= binom(r + D, D).

That is a bound before looking at A. A sharper one fits every row of A in l1 within the span of a
few w_j y_j^a (MATH 1.2): it needs no theory, since the kernel checks the factors.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from math import ceil, comb
from typing import Any

import numpy as np
from flint import arb, ctx, fmpz_poly
from numpy.polynomial import chebyshev

from ..intake.document import Claim
from ..kernel.check import Question
from ..rounding import question, round_and_check
from ..targets import Target
from ..witness import FloatFactor
from .exact import PRECISION, ExactMatrix, Floats, ball, ball_enclosure, integers
from .profile import ProfilePoint

_COEFFICIENT_BITS = 60
_SIGMA_BITS = 32
_LARGEST_SIGMA = 30
_ROUNDS = 60
_FIT_ROUNDS = 20
_SMOOTHING = 1e-3
_RIDGE = 1e-12
_ROOM = 1 - 1e-5


@dataclass(frozen=True)
class ExplicitBound:
    """r_eps(A) <= ``bound`` = binom(rank + degree, degree), proven: ``error`` + ``tau`` <= eps.

    ``sigma`` bounds |z|; ``coefficients`` c_0..c_D are integers, and the polynomial is
    P(z) = 2^-60 sum_k c_k (z/sigma)^k; ``error`` >= max |1 - P(z) e^-z| over |z| <= sigma;
    ``tau`` >= tau(T).
    """

    rank: int
    degree: int
    sigma: Fraction
    coefficients: tuple[int, ...]
    error: Fraction
    tau: Fraction

    @property
    def bound(self) -> int:
        return comb(self.rank + self.degree, self.degree)


def explicit_bound(point: ProfilePoint, eps: Fraction) -> ExplicitBound | None:
    """The least degree that this point proves for the tolerance eps, or None if the bound would
    not be below min(m, n) (MATH 3.8, with the best polynomial instead of Taylor's). None too for
    sigma > 30, where e^-sigma is below what the coefficients resolve."""
    tau = point.tau.upper
    sigma = half_oscillation(point)
    if sigma > _LARGEST_SIGMA:
        return None
    degree = 0
    while tau <= eps and comb(point.rank + degree, degree) < min(point.interaction.shape):
        coefficients = _minimax(float(sigma), degree)
        error = relative_error(coefficients, sigma) if coefficients else None
        if error is not None and error + tau <= eps:
            return ExplicitBound(point.rank, degree, sigma, coefficients, error, tau)
        if point.rank == 0:
            return None
        degree += 1
    return None


def polynomial_witness(point: ProfilePoint, bound: ExplicitBound, n: int) -> FloatFactor:
    """The factors of the matrix that ``bound`` is about, in float64: X (m x k), Y (k x n), k the
    bound, zero at those of the n keys that the interaction leaves out."""
    unit = float(point.interaction.unit.lower)
    T = _without_mean(point).floats() * unit
    z = T - (T.max(axis=1, keepdims=True) + T.min(axis=1, keepdims=True)) / 2
    t = z / (float(bound.sigma) or 1.0)
    scaled = [c / 2.0**_COEFFICIENT_BITS for c in bound.coefficients]
    weights = _base_weights(point) * np.exp(point.retained.matrix.floats() * unit)
    softmax = weights / weights.sum(axis=1, keepdims=True)
    approximant = softmax * np.polynomial.polynomial.polyval(t, scaled) * np.exp(-z)
    U, s, Vt = np.linalg.svd(approximant, full_matrices=False)
    k = min(bound.bound, len(s))
    return FloatFactor(U[:, :k] * s[:k], _on_all_keys(Vt[:k], point.interaction.columns, n))


def half_oscillation(point: ProfilePoint) -> Fraction:
    """sigma: half the largest oscillation of a row of T minus its mean row, the mean taken with
    the weights of the dual proof of kappa. Rounded up to a multiple of 2^-32."""
    shifted = _without_mean(point)
    widths = shifted.numerators.max(axis=1) - shifted.numerators.min(axis=1)
    exact = Fraction(int(widths.max()), shifted.den) / 2 * point.interaction.unit.upper
    return Fraction(ceil(exact * 2**_SIGMA_BITS), 2**_SIGMA_BITS)


def span_witness(point: ProfilePoint, A: Floats, eps: float, below: int) -> FloatFactor | None:
    """Factors X (m x k), Y (k x n) of A (m x n) to l1 error eps in every row, in float64, with the
    smallest k < below for which the fit succeeds; the rows of Y are w_j y_j^a, the exponents a in
    the order of their likely weight. None if k = below - 1 fails."""
    if not below > 1:
        return None
    columns = point.interaction.columns
    attended = A[:, list(columns)]
    basis = _monomial_basis(point, below - 1)
    low, high, best = 0, below, None
    while high - low > 1:
        k = below - 1 if best is None else (low + high) // 2
        Y, _ = np.linalg.qr(basis[:, :k])
        X = _l1_fit(attended, Y, eps)
        if np.abs(attended - X @ Y.T).sum(axis=1).max() <= eps:
            high, best = k, (X, Y)
        elif best is None:
            return None
        else:
            low = k
    if best is None:
        return None
    return FloatFactor(best[0], _on_all_keys(best[1].T, columns, A.shape[1]))


def explicit_witness(points: Iterable[ProfilePoint], target: Target, eps: Fraction) -> Claim | None:
    """The upper claim of least rank that the kernel verifies for the target, out of the bounds and
    the fitted spans of these points; None if none is below min(m, n)."""
    A, asked = target.float_matrix, question(target, eps)
    claim, below = None, min(target.shape)
    for point in points:
        for witness in _proposals(point, A, asked, below):
            if witness.rank < below:
                verdict = round_and_check(asked, A, witness, witness.rank)
                if verdict.verified:
                    claim, below = verdict.claim, witness.rank
    return claim


def _proposals(
    point: ProfilePoint, A: Floats, asked: Question, below: int
) -> Iterator[FloatFactor]:
    bound = explicit_bound(point, asked.epsilon)
    if bound is not None:
        yield polynomial_witness(point, bound, A.shape[1])
        below = min(below, bound.bound)
    fitted = span_witness(point, A, float(asked.lo) * _ROOM, below)
    if fitted is not None:
        yield fitted


def _on_all_keys(Y: Floats, columns: tuple[int, ...], n: int) -> Floats:
    """Y (k x n) with zeros at the keys that are not among the columns."""
    rows = np.zeros((len(Y), n))
    rows[:, list(columns)] = Y
    return rows


def _monomial_basis(point: ProfilePoint, count: int) -> Floats:
    """n x count: w_j y_j^a for the exponents a of largest max|x^a| max|y^a| / a!, unit columns."""
    w = _base_weights(point)
    primal = point.size.primal
    if primal is None:
        return w[:, None]
    X, Y = primal.X.floats(), primal.Y.floats()
    x, y = np.abs(X).max(axis=0), np.abs(Y).max(axis=0)
    exponents = np.array(list(islice(_exponents(tuple(x * y)), count)))
    basis = w[:, None] * np.prod((Y / y)[:, None, :] ** exponents, axis=2)
    norms = np.linalg.norm(basis, axis=0)
    return np.asarray(basis / np.where(norms > 0, norms, 1))


def _base_weights(point: ProfilePoint) -> Floats:
    """w_j = exp(b_j), b the column terms of the residual: log A is near a_i + b_j + T_ij."""
    terms = point.residual.column_terms.floats()[0] * float(point.interaction.unit.lower)
    return np.asarray(np.exp(terms - terms.max()))


def _exponents(scales: tuple[float, ...]) -> Iterator[tuple[int, ...]]:
    """All exponent vectors a, those with large prod scales^a / a! first (a best-first search)."""
    queue = [(-1.0, (0,) * len(scales), 0)]
    while True:
        weight, a, last = heapq.heappop(queue)
        yield a
        for k in range(last, len(scales)):
            following = (*a[:k], a[k] + 1, *a[k + 1 :])
            heapq.heappush(queue, (weight * scales[k] / following[k], following, k))


def _l1_fit(A: Floats, Y: Floats, eps: float) -> Floats:
    """X (m x k) with small l1 norms of the rows of A - X Y^T, Y (n x k) orthonormal: least squares,
    reweighted where a row is over eps."""
    X = A @ Y
    error = np.abs(A - X @ Y.T).sum(axis=1)
    ridge = _RIDGE * np.eye(Y.shape[1])
    current = X.copy()
    for _ in range(_FIT_ROUNDS):
        over = np.flatnonzero(error > eps)
        if not len(over):
            break
        rest = np.abs(A[over] - current[over] @ Y.T)
        weights = 1 / np.maximum(rest, _SMOOTHING * rest.mean(axis=1, keepdims=True))
        weights /= weights.mean(axis=1, keepdims=True)
        gram = (Y.T * weights[:, None, :]) @ Y + ridge
        fitted = np.linalg.solve(gram, ((A[over] * weights) @ Y)[..., None])[..., 0]
        current[over] = fitted
        found = np.abs(A[over] - fitted @ Y.T).sum(axis=1)
        closer = over[found < error[over]]
        X[closer] = current[closer]
        error[over] = np.minimum(error[over], found)
    return X


def _without_mean(point: ProfilePoint) -> ExactMatrix:
    """T / unit minus its weighted mean row."""
    T, dual = point.retained.matrix, point.size.dual
    if dual is None:
        return T
    mu = dual.mu.numerators
    total = int(mu.sum())
    shifted = total * T.numerators - (mu * T.numerators).sum(axis=0)
    return ExactMatrix(shifted, total * T.den)


def relative_error(coefficients: tuple[int, ...], sigma: Fraction) -> Fraction:
    """An upper bound of max |1 - P(z) e^-z| over |z| <= sigma, P as in ``ExplicitBound``.

    With z = sigma t the derivative vanishes where sigma P(t) = P'(t); the real roots of this
    polynomial are enclosed by certified root isolation, and the two ends are added.
    """
    if sigma == 0:
        return abs(1 - Fraction(coefficients[0], 1 << _COEFFICIENT_BITS))
    P = fmpz_poly(list(coefficients))
    stationary = P * sigma.numerator - P.derivative() * sigma.denominator
    with ctx.workprec(PRECISION):
        isolated: Any = stationary.complex_roots()
        candidates = [ball(Fraction(-1)), ball(Fraction(1))]
        candidates += [root.real for root, _ in isolated if 0 in root.imag]
        errors = [_pointwise(coefficients, sigma, t) for t in candidates if not abs(t) > 1]
        return max(ball_enclosure(abs(error)).upper for error in errors)


def _pointwise(coefficients: tuple[int, ...], sigma: Fraction, t: Any) -> Any:
    """The ball 1 - P(t) e^(-sigma t)."""
    value = arb(0)
    for c in reversed(coefficients):
        value = value * t + c
    return 1 - value / (1 << _COEFFICIENT_BITS) * (-ball(sigma) * t).exp()


def _minimax(sigma: float, degree: int) -> tuple[int, ...]:
    """A polynomial near the best one in the relative error, by Lawson's reweighting."""
    if sigma == 0:
        return (1 << _COEFFICIENT_BITS,) + (0,) * degree
    t = np.cos(np.pi * (np.arange(16 * degree + 16) + 0.5) / (16 * degree + 16))
    decay = np.exp(-sigma * t)
    basis = chebyshev.chebvander(t, degree) * decay[:, None]
    weights = np.full(len(t), 1 / len(t))
    best, least = np.zeros(degree + 1), np.inf
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)
        fit = np.linalg.lstsq(basis * root[:, None], root, rcond=None)[0]
        error = np.abs(1 - basis @ fit)
        if error.max() < least:
            best, least = fit, error.max()
        weights = weights * error
        weights /= weights.sum()
    scaled = chebyshev.cheb2poly(best) * 2.0**_COEFFICIENT_BITS
    return tuple(integers(np.asarray(scaled, dtype=np.float64)).tolist())
