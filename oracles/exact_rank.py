"""The true approximation rank of small matrices, with certificates (up to 4 x 4).

Three regimes are decided completely, for every rational matrix and tolerance:

* rank 0: ``||A|| <= eps``;
* rank at most 1, by enumerating patterns (``rank_one``);
* rank below min(m, n), by the distance to the matrices that are not of full rank
  (``corank_one``; MATH 5.5 is the invertible square case).

That is everything up to three rows or three columns. For 4 x 4, between rank 2 and rank 3, a search
in rationals proposes a plane (``near_plane``) or a hyperplane (``far_hyperplane``), each judged
exactly; if neither settles it the answer is a bracket, not a rank. Every linear program is a matrix
game (``oracles.game``) whose value its two strategies prove.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product

import numpy as np

from softrank_exact.errors import UserError
from softrank_exact.scalars import parse_epsilon

from . import game
from .claims import Step
from .kernel_steps import nonzero_rank, rank_at_least, rank_at_most
from .rational import Matrix, full_rank_factors, inverse, matrix, norm, rank, zeros

MAX_SIZE = 4


@dataclass(frozen=True)
class Bracket:
    """lower <= r_eps(A) <= upper, and the step that proves each end (None where it is trivial)."""

    lower: int
    upper: int
    lower_step: Step | None
    upper_step: Step | None

    @property
    def rank(self) -> int | None:
        """The rank where the bracket is closed; None where it stays undecided."""
        return self.lower if self.lower == self.upper else None


def exact_rank(A: Matrix, epsilon: Fraction | int | str) -> Bracket:
    """r_eps(A) for a rational matrix of at most 4 x 4, over all real competitors (MATH 1).

    ``A``: rows of fractions, integers or strings "p/q". Raises ``UserError`` for other sizes,
    entries or tolerances.
    """
    A, epsilon = _checked(A, epsilon)
    full = min(A.shape)
    if norm(A) <= epsilon:
        return Bracket(0, 0, None, rank_at_most(A, epsilon, zeros(len(A), 0), zeros(0, A.shape[1])))
    one = rank_one(A, epsilon)
    if one.factors is not None:
        return Bracket(1, 1, nonzero_rank(A, epsilon), rank_at_most(A, epsilon, *one.factors))
    nearest = corank_one(A)
    if nearest.distance > epsilon:
        return Bracket(full, full, nearest.lower_step(A, epsilon), None)
    upper = rank_at_most(A, epsilon, *nearest.factors(A))
    if full <= 3:
        return Bracket(2, full - 1, one.lower_step(), upper)
    return _between_two_and_three(A, epsilon, Bracket(2, 3, one.lower_step(), upper))


def _checked(A: Matrix, epsilon: Fraction | int | str) -> tuple[Matrix, Fraction]:
    try:
        A = matrix(A)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
        raise UserError(
            f"the matrix needs equal rows of rational numbers; found: {error}"
        ) from error
    if A.ndim != 2 or not (min(A.shape) >= 1 and max(A.shape) <= MAX_SIZE):
        raise UserError(f"the matrix has shape {A.shape}; exact_rank accepts 1 x 1 to 4 x 4")
    return A, parse_epsilon(epsilon)


# Rank at most one


@dataclass(frozen=True)
class RankOne:
    """``factors`` = (u, v) with ||A - u v|| <= eps; or None, and the ``refuted`` patterns.

    A refuted pattern is (signs of v, pivot of each row so far): its linear program has no
    solution, by a strategy that ``game.solve`` has checked.
    """

    epsilon: Fraction
    factors: tuple[Matrix, Matrix] | None
    refuted: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]

    def lower_step(self) -> Step:
        """r >= 2: every pattern is refuted."""
        shown = {"rank": 2, "patterns": len(self.refuted)}
        says = f"r >= 2 at {self.epsilon}: no pattern of signs and pivots has a rank-one solution"
        return Step("game", says, self.factors is None and bool(self.refuted), shown)


def rank_one(A: Matrix, epsilon: Fraction) -> RankOne:
    """Decide r_eps(A) <= 1.

    Rows with ||A_i|| <= eps are met by 0. Any other row needs u_i != 0, and sum_j |A_ij - u v_j|,
    convex and piecewise linear in u, has its minimum at u = A_ip / v_p for some pivot p with v_p
    != 0, where A_ip != 0. For given signs of v and given pivots that is a linear condition on z =
    |v|: sum_j |A_ij v_p - A_ip v_j| <= eps |v_p|. (If v_p = 0 it would force v = 0.)
    """
    heavy = [i for i in range(len(A)) if abs(A[i]).sum() > epsilon]
    refuted: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for signs in _signs_up_to_negation(A.shape[1]):
        found = _solve_pattern(A, epsilon, heavy, signs, (), refuted)
        if found is not None:
            pivots, v = found
            u = zeros(len(A), 1)
            for i, p in zip(heavy, pivots, strict=True):
                u[i, 0] = A[i, p] / v[p]
            return RankOne(epsilon, (u, v[None, :]), ())
    return RankOne(epsilon, None, tuple(refuted))


def _solve_pattern(
    A: Matrix,
    epsilon: Fraction,
    heavy: list[int],
    signs: tuple[int, ...],
    pivots: tuple[int, ...],
    refuted: list[tuple[tuple[int, ...], tuple[int, ...]]],
) -> tuple[tuple[int, ...], Matrix] | None:
    """Extend the pivots row by row as long as the rows so far have a common solution v."""
    v = matrix(signs)
    if pivots:
        rows = [
            inequality
            for i, p in zip(heavy, pivots, strict=False)
            for inequality in _row_inequalities(A[i], p, signs, epsilon)
        ]
        equilibrium = game.solve(np.array(rows, dtype=object).T)
        if equilibrium.value < 0:
            refuted.append((signs, pivots))
            return None
        v = matrix(signs) * equilibrium.p
    if len(pivots) == len(heavy):
        return pivots, v
    row = A[heavy[len(pivots)]]
    for p in np.flatnonzero(row):
        found = _solve_pattern(A, epsilon, heavy, signs, (*pivots, int(p)), refuted)
        if found is not None:
            return found
    return None


def _row_inequalities(
    row: Matrix, p: int, signs: tuple[int, ...], epsilon: Fraction
) -> Iterator[Matrix]:
    """Coefficients c with c . z >= 0 for all of them iff the row is met within eps by pivot p."""
    differences = zeros(len(row), len(row))
    for j in range(len(row)):
        differences[j, p] += row[j] * signs[p]
        differences[j, j] -= row[p] * signs[j]
    budget = zeros(len(row))
    budget[p] = epsilon
    others = np.delete(differences, p, axis=0)
    for s in product((1, -1), repeat=len(others)):
        yield budget - matrix(s) @ others if len(others) else budget


def _signs_up_to_negation(length: int) -> Iterator[tuple[int, ...]]:
    for rest in product((1, -1), repeat=length - 1):
        yield (1, *rest)


# Rank below min(m, n)


@dataclass(frozen=True)
class CorankOne:
    """d_{p-1}(A), p = min(m, n), and a ``change`` E of that norm after which the rank is < p.

    ``values`` are the values of the games, one a pattern; the distance is their minimum.
    """

    distance: Fraction
    change: Matrix
    values: tuple[Fraction, ...]

    def factors(self, A: Matrix) -> tuple[Matrix, Matrix]:
        """X (m x (p-1)), Y ((p-1) x n) with A - X Y = E, padded with zeros if the rank is lower."""
        k = min(A.shape) - 1
        B = A - self.change
        if not B.any():
            return zeros(len(A), k), zeros(k, A.shape[1])
        X, Y = full_rank_factors(B)
        pad = k - len(Y)
        return np.hstack([X, zeros(len(X), pad)]), np.vstack([Y, zeros(pad, Y.shape[1])])

    def lower_step(self, A: Matrix, epsilon: Fraction) -> Step:
        """r >= p: by the inverse in the kernel if A is square, else by the games."""
        m, n = A.shape
        if m == n:
            return rank_at_least(A, epsilon, inverse(A))
        says = f"r >= {min(m, n)} at {epsilon}: every pattern has distance above it"
        shown = {"rank": min(m, n), "values": self.values}
        return Step("game", says, min(self.values) > epsilon, shown)


def corank_one(A: Matrix) -> CorankOne:
    """The exact distance to rank below min(m, n), for a rational m x n matrix with m, n small.

    m <= n: some y != 0 has y B = 0, so y A = y E; given y, the least max row norm of E is ||y
    A||_1 / ||y||_1 (E_i = sign(y_i) y A). m > n: some x != 0 has B x = 0, so A x = E x; given x
    with |x_j| = ||x||_inf = 1 the least is ||A x||_inf (E = A x e_j). Both are games once signs
    or j are fixed.
    """
    return _least_combination(A) if A.shape[0] <= A.shape[1] else _least_image(A)


def _least_combination(A: Matrix) -> CorankOne:
    m, n = A.shape
    cube = matrix(product((1, -1), repeat=n))
    found = {signs: game.solve((cube @ A.T) * matrix(signs)) for signs in _signs_up_to_negation(m)}
    signs, best = min(found.items(), key=lambda item: item[1].value)
    y = matrix(signs) * best.q
    change = np.outer(np.sign(y), y @ A)
    return CorankOne(best.value, change, tuple(e.value for e in found.values()))


def _least_image(A: Matrix) -> CorankOne:
    n = A.shape[1]
    found = {}
    for j in range(n):
        vertices = matrix(np.insert(v, j, 1) for v in product((1, -1), repeat=n - 1))
        image = A @ vertices.T
        found[j] = vertices, game.solve(np.vstack([image, -image]))
    j, (vertices, best) = min(found.items(), key=lambda item: item[1][1].value)
    change = zeros(*A.shape)
    change[:, j] = A @ (best.q @ vertices)
    return CorankOne(best.value, change, tuple(e.value for _, e in found.values()))


# Four by four, between rank two and rank three


def _between_two_and_three(A: Matrix, epsilon: Fraction, bracket: Bracket) -> Bracket:
    y = far_hyperplane(A, epsilon)
    height = hyperplane_height(A, y)
    if height > epsilon:
        says = f"r >= 3 at {epsilon}: ||A x||_inf >= {height} ||x||_inf wherever y x = 0"
        step = Step("game", says, height > epsilon, {"rank": 3, "y": y, "height": height})
        return Bracket(3, 3, step, bracket.upper_step)
    Y = near_plane(A, epsilon)
    upper = rank_at_most(A, epsilon, combinations_of(A, Y), Y)
    return Bracket(2, 2, bracket.lower_step, upper) if upper.holds else bracket


def far_hyperplane(A: Matrix, goal: Fraction) -> Matrix:
    """y (n) with a large ``hyperplane_height``; the search stops once that exceeds ``goal``.

    If it does, r_goal(A) >= n - 1: every subspace of codimension n - 2 meets {y x = 0} (MATH 1.3).
    """
    starts = [matrix(y) for y in product((1, 0, -1), repeat=A.shape[1]) if any(y)]
    half = starts[: len(starts) // 2]  # the other half are their negatives
    return _compass_search(half, lambda y: hyperplane_height(A, y), lambda h: h > goal)


def hyperplane_height(A: Matrix, y: Matrix) -> Fraction:
    """The least ||A x||_inf over all x with y x = 0 and ||x||_inf = 1, for y != 0; 0 if y = 0."""
    heights = []
    for j in range(len(y)):
        vertices = list(_face_vertices(y, j))
        if vertices:
            image = A @ np.array(vertices, dtype=object).T
            heights.append(game.solve(np.vstack([image, -image])).value)
    return min(heights, default=Fraction(0))


def _face_vertices(y: Matrix, j: int) -> Iterator[Matrix]:
    """Vertices of {x : x_j = 1, |x_l| <= 1, y x = 0}: all coordinates but one are +-1."""
    for free in range(len(y)):
        if free == j or y[free] == 0:
            continue
        for s in product((1, -1), repeat=len(y) - 2):
            x = matrix(np.insert(np.insert(s, min(free, j), 1), max(free, j), 1))
            x[free] = 0
            x[free] = -(y @ x) / y[free]
            if abs(x[free]) <= 1:
                yield x


def near_plane(A: Matrix, goal: Fraction) -> Matrix:
    """Y (2 x n) whose rows span a plane near to all rows of A; stops once within ``goal``."""
    rows = list(A)
    pairs = list(combinations(rows, 2))
    pool = rows + [(a + b) / 2 for a, b in pairs] + [a - b for a, b in pairs]
    starts = [np.vstack(pair) for pair in combinations(pool, 2) if rank(np.vstack(pair)) == 2]
    return _compass_search(
        starts, lambda Y: -norm(A - combinations_of(A, Y) @ Y), lambda height: -height <= goal
    )


def combinations_of(A: Matrix, Y: Matrix) -> Matrix:
    """X (m x 2) with every ||A_i - X_i Y|| least: some best residual vanishes on two columns."""
    bases = [
        (list(pair), inverse(Y[:, pair]))
        for pair in combinations(range(Y.shape[1]), 2)
        if rank(Y[:, pair]) == 2
    ]
    if not bases:
        return zeros(len(A), 2)
    return np.array(
        [
            min((row[pair] @ inv for pair, inv in bases), key=lambda x: abs(row - x @ Y).sum())
            for row in A
        ],
        dtype=object,
    )


def _compass_search(
    starts: list[Matrix],
    value: Callable[[Matrix], Fraction],
    enough: Callable[[Fraction], bool],
) -> Matrix:
    """The best start, improved one coordinate at a time by exact steps of 1/4 down to 1/64."""
    best, best_value = starts[0], value(starts[0])
    for start in starts[1:]:
        if enough(best_value):
            return best
        height = value(start)
        if height > best_value:
            best, best_value = start, height
    step = Fraction(1, 4)
    while step >= Fraction(1, 64) and not enough(best_value):
        improved = False
        for index in np.ndindex(best.shape):
            for move in (step, -step):
                trial = best.copy()
                trial[index] += move
                height = value(trial)
                if height > best_value:
                    best, best_value, improved = trial, height, True
        if not improved:
            step /= 2
    return best
