"""The size kappa, enclosed (MATH 3.6).

kappa(T) = min R(X) R(Y) over factorisations X Y^T = T, R the radius of the smallest ball around the
rows. Floats propose both sides from one fixed point; integers check them.

*The search.* Let T = X Y^T with r columns, and let mu, nu be probability weights on the rows of X
and Y, with weighted covariances Sx, Sy. The largest <T, D> over doubly centred D with
||diag(mu)^-1/2 D diag(nu)^-1/2|| <= 1 is the nuclear norm of the weighted, centred T, that is
tr (Sx^1/2 Sy Sx^1/2)^1/2, the fidelity of the covariances, and it is concave in (mu, nu). So
kappa(T) = max over (mu, nu) of the fidelity: a problem in m + n weights and r x r matrices. With
P = Sx^-1 # Sy (the geometric mean, P Sx P = Sy) the factors X P^1/2, Y P^-1/2 have squared
distances f_i, g_j from their weighted means, whose weighted averages are both the fidelity, so that
fidelity <= kappa <= sqrt(max f max g). The next weights are proportional to mu_i f_i^c, nu_j g_j^c
(the multiplicative update of optimal experimental design; c < 1, since two opposite points swap
their weights at c = 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np

from .exact import Enclosure, ExactMatrix, Floats, Objects, sqrt_enclosure
from .residual import residual

GAP = 1e-4
STEPS = 1000
_DAMPING = 0.9
_NEGLIGIBLE = 1e-10
_RIDGE = 1e-13
_INDEPENDENT = 1e-6
_FLOOR = 1e-9
_COARSE, _FINE = 12, 44


@dataclass(frozen=True)
class FactorProof:
    """kappa(T) <= ``bound(T)``: X (m x k) and Y (n x k), rational, X Y^T near T up to additive
    terms, with their centres already subtracted."""

    X: ExactMatrix
    Y: ExactMatrix

    def bound(self, T: ExactMatrix) -> Fraction:
        """max|x_i| max|y_j| + max_i ||M_i||_2, M the doubly centred mismatch T - X Y^T, which
        itself has size at most max_i ||M_i||_2 (the factorisation M I). Rational, rounded up."""
        mismatch = (T - self.X @ self.Y.T).doubly_centred()
        radii = _largest_square(self.X) * _largest_square(self.Y)
        return sqrt_enclosure(radii).upper + sqrt_enclosure(_largest_square(mismatch)).upper


@dataclass(frozen=True)
class DualProof:
    """kappa(T) >= ``bound(T)``: weights mu (m x 1), nu (n x 1), integers >= 0, and U (m x k),
    V (n x k) integers, which stand for D = diag(mu) U' V'^T diag(nu), U' and V' being U and V minus
    their weighted means (so that D is doubly centred)."""

    mu: ExactMatrix
    nu: ExactMatrix
    U: ExactMatrix
    V: ExactMatrix

    def bound(self, T: ExactMatrix) -> Fraction:
        """<T, D> / sqrt(sum mu ||Gu|| sum nu ||Gv||), rounded down, with Gu = U'^T diag(mu) U',
        Gv likewise and || || the largest l1 norm of a row.

        Proof: with p = mu / sum mu, p' = nu / sum nu, the matrix diag(p)^-1/2 D diag(p')^-1/2 is
        sqrt(sum mu sum nu) times (diag(mu)^1/2 U') (diag(nu)^1/2 V')^T, whose operator norm is at
        most sqrt(||Gu|| ||Gv||). Divide D by the product and apply MATH 3.6. A row of weight zero
        is a row of zeros in D. Zero, which every size reaches, if the weights are none.
        """
        for weights in (self.mu, self.nu):
            if not ((weights.numerators >= 0).all() and _total(weights) > 0):
                return Fraction(0)
        left, right = _weighted(self.mu, self.U), _weighted(self.nu, self.V)
        pairing = np.trace((left.T @ T @ right).numerators)
        norm = _total(self.mu) * _gram_norm(self.mu, self.U) * _total(self.nu)
        norm *= _gram_norm(self.nu, self.V)
        if not (pairing > 0 and norm > 0):
            return Fraction(0)
        value = Fraction(pairing, left.den * T.den * right.den)
        return value / sqrt_enclosure(norm).upper

    def triple(self) -> TripleProof:
        """Nearly the same proof as an explicit triple of short integers, for anyone to check by
        elimination: weights rounded up to 30 bits, D scaled by 1 - 2^-16 to make room for it."""
        norm = _gram_norm(self.mu, self.U) * _gram_norm(self.nu, self.V)
        norm *= _total(self.mu) * _total(self.nu)
        D = _weighted(self.mu, self.U) @ _weighted(self.nu, self.V).T
        shrunk = D.scaled((1 - Fraction(1, 1 << 16)) / sqrt_enclosure(norm).upper)
        return TripleProof(
            _probabilities(self.mu), _probabilities(self.nu), _recentred(shrunk.floats())
        )


@dataclass(frozen=True)
class TripleProof:
    """kappa(T) >= ``bound(T)``: rational weights mu (m x 1), nu (n x 1) and D (m x n), MATH 3.6."""

    mu: ExactMatrix
    nu: ExactMatrix
    D: ExactMatrix

    def bound(self, T: ExactMatrix) -> Fraction:
        """<T, D> if mu, nu are probability weights, D is doubly centred and
        [[diag mu, D], [D^T, diag nu]] is positive semidefinite, by exact LDL^T; else 0, which
        every size reaches. Cubic in m + n with growing integers: for up to about 64 rows."""
        sides = (self.mu, self.nu)
        weights = all(_total(w) == 1 and (w.numerators >= 0).all() for w in sides)
        D = self.D.numerators
        centred = not D.sum(axis=0).any() and not D.sum(axis=1).any()
        if not (weights and centred and self._contraction()):
            return Fraction(0)
        return Fraction(int((T.numerators * D).sum()), T.den * self.D.den)

    def _contraction(self) -> bool:
        den = lcm(self.mu.den, self.nu.den, self.D.den)
        mu, D, nu = (part.numerators * (den // part.den) for part in (self.mu, self.D, self.nu))
        return is_psd(np.block([[np.diag(mu[:, 0]), D], [D.T, np.diag(nu[:, 0])]]))


def is_psd(S: Objects) -> bool:
    """Whether a symmetric integer matrix is positive semidefinite: fraction-free LDL^T, where a
    zero pivot needs a zero column."""
    S, previous = S.copy(), 1
    while len(S):
        pivot, column = S[0, 0], S[1:, 0]
        if pivot < 0 or (pivot == 0 and column.any()):
            return False
        if pivot > 0:
            S = (pivot * S[1:, 1:] - np.outer(column, column)) // previous
            previous = pivot
        else:
            S = S[1:, 1:]
    return True


@dataclass(frozen=True)
class Size:
    """An enclosure of kappa(T), in the units of T, and what proves its two ends.

    ``q``: q(T), which gives kappa >= q/2 (MATH 3.6) beside the dual proof. ``primal`` and ``dual``
    are None for T of size zero.
    """

    enclosure: Enclosure
    q: Fraction
    primal: FactorProof | None
    dual: DualProof | None

    @property
    def relative_gap(self) -> float:
        """upper / lower - 1, at least 0; 0 for size zero."""
        low, high = self.enclosure.lower, self.enclosure.upper
        return float(high / low - 1) if low else 0.0


def size(
    T: ExactMatrix, factors: tuple[ExactMatrix, ExactMatrix] | None = None, gap: float = GAP
) -> Size:
    """kappa of a rational matrix T (m x n; additive terms do not matter), in the units of T.

    ``factors``: exact X (m x d), Y (n x d) with T = X Y^T up to additive terms, as coordinates for
    the search; by default the balanced singular value decomposition of the centred T. In short
    rational coordinates the enclosure of a symmetric instance is often a point. ``gap``: the search
    ends at this relative gap, or after ``STEPS`` steps with whatever gap is left.
    """
    q = residual(T).value
    if q == 0:
        return Size(Enclosure.exactly(0), q, None, None)
    bits = int(np.abs(T.numerators).max()).bit_length() - T.den.bit_length()
    unit = Fraction(2) ** (bits // 2)
    found = _fixed_point(*_coordinates(T, factors, unit), gap)
    rounded = [_rounded(found.X, found.Y, bits) for bits in (_COARSE, _FINE)]
    proofs = [FactorProof(X.scaled(unit), Y.scaled(unit)) for X, Y in rounded]
    primal = min(proofs, key=lambda proof: proof.bound(T))
    dual = _dual_proof(found)
    lower = max(q / 2, dual.bound(T))
    return Size(Enclosure(lower, primal.bound(T)), q, primal, dual)


def _coordinates(
    T: ExactMatrix, factors: tuple[ExactMatrix, ExactMatrix] | None, unit: Fraction
) -> tuple[Floats, Floats]:
    """Factors, in float64 and in this unit, whose product is T up to additive terms: the given ones
    if their centred columns are independent, else balanced ones."""
    if factors is not None:
        X, Y = (side.centred_rows().scaled(1 / unit).floats() for side in factors)
        spectra = [np.linalg.svd(side, compute_uv=False) for side in (X, Y)]
        if all(len(s) == X.shape[1] and s[-1] > _INDEPENDENT * s[0] for s in spectra):
            return X, Y
    C = T.doubly_centred().scaled(1 / unit**2)
    U, s, Vt = np.linalg.svd(C.floats(), full_matrices=False)
    kept = s > _NEGLIGIBLE * s[0]
    root = np.sqrt(s[kept])
    return U[:, kept] * root, Vt[kept].T * root


@dataclass(frozen=True)
class _FixedPoint:
    """X (m x r), Y (n x r): factors with centres subtracted, for the upper bound. ``mu`` (m,),
    ``nu`` (n,) and ``U`` (m x r), ``V`` (n x r), whose weighted covariances are the identity, for
    the lower one."""

    X: Floats
    Y: Floats
    mu: Floats
    nu: Floats
    U: Floats
    V: Floats


def _fixed_point(X: Floats, Y: Floats, gap: float) -> _FixedPoint:
    """Iterate the multiplicative update until both sides agree to ``gap``, or ``STEPS`` times."""
    start_X, start_Y = X, Y
    mu, nu = np.full(len(X), 1 / len(X)), np.full(len(Y), 1 / len(Y))
    transform = np.eye(X.shape[1])
    least, best = np.inf, (mu, nu, transform)
    for _ in range(STEPS):
        X, Y = X - mu @ X, Y - nu @ Y
        A, B, spread = _balance((X.T * mu) @ X, (Y.T * nu) @ Y)
        X, Y, transform = X @ A, Y @ B, transform @ A
        f, g = (X * X).sum(axis=1), (Y * Y).sum(axis=1)
        fidelity, upper = spread.sum(), np.sqrt(f.max() * g.max())
        if upper < least:
            least, best = upper, (mu, nu, transform)
        if least <= (1 + gap) * fidelity:
            break
        last = mu, nu
        mu, nu = _reweighted(mu, f), _reweighted(nu, g)
    else:
        mu, nu = last
    kept = spread > _NEGLIGIBLE * spread.max()
    root = np.sqrt(spread[kept])
    centred = _symmetric_factors(start_X, start_Y, *best)
    return _FixedPoint(*centred, mu, nu, X[:, kept] / root, Y[:, kept] / root)


def _balance(Sx: Floats, Sy: Floats) -> tuple[Floats, Floats, Floats]:
    """A, B and a positive vector s with A B^T = I, A^T Sx A = B^T Sy B = diag(s) (nearly)."""
    L = np.linalg.cholesky(Sx + _RIDGE * np.trace(Sx) * np.eye(len(Sx)))
    squares, V = np.linalg.eigh(L.T @ Sy @ L)
    spread = np.sqrt(np.maximum(squares, np.finfo(float).tiny))
    root = np.sqrt(spread)
    return np.linalg.solve(L.T, V) * root, L @ V / root, spread


def _reweighted(weights: Floats, distances: Floats) -> Floats:
    """The multiplicative update, with a floor so that every row can come back."""
    weights = weights * (distances / (weights @ distances)) ** _DAMPING
    weights = np.maximum(weights, _FLOOR / len(weights))
    return np.asarray(weights / weights.sum())


def _symmetric_factors(
    X: Floats, Y: Floats, mu: Floats, nu: Floats, transform: Floats
) -> tuple[Floats, Floats]:
    """(X - mu X) P^1/2 and (Y - nu Y) P^-1/2, P = transform transform^T.

    The symmetric square root keeps the coordinates of X and Y, in which optima may be rational.
    """
    squares, V = np.linalg.eigh(transform @ transform.T)
    root = np.sqrt(squares)
    return (X - mu @ X) @ (V * root) @ V.T, (Y - nu @ Y) @ (V / root) @ V.T


def _rounded(X: Floats, Y: Floats, bits: int) -> tuple[ExactMatrix, ExactMatrix]:
    """Both to that many bits below the leading one of their largest entry."""
    x, y = (bits - int(np.frexp(np.abs(side).max())[1]) for side in (X, Y))
    return ExactMatrix.rounded(X, x), ExactMatrix.rounded(Y, y)


def _dual_proof(found: _FixedPoint) -> DualProof:
    mu, nu = (ExactMatrix.rounded(w[:, None], _FINE) for w in (found.mu, found.nu))
    U, V = _rounded(found.U, found.V, _FINE)
    return DualProof(mu, nu, U, V)


def _probabilities(weights: ExactMatrix) -> ExactMatrix:
    """Weights over their sum, each first rounded up to a multiple of 2^-30 of the sum."""
    total = weights.numerators.sum()
    raised = -(-(weights.numerators << 30) // total)
    return ExactMatrix(raised, int(raised.sum()))


def _recentred(D: Floats) -> ExactMatrix:
    """D to 60 bits, the last row and the last column mended so that all of them sum to zero."""
    rounded = ExactMatrix.rounded(D, 60)
    whole = rounded.numerators
    whole[:, -1] -= whole.sum(axis=1)
    whole[-1] -= whole.sum(axis=0)
    return rounded


def _weighted(weights: ExactMatrix, U: ExactMatrix) -> ExactMatrix:
    """diag(weights) U', U' = U minus its weighted mean."""
    return weights.times(_centred(weights, U))


def _centred(weights: ExactMatrix, U: ExactMatrix) -> ExactMatrix:
    w = weights.numerators
    return ExactMatrix(w.sum() * U.numerators - (w * U.numerators).sum(axis=0), w.sum() * U.den)


def _gram_norm(weights: ExactMatrix, U: ExactMatrix) -> Fraction:
    """The largest l1 norm of a row of U'^T diag(weights) U'."""
    gram = _centred(weights, U).T @ _weighted(weights, U)
    return Fraction(int(np.abs(gram.numerators).sum(axis=1).max()), gram.den)


def _total(weights: ExactMatrix) -> Fraction:
    return Fraction(weights.numerators.sum(), weights.den)


def _largest_square(rows: ExactMatrix) -> Fraction:
    """The largest squared Euclidean norm of a row."""
    return Fraction((rows.numerators**2).sum(axis=1).max(), rows.den**2)
