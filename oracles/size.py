"""Exact certificates for the factor-radius size kappa and the residual q (MATH 3.4, 3.6).

Nothing is optimised here: a control brings the optimal objects in closed form, and these functions
check in rational arithmetic what they prove.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from .claims import Step, arithmetic
from .rational import Matrix, centred, inner, is_positive_semidefinite, square_norm


def enclosing_ball(points: Matrix, weights: Matrix) -> tuple[Matrix, Fraction, Step]:
    """Centre, squared radius and proof of the smallest ball around the rows of ``points`` (n x d).

    The centre is the mean under ``weights``; it is optimal iff the weights are probabilities
    carried by points at the largest distance.
    """
    centre = weights @ points
    squares = [square_norm(point - centre) for point in points]
    radius = max(squares)
    carried = all(w == 0 or square == radius for w, square in zip(weights, squares, strict=True))
    optimal = min(weights) >= 0 and weights.sum() == 1 and carried
    step = arithmetic(
        f"squared radius {radius}: the centre is a mean of points at that distance",
        optimal,
        weights=weights,
    )
    return centre, radius, step


def size_steps(
    T: Matrix,
    kappa: Fraction,
    factors: tuple[Matrix, Matrix],
    centres: tuple[Matrix, Matrix],
    dual: tuple[Matrix, Matrix, Matrix],
) -> tuple[Step, Step]:
    """kappa(T) = kappa for a doubly centred T (m x n), from both sides (MATH 3.6).

    factors: X (m x d), Y (n x d) with X Y^T = T up to additive terms; centres: weights of the
    rows of X and of Y; dual: mu (m), nu (n) probabilities and D (m x n).
    """
    (X, Y), (a, b), (mu, nu, D) = factors, centres, dual
    radii = [max(square_norm(x - w @ Z) for x in Z) for Z, w in ((X, a), (Y, b))]
    upper = arithmetic(
        f"kappa <= {kappa}: factors of T whose radii have this product",
        np.array_equal(centred(X @ Y.T), T) and kappa >= 0 and radii[0] * radii[1] == kappa**2,
        X=X,
        Y=Y,
        squared_radii=radii,
    )
    block = np.block([[np.diag(mu), D], [D.T, np.diag(nu)]])
    lower = arithmetic(
        f"kappa >= {kappa}: <T, D> for a doubly centred D with [[diag mu, D], [D^T, diag nu]] psd",
        np.array_equal(centred(D), D)
        and mu.sum() == nu.sum() == 1
        and is_positive_semidefinite(block)
        and inner(T, D) == kappa,
        mu=mu,
        nu=nu,
        D=D,
    )
    return upper, lower


def residual_steps(
    F: Matrix, q: Fraction, potentials: tuple[Matrix, Matrix], D: Matrix
) -> tuple[Step, Step]:
    """q(F) = q from both sides (MATH 3.4): additive potentials (a, b), and a dual D (m x n)."""
    a, b = potentials
    upper = arithmetic(
        f"q <= {q}: 2 max |F_ij - a_i - b_j|",
        2 * abs(F - a[:, None] - b[None, :]).max() == q,
        a=a,
        b=b,
    )
    lower = arithmetic(
        f"q >= {q}: <F, D> with D 1 = 0, 1^T D = 0 and sum |D| <= 2",
        not D.sum(axis=0).any()
        and not D.sum(axis=1).any()
        and abs(D).sum() <= 2
        and inner(F, D) == q,
        D=D,
    )
    return upper, lower
