"""Steps that the kernel checks: rational witnesses become integers over common denominators.

Nothing is rounded on the way, so a cell that sits exactly on its threshold is decided exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from softrank_exact import Target, certify
from softrank_exact.kernel.check import (
    Bernstein,
    Factor,
    Finding,
    HilbertSchmidt,
    Question,
    Witness,
    check,
)
from softrank_exact.kernel.limbs import Limbs

from .claims import RANK, Claim, Exact, Inputs, Step
from .rational import Matrix, full_rank_factors, identity, over_common_denominator, zeros


def question(A: Matrix, epsilon: Fraction, alpha: Fraction = Fraction(0)) -> Question:
    """The kernel's question about the rational matrix A (m x n), known up to ``alpha``."""
    N, den = over_common_denominator(A)
    return Question(Limbs.of(N), den, Fraction(epsilon), Fraction(alpha))


def factor_witness(X: Matrix, Y: Matrix) -> Factor:
    """B = X Y for X m x k, Y k x n (MATH 4.1)."""
    (X_, x), (Y_, y) = over_common_denominator(X), over_common_denominator(Y)
    return Factor(X_, Y_, x * y)


def bernstein_witness(A: Matrix, columns: Sequence[int], G: Matrix) -> Bernstein:
    """G (c x m) with X Y := I - G A_C, factored exactly, so that H = 0 (MATH 5.3)."""
    rest = identity(len(columns)) - G @ A[:, columns]
    X, Y = full_rank_factors(rest) if rest.any() else (zeros(len(G), 0), zeros(0, len(G)))
    return near_identity_witness(columns, G, X, Y)


def near_identity_witness(columns: Sequence[int], G: Matrix, X: Matrix, Y: Matrix) -> Bernstein:
    """Any G (c x m), X (c x k), Y (k x c); the kernel computes the residual H (MATH 5.3)."""
    G_, g = over_common_denominator(G)
    (X_, x), (Y_, y) = over_common_denominator(X), over_common_denominator(Y)
    return Bernstein(np.array(columns, dtype=np.int64), G_, X_, Y_, g, x * y)


def row_witness(row: Matrix, index: int, m: int) -> HilbertSchmidt:
    """Rank at least 1 from one row: w = e_i, T its signs; the tail is ||A_i||_1^2 (MATH 5.2)."""
    d = np.zeros(m, dtype=np.int64)
    d[index] = 1
    T = np.array([[1 if entry >= 0 else -1] for entry in row], dtype=np.int64)
    return HilbertSchmidt(d, T, np.ones((1, 1), dtype=np.int64), 1)


def rank_at_most(
    A: Matrix, epsilon: Fraction, X: Matrix, Y: Matrix, alpha: Fraction = Fraction(0)
) -> Step:
    """r_eps(A) <= k by the explicit B = X Y (X: m x k, Y: k x n), checked by the kernel."""
    k = X.shape[1]
    finding = check(question(A, epsilon, alpha), k, factor_witness(X, Y))
    return _step("factor", f"r <= {k} at {epsilon}", finding, {"rank": k, "X": X, "Y": Y})


def rank_at_most_full(A: Matrix, epsilon: Fraction) -> Step:
    """r_eps(A) <= n for a square A (n x n), by A = A I."""
    n = len(A)
    finding = check(question(A, epsilon), n, factor_witness(A, identity(n)))
    return _step(
        "factor", f"r <= {n} at {epsilon}", finding, {"rank": n, "X": "matrix", "Y": "identity"}
    )


def rank_at_least(
    A: Matrix,
    epsilon: Fraction,
    G: Matrix,
    columns: Sequence[int] | None = None,
    alpha: Fraction = Fraction(0),
) -> Step:
    """r_eps(A) >= c - rank(I - G A_C) by the reconstruction G (c x m), checked by the kernel.

    All columns by default.
    """
    columns = range(A.shape[1]) if columns is None else columns
    witness = bernstein_witness(A, columns, G)
    p = len(columns) - witness.X.shape[1]
    finding = check(question(A, epsilon, alpha), p, witness)
    shown = {"rank": p, "columns": list(columns), "G": G}
    return _step("bernstein", f"r >= {p} at {epsilon}", finding, shown)


def full_rank_by_near_identity(A: Matrix, epsilon: Fraction, alpha: Fraction = Fraction(0)) -> Step:
    """r_eps(A) = n for a square A close to the identity: G = I and empty X, Y (MATH 5.3)."""
    n = len(A)
    witness = near_identity_witness(range(n), identity(n), zeros(n, 0), zeros(0, n))
    finding = check(question(A, epsilon, alpha), n, witness)
    shown = {"rank": n, "columns": list(range(n)), "G": "identity"}
    return _step("bernstein", f"r >= {n} at {epsilon}", finding, shown)


def full_rank_of_target(target: Target, epsilon: Fraction) -> tuple[Step, Step]:
    """r_eps = n, both sides, for a declared softmax (n x n) near the identity, alpha charged.

    alpha and the margin depend on the float softmax that the target was rounded from, so the
    steps do not show them.
    """
    n = target.shape[0]
    witness = near_identity_witness(range(n), identity(n), zeros(n, 0), zeros(0, n))
    certificate = certify(target, epsilon, [(n, witness)])
    shown = {"rank": n, "columns": list(range(n)), "G": "identity"}
    return (
        Step("bernstein", f"r >= {n} at {epsilon}", certificate.lower == n, shown),
        Step("trivial", f"r <= {n}: the size of the matrix", certificate.upper == n, {"rank": n}),
    )


def nonzero_rank(A: Matrix, epsilon: Fraction) -> Step:
    """r_eps(A) >= 1 by the row of largest l1 norm, checked by the kernel."""
    sums = [sum(abs(a) for a in row) for row in A]
    i = sums.index(max(sums))
    finding = check(question(A, epsilon), 1, row_witness(A[i], i, len(A)))
    return _step("hilbert-schmidt", f"r >= 1 at {epsilon}", finding, {"rank": 1, "row": i})


def refused(says: str, A: Matrix, epsilon: Fraction, rank: int, witness: Witness) -> Step:
    """The kernel finds the witness sound but too weak for r_eps(A) >= rank: code "margin"."""
    finding = check(question(A, epsilon), rank, witness)
    shown = {"needed": finding.needed, "found": finding.found}
    return Step(witness.kind, says, finding.code == "margin", shown)


def closed(
    id: str,
    source: str,
    says: str,
    inputs: Inputs,
    lower: Step,
    upper: Step,
    *more: Step,
) -> Claim:
    """The rank that a lower and an upper step prove when they meet.

    Raises ``ValueError`` if they do not meet: then there is no answer to claim.
    """
    if lower.witness["rank"] != upper.witness["rank"]:
        raise ValueError(f"{id}: the steps prove {lower.says} and {upper.says}")
    steps = (lower, upper, *more)
    return Claim(id, source, says, inputs, lower.witness["rank"], steps, RANK)


def _step(kind: str, says: str, finding: Finding, witness: dict[str, Exact]) -> Step:
    return Step(kind, says, finding.code == "ok", {**witness, "margin": finding.margin})
