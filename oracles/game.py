"""Exact solution of matrix games: the only linear programs that the controls need.

A game ``M`` (R x C rationals) has the value ``max_p min_j (p M)_j = min_q max_i (M q)_i`` over
probability vectors p (rows) and q (columns). Both optimal strategies are returned: together they
prove the value by arithmetic alone, so nothing has to be believed about the solver.

The solver is the simplex method on the condensed tableau in fraction-free integers, with Bland's
rule (these games are degenerate: sympy 1.14's exact simplex stops on some of them with
"oscillating system"). The tests compare it with HiGHS.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from .rational import Matrix, matrix, over_common_denominator


@dataclass(frozen=True)
class Equilibrium:
    """A value of a game with the strategies that prove it.

    p: R probabilities for the maximiser of rows, q: C probabilities for the minimiser of columns.
    """

    value: Fraction
    p: Matrix
    q: Matrix

    def proves_value_of(self, M: Matrix) -> bool:
        """p guarantees at least ``value`` and q at most ``value``: exact arithmetic only."""
        return (
            all(e >= 0 for e in (*self.p, *self.q))
            and self.p.sum() == self.q.sum() == 1
            and min(self.p @ M) == self.value == max(M @ self.q)
        )


def solve(M: Matrix) -> Equilibrium:
    """An equilibrium of the game M (R x C, R and C at least 1); its proof has been checked."""
    integers, den = over_common_denominator(M)
    shift = 1 - min(integers.flat)
    tableau = _Tableau(integers + shift)
    for column in tableau.improving_columns():
        tableau.pivot(tableau.leaving_row(column), column)
    x, y, total = tableau.solution()
    equilibrium = Equilibrium((1 / total - shift) / den, y / total, x / total)
    if not equilibrium.proves_value_of(M):
        raise ArithmeticError("the strategies found do not prove the value of the game")
    return equilibrium


class _Tableau:
    """maximise sum x subject to M x <= 1, x >= 0 for a positive integer M; duals in the last row.

    True entries are ``self.T / self.den``; both stay integers (Edmonds). Variables 0..C-1 are x,
    C..C+R-1 are the slacks, whose multipliers are the dual y.
    """

    def __init__(self, M: Matrix) -> None:
        rows, columns = M.shape
        self.T = np.zeros((rows + 1, columns + 1), dtype=object)
        self.T[:-1, :-1] = M
        self.T[:-1, -1] = 1
        self.T[-1, :-1] = -1
        self.den = 1
        self.inside = list(range(columns, columns + rows))
        self.outside = list(range(columns))

    def improving_columns(self) -> Iterator[int]:
        """By Bland's rule, until the last row is nonnegative."""
        while True:
            candidates = [j for j in range(len(self.outside)) if self.T[-1, j] < 0]
            if not candidates:
                return
            yield min(candidates, key=self.outside.__getitem__)

    def leaving_row(self, column: int) -> int:
        """The tightest row; there is one, as M > 0 makes the program bounded."""
        candidates = [i for i in range(len(self.inside)) if self.T[i, column] > 0]
        ratio = {i: Fraction(self.T[i, -1], self.T[i, column]) for i in candidates}
        return min(candidates, key=lambda i: (ratio[i], self.inside[i]))

    def pivot(self, i: int, j: int) -> None:
        """Exchange the basic variable of row i with the nonbasic variable of column j."""
        pivot, row, column = self.T[i, j], self.T[i].copy(), self.T[:, j].copy()
        self.T = (self.T * pivot - np.outer(column, row)) // self.den
        self.T[i], self.T[:, j] = row, -column
        self.T[i, j], self.den = self.den, pivot
        self.inside[i], self.outside[j] = self.outside[j], self.inside[i]

    def solution(self) -> tuple[Matrix, Matrix, Fraction]:
        """x (C), y (R) and the common optimum, sum x = sum y."""
        primal = dict(zip(self.inside, self.T[:-1, -1], strict=True))
        dual = dict(zip(self.outside, self.T[-1, :-1], strict=True))
        columns = len(self.outside)
        x = [Fraction(primal.get(j, 0), self.den) for j in range(columns)]
        y = [Fraction(dual.get(columns + i, 0), self.den) for i in range(len(self.inside))]
        return matrix(x), matrix(y), sum(x, Fraction(0))
