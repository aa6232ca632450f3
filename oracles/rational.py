"""Exact rational matrices: numpy object arrays of ``Fraction``.

A matrix here is a numpy array of dtype object whose entries are ``Fraction``; ``@``, ``+``,
``abs``, ``np.kron`` and ``mean`` are then exact. Rank and inverse go through python-flint.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import lcm
from typing import Any, TypeAlias

import numpy as np
from flint import fmpq, fmpq_mat
from numpy.typing import NDArray

Rational: TypeAlias = Fraction | int
Matrix: TypeAlias = NDArray[Any]
"""Any shape, entries ``Fraction``."""


def matrix(rows: Iterable[Any]) -> Matrix:
    """An object array of fractions from nested sequences (or an array) of rational numbers."""
    values = np.array(list(rows), dtype=object)
    return np.vectorize(Fraction, otypes=[object])(values) if values.size else values


def zeros(*shape: int) -> Matrix:
    """All entries zero; an axis may be empty."""
    return np.full(shape, Fraction(0), dtype=object)


def identity(size: int) -> Matrix:
    """The identity matrix."""
    return matrix(np.eye(size, dtype=int))


def ones(*shape: int) -> Matrix:
    """All entries one."""
    return np.full(shape, Fraction(1), dtype=object)


def norm(E: Matrix) -> Fraction:
    """The largest l1 norm of a row, ``||E||`` of MATH 1; zero for a matrix without columns."""
    return max(Fraction(sum(abs(e) for e in row)) for row in E)


def inner(F: Matrix, D: Matrix) -> Fraction:
    """The sum of the entrywise products of two matrices of one shape."""
    return Fraction((F * D).sum())


def square_norm(v: Matrix) -> Fraction:
    """The squared Euclidean norm of all entries."""
    return inner(v, v)


def centred(F: Matrix) -> Matrix:
    """P_m F P_n with P_k = I - 11^T/k: rows and columns then sum to zero (MATH 3.2)."""
    rows = F.mean(axis=1, keepdims=True)
    columns = F.mean(axis=0, keepdims=True)
    return F - rows - columns + F.mean()


def rank(F: Matrix) -> int:
    """The exact rank; zero for an empty matrix."""
    return flint_matrix(F).rank() if F.size else 0


def inverse(M: Matrix) -> Matrix:
    """The exact inverse. Raises ``ZeroDivisionError`` if M is singular."""
    return _fractions(flint_matrix(M).inv())


def null_space(F: Matrix) -> Matrix:
    """Integer columns that form a basis of {x : F x = 0}, n x (n - rank F)."""
    reduced, r = flint_matrix(F).rref()
    R, n = _fractions(reduced)[:r], F.shape[1]
    pivots = [int(np.flatnonzero(row)[0]) for row in R]
    free = [j for j in range(n) if j not in pivots]
    basis = zeros(n, len(free))
    basis[free, range(len(free))] = Fraction(1)
    basis[pivots] = -R[:, free]
    return matrix(over_common_denominator(basis)[0])


def full_rank_factors(F: Matrix) -> tuple[Matrix, Matrix]:
    """X (m x r) of pivot columns and Y (r x n) in echelon form with F = X Y, r = rank F."""
    reduced, r = flint_matrix(F).rref()
    Y = _fractions(reduced)[:r]
    pivots = [int(np.flatnonzero(row)[0]) for row in Y]
    return F[:, pivots], Y


def is_positive_semidefinite(S: Matrix) -> bool:
    """Exact LDL^T elimination of a symmetric matrix; no square roots."""
    S = S.copy()
    for k in range(len(S)):
        pivot, column = S[k, k], S[k + 1 :, k].copy()
        if pivot < 0 or (pivot == 0 and any(column)):
            return False
        if pivot > 0:
            S[k + 1 :, k + 1 :] -= np.outer(column, column) / pivot
    return True


def over_common_denominator(F: Matrix) -> tuple[Matrix, int]:
    """Integers N (an object array of Python integers) and den > 0 with F = N / den."""
    den = lcm(*(Fraction(f).denominator for f in F.flat))
    integers = np.array([int(f * den) for f in F.flat], dtype=object)
    return integers.reshape(F.shape), den


def flint_matrix(F: Matrix) -> fmpq_mat:
    """The matrix F (m x n) in python-flint."""
    m, n = F.shape
    entries = [fmpq(f.numerator, f.denominator) for f in map(Fraction, F.flat)]
    return fmpq_mat(m, n, entries)


def _fractions(M: fmpq_mat) -> Matrix:
    return matrix([[_fraction(entry) for entry in row] for row in M.tolist()])


def _fraction(q: fmpq) -> Fraction:
    return Fraction(int(q.p), int(q.q))
