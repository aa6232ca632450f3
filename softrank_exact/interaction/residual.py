"""The residual q and the tolerance tau it costs, certified (MATH 3.4, 3.1).

q(F) = min_b max_i osc(F_i - b) is the largest cycle mean of the digraph on the rows with weights
W_ii' = max_j (F_i'j - F_ij). Howard's policy iteration finds it in integers: one round costs O(mn),
because max_i' (W_ii' + v_i') = max_j [max_i' (F_i'j + v_i') - F_ij]. The result carries both
proofs, the cycle from below and the potentials from above; ``proves`` checks them without the
search.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from .exact import Enclosure, ExactMatrix, tanh_quarter_twice
from .visible import VisibleInteraction

Indices = npt.NDArray[np.intp]
Integers = npt.NDArray[np.object_] | npt.NDArray[np.int64]


@dataclass(frozen=True)
class Residual:
    """q(F) = value exactly, with its proofs.

    ``row_terms`` a (m x 1) and ``column_terms`` b (1 x n): max |F_ij - a_i - b_j| = value / 2.
    ``cycle``: pairs (i_t, j_t), t = 1..l, i_{l+1} = i_1: sum_t (F[i_{t+1}, j_t] - F[i_t, j_t]) is
    l value, so the matrix D with +1/l at (i_{t+1}, j_t) and -1/l at (i_t, j_t) is optimal for the
    dual.
    """

    value: Fraction
    row_terms: ExactMatrix
    column_terms: ExactMatrix
    cycle: tuple[tuple[int, int], ...]

    def proves(self, F: ExactMatrix) -> bool:
        """Whether the potentials prove q(F) <= value and the cycle proves q(F) >= value."""
        rest = F - self.row_terms - self.column_terms
        rows, columns = zip(*self.cycle, strict=True)
        following = rows[1:] + rows[:1]
        steps = F.numerators[following, columns] - F.numerators[rows, columns]
        mean = Fraction(sum(steps.tolist()), F.den * len(rows))
        return 2 * rest.largest() <= self.value <= mean


def residual(F: ExactMatrix) -> Residual:
    """q(F) for a rational matrix F (m x n), in the units of F (MATH 3.4)."""
    m, n = F.shape
    if n < m:
        return _transposed(residual(F.T))
    whole = F.numerators
    narrow = _narrow(whole)
    policy = _howard(narrow, np.arange(m), np.zeros(m, dtype=np.intp))
    if not np.array_equal(narrow, whole):
        policy = _howard(whole, policy.successor, policy.column)
    certificate = _certificate(F, policy)
    if not certificate.proves(F):
        raise ArithmeticError("policy iteration ended without a proof of q")
    return certificate


def enclosed_residual(middle: Residual, interaction: VisibleInteraction) -> Enclosure:
    """q(C - unit T), dimensionless, from q(logits - T): a point up to the unit when the interaction
    is exact, since q is 2-Lipschitz in the largest entry."""
    slack = 2 * interaction.radius
    q = Enclosure(max(middle.value - slack, Fraction(0)), middle.value + slack)
    return interaction.unit * q


def tau(q: Enclosure) -> Enclosure:
    """2 tanh(q/4): some softmax matrix with visible interaction T lies this close to A, in the
    largest l1 distance of rows, if q = q(C - T) (MATH 3.4)."""
    return tanh_quarter_twice(q)


@dataclass(frozen=True)
class _Policy:
    """A map of the rows to rows by columns, all of whose walks end in ``cycle``.

    ``mean`` = total / length of the cycle; ``potential``: v scaled by the length, with
    v_i = W(i, successor) - mean + v_successor.
    """

    successor: Indices
    column: Indices
    cycle: list[int]
    total: int
    potential: npt.NDArray[Any]


def _howard(F: Integers, successor: Indices, column: Indices) -> _Policy:
    """The policy whose cycle has the largest mean (Howard; exact, so it terminates).

    Each round either raises the cycle mean or, keeping the only cycle, raises a potential.
    """
    rows = np.arange(len(F))
    while True:
        policy = _evaluate(F, successor, column)
        length, v = len(policy.cycle), policy.potential
        reach = length * F + v[:, None]
        gain = reach.max(axis=0) - length * F
        best = gain.argmax(axis=1)
        better = gain[rows, best] - policy.total > v
        if not better.any():
            return policy
        successor = np.where(better, reach.argmax(axis=0)[best], policy.successor)
        column = np.where(better, best, policy.column)


def _evaluate(F: Integers, successor: Indices, column: Indices) -> _Policy:
    """The best cycle of a policy, all other rows led to it, and the potentials."""
    successor, column = successor.copy(), column.copy()
    rows = np.arange(len(F))
    step = F[successor, column] - F[rows, column]
    cycles = _cycles(successor.tolist())
    cycle = max(cycles, key=lambda c: (Fraction(sum(step[c].tolist()), len(c)), -c[0]))
    for other in cycles:
        if other is not cycle:
            i = other[0]
            successor[i] = cycle[0]
            column[i] = (F[cycle[0]] - F[i]).argmax()
            step[i] = F[cycle[0], column[i]] - F[i, column[i]]
    total, length = sum(step[cycle].tolist()), len(cycle)
    potential = _potentials(successor.tolist(), cycle[0], (length * step - total).tolist())
    v = np.array(potential, dtype=F.dtype)
    return _Policy(successor, column, cycle, total, v)


def _cycles(successor: list[int]) -> list[list[int]]:
    """The cycles of a map, each from its smallest element on."""
    seen: dict[int, int] = {}
    cycles = []
    for start in range(len(successor)):
        path = []
        i = start
        while i not in seen:
            seen[i] = start
            path.append(i)
            i = successor[i]
        if seen[i] == start and i in path:
            found = path[path.index(i) :]
            least = found.index(min(found))
            cycles.append(found[least:] + found[:least])
    return cycles


def _potentials(successor: list[int], root: int, gain: list[int]) -> list[int]:
    """v with v_root = 0 and v_i = gain_i + v_successor(i) for all other i."""
    value = {root: 0}
    for start in range(len(successor)):
        path = []
        i = start
        while i not in value:
            path.append(i)
            i = successor[i]
        for k in reversed(path):
            value[k] = gain[k] + value[successor[k]]
    return [value[i] for i in range(len(successor))]


def _narrow(F: Integers) -> Integers:
    """F itself as int64 if the integers of ``_howard`` fit, else F shifted until they do."""
    bits = 58 - 2 * len(F).bit_length()
    excess = max(0, int(np.abs(F).max()).bit_length() - bits)
    return (F >> excess).astype(np.int64)


def _certificate(F: ExactMatrix, policy: _Policy) -> Residual:
    length = len(policy.cycle)
    lifted = length * F.numerators + policy.potential.astype(object)[:, None]
    den = 2 * length * F.den
    columns = lifted.max(axis=0) + lifted.min(axis=0)
    return Residual(
        Fraction(policy.total, length * F.den),
        ExactMatrix(-2 * policy.potential.astype(object)[:, None], den),
        ExactMatrix(columns[None, :], den),
        tuple((i, int(policy.column[i])) for i in policy.cycle),
    )


def _transposed(dual: Residual) -> Residual:
    """The certificate of F from that of its transpose: the cycle is walked backwards."""
    cycle = tuple((row, column) for column, row in reversed(dual.cycle))
    return Residual(dual.value, dual.column_terms.T, dual.row_terms.T, cycle)
