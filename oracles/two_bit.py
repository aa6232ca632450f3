"""The two-bit oracle (MATH 9.1): a product of two binary channels, whose ranks are known exactly.

K_t = 1/2 [[1+t, 1-t], [1-t, 1+t]] and A = K_t (x) K_s, 0 < s <= t < 1. Rows and columns are
numbered by two bits, the first being that of t. The distances d_k to rank at most k are 1, t, s,
ts for k = 0..3: r_eps(A) <= k iff eps >= d_k. Cells sit exactly on thresholds, where no float
decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import reduce
from itertools import product

import numpy as np

from softrank_exact import Certificate, Target, certify
from softrank_exact.kernel.check import HilbertSchmidt

from .claims import Claim, Inputs, Step, arithmetic
from .exact_rank import corank_one
from .kernel_steps import (
    bernstein_witness,
    closed,
    factor_witness,
    rank_at_least,
    rank_at_most,
    refused,
)
from .rational import (
    Matrix,
    identity,
    inverse,
    matrix,
    norm,
    ones,
    rank,
    zeros,
)

HALF, QUARTER = Fraction(1, 2), Fraction(1, 4)
PUBLISHED_CELLS = [
    (Fraction(t), Fraction(s), Fraction(epsilon))
    for t, s, epsilon in [
        ("3/4", "1/2", "1/4"),
        ("3/4", "1/2", "3/8"),
        ("3/4", "1/2", "1/2"),
        ("3/4", "1/2", "3/4"),
        ("3/4", "3/4", "5/8"),
        ("3/4", "3/4", "3/4"),
    ]
]
SEVENTH_CELL = (Fraction(3, 4), Fraction(3, 4), Fraction(9, 16))
THEOREM_VALUES = sorted({Fraction(p, q) for q in range(2, 8) for p in range(1, q)})


def channel(t: Fraction) -> Matrix:
    """K_t, the binary symmetric channel of correlation t (2 x 2, rows sum to one)."""
    return matrix([[1 + t, 1 - t], [1 - t, 1 + t]]) / 2


def attention(*correlations: Fraction) -> Matrix:
    """K_{t_1} (x) ... (x) K_{t_b}, 2^b x 2^b, row-stochastic; the first factor is the first bit."""
    return reduce(np.kron, (channel(t) for t in correlations))


def character(bits: Sequence[int], size: int = 2) -> Matrix:
    """chi_S for S = ``bits``: (-1)^(sum of those bits) over all words of ``size`` bits."""
    words = product((0, 1), repeat=size)
    return matrix((-1) ** sum(word[b] for b in bits) for word in words)


def distances(t: Fraction, s: Fraction) -> list[Fraction]:
    """d_0, d_1, d_2, d_3 of A(t, s): the theorem."""
    return [Fraction(1), t, s, t * s]


def rank_of(t: Fraction, s: Fraction, epsilon: Fraction) -> int:
    """r_eps(A(t, s)) by the theorem."""
    return sum(distance > epsilon for distance in distances(t, s))


def approximant(t: Fraction, s: Fraction, k: int) -> tuple[Matrix, Matrix]:
    """X (4 x k), Y (k x 4) with ||A(t, s) - X Y|| = d_k, k = 0..3, and A itself for k = 4."""
    if k == 0:
        return zeros(4, 0), zeros(0, 4)
    if k == 1:
        return ones(4, 1), ones(1, 4) * (1 - t) * (1 + s) / 4
    if k == 2:
        return np.kron(channel(t), ones(2, 1)), np.kron(identity(2), ones(1, 2) / 2)
    if k == 3:
        chi = np.stack([character(()), character((0,)), character((1,))])
        return chi.T, chi * matrix([[1], [t], [s]]) / 4
    return attention(t, s), identity(4)


def reconstruction(t: Fraction, s: Fraction, p: int) -> Matrix:
    """G (4 x 4) with ||G|| = 1/d_{p-1} and rank(I - G A(t, s)) = 4 - p, p = 1..4 (MATH 5.3)."""
    if p == 1:
        return ones(4, 4) / 4
    if p == 2:
        return _convolution([(1 + 1 / t) / 4, (1 + 1 / t) / 4, (1 - 1 / t) / 4, (1 - 1 / t) / 4])
    if p == 3:
        return _convolution([(1 + 1 / t) / 2, Fraction(0), (1 / s - 1 / t) / 2, (1 - 1 / s) / 2])
    return inverse(attention(t, s))


def _convolution(weights: Sequence[Fraction]) -> Matrix:
    """The matrix with entries weights[x xor y]."""
    size = len(weights)
    return matrix([[weights[x ^ y] for y in range(size)] for x in range(size)])


def cell(id: str, t: Fraction, s: Fraction, epsilon: Fraction) -> Claim:
    """One cell, closed by a kernel certificate on each side."""
    A, r = attention(t, s), rank_of(t, s, epsilon)
    return closed(
        id,
        "MATH 9.1",
        "approximation rank of A(t, s) at epsilon",
        {"t": t, "s": s, "epsilon": epsilon, "matrix": A},
        rank_at_least(A, epsilon, reconstruction(t, s, r)),
        rank_at_most(A, epsilon, *approximant(t, s, r)),
    )


def certificate(t: Fraction, s: Fraction, epsilon: Fraction) -> Certificate:
    """The cell as a certificate file's content: both sides closed, for either checker to read.

    Raises ``UserError`` for t, s whose entries do not fit the format's integers.
    """
    A, r = attention(t, s), rank_of(t, s, epsilon)
    lower = bernstein_witness(A, range(4), reconstruction(t, s, r))
    upper = factor_witness(*approximant(t, s, r))
    return certify(Target.fractions(A.tolist()), epsilon, [(r, lower), (r, upper)])


def theorem_steps(t: Fraction, s: Fraction) -> list[bool]:
    """For k = 0..3: d_k <= its value by the kernel at eps = value, d_k >= it by an exact G."""
    A = attention(t, s)
    held = []
    for k, distance in enumerate(distances(t, s)):
        G = reconstruction(t, s, k + 1)
        held.append(rank_at_most(A, distance, *approximant(t, s, k)).holds)
        held.append(norm(G) == 1 / distance and rank(identity(4) - G @ A) == 4 - (k + 1))
    return held


def theorem() -> Claim:
    """d = (1, t, s, ts) over all pairs of THEOREM_VALUES."""
    pairs = [(t, s) for t in THEOREM_VALUES for s in THEOREM_VALUES if s <= t]
    held = [all(theorem_steps(t, s)) for t, s in pairs]
    return Claim(
        "two-bit/theorem",
        "MATH 9.1",
        "d_0, d_1, d_2, d_3 of A(t, s): distance to rank at most k",
        {"pairs": pairs},
        [distances(t, s) for t, s in pairs],
        (
            arithmetic(
                f"for {len(pairs)} pairs: kernel factor of error d_k; ||G|| = 1/d_k, "
                "rank(I - G A) = 3 - k",
                all(held),
            ),
        ),
    )


def published_sequence(cells: Sequence[Claim]) -> Claim:
    """The ranks of the six published cells, read off their certificates."""
    return Claim(
        "two-bit/published-sequence",
        "MATH 9.1",
        "ranks of the six published cells, in order",
        {"cells": [list(cell) for cell in PUBLISHED_CELLS]},
        [claim.value for claim in cells],
        (
            arithmetic("every cell is closed by its certificates", all(c.proven for c in cells)),
            arithmetic(
                "they agree with counting the distances above epsilon",
                [claim.value for claim in cells] == [rank_of(*cell) for cell in PUBLISHED_CELLS],
            ),
        ),
    )


def failures() -> Iterator[Claim]:
    """At t = s = 3/4, eps = 5/8 no classical witness reaches rank 3; the explicit one does."""
    t = s = Fraction(3, 4)
    epsilon = Fraction(5, 8)
    A = attention(t, s)
    inputs = {"t": t, "s": s, "epsilon": epsilon, "matrix": A, "rank": 3}
    yield _frobenius_tail(A, epsilon, inputs)
    yield _truncated_pseudoinverse(A, epsilon, inputs)
    yield _row_selected_inverse(A, epsilon, inputs)
    G = reconstruction(t, s, 3)
    step = rank_at_least(A, epsilon, G)
    yield Claim(
        "two-bit/explicit-reconstruction",
        "MATH 9.1",
        "norm of the explicit rank-three reconstruction, and its margin 1 - epsilon norm",
        inputs,
        {"norm": norm(G), "margin": step.witness["margin"]},
        (
            step,
            arithmetic(
                "margin = 1 - epsilon ||G||", step.witness["margin"] == 1 - epsilon * norm(G)
            ),
        ),
    )
    X, Y = approximant(t, s, 3)
    error = norm(A - X @ Y)
    yield Claim(
        "two-bit/rank-three-upper",
        "MATH 9.1",
        "error of the explicit rank-three approximant",
        inputs,
        error,
        (rank_at_most(A, epsilon, X, Y), arithmetic("its error is ts", error == t * s)),
    )


def _frobenius_tail(A: Matrix, epsilon: Fraction, inputs: Inputs) -> Claim:
    characters = np.stack([character(bits) for bits in [(), (0,), (1,), (0, 1)]])
    values = [Fraction(row @ A @ row) / 4 for row in characters]
    tail = sum(value**2 for value in sorted(values, reverse=True)[2:])
    witness = HilbertSchmidt(
        d=np.ones(4, dtype=np.int64),
        T=np.eye(4, dtype=np.int64),
        Q=characters.T.astype(np.int64),
        q_scale=2,
    )
    return Claim(
        "two-bit/frobenius-tail-fails",
        "MATH 9.1, 5.2",
        "squares of the Frobenius tail F_2 and of sqrt(m) epsilon, which it would have to exceed",
        inputs,
        {"tail_squared": tail, "threshold_squared": 4 * epsilon**2},
        (
            arithmetic(
                "the characters are orthogonal eigenvectors of A",
                all(
                    np.array_equal(A @ row, value * row)
                    for row, value in zip(characters, values, strict=True)
                )
                and np.array_equal(characters @ characters.T, 4 * identity(4)),
                eigenvalues=values,
            ),
            refused("tail^2 / m is below epsilon^2", A, epsilon, 3, witness),
            arithmetic("tail <= threshold", tail <= 4 * epsilon**2),
        ),
    )


def _truncated_pseudoinverse(A: Matrix, epsilon: Fraction, inputs: Inputs) -> Claim:
    t, s = inputs["t"], inputs["s"]
    terms = [((), Fraction(1)), ((0,), 1 / t), ((1,), 1 / s)]
    G = sum(np.outer(character(bits), character(bits)) * weight for bits, weight in terms) / 4
    projector = sum(np.outer(character(bits), character(bits)) for bits, _ in terms) / 4
    return Claim(
        "two-bit/truncated-pseudoinverse-fails",
        "MATH 9.1, 5.3",
        "norm of the pseudoinverse of the top rank-three part; times epsilon it must be < 1",
        inputs,
        {"norm": norm(G), "product": norm(G) * epsilon},
        (
            arithmetic(
                "G A is the projector on the three top singular vectors",
                np.array_equal(G @ A, projector),
            ),
            refused("epsilon ||G|| >= 1", A, epsilon, 3, bernstein_witness(A, range(4), G)),
        ),
    )


# A right inverse of rows 1, 2, 3 of A(3/4, 3/4); the other selections are its translates.
RIGHT_INVERSE = matrix(
    [
        ["0", "28/75", "-4/3"],
        ["4/3", "-4/75", "0"],
        ["0", "32/25", "0"],
        ["-4/21", "-32/175", "4/3"],
    ]
)


def _row_selected_inverse(A: Matrix, epsilon: Fraction, inputs: Inputs) -> Claim:
    steps: list[Step] = []
    best = set()
    for dropped in range(4):
        rows = [i for i in range(4) if i != dropped]
        F = zeros(4, 3)
        for l, i in np.ndindex(4, 3):
            F[l, i] = RIGHT_INVERSE[l ^ dropped, (rows[i] ^ dropped) - 1]
        nearest = corank_one(A[rows])
        best.add(nearest.distance)
        steps.append(
            arithmetic(
                f"rows {rows}: F is a right inverse and rank two is 1/||F|| away, so no right "
                "inverse has smaller norm",
                np.array_equal(A[rows] @ F, identity(3))
                and norm(F) == 1 / nearest.distance
                and norm(nearest.change) == nearest.distance
                and rank(A[rows] - nearest.change) == 2,
                right_inverse=F,
                change=nearest.change,
            )
        )
    (distance,) = best
    steps.append(arithmetic("it is below epsilon", distance < epsilon))
    return Claim(
        "two-bit/row-selected-inverse-fails",
        "MATH 9.1, 5.3",
        "largest tolerance that any right inverse of any three rows certifies",
        inputs,
        distance,
        tuple(steps),
    )


def many_bits(correlations: Sequence[Fraction]) -> Claim:
    """d_k >= t_k for k = 1..b on b bits with t_1 >= ... >= t_b."""
    A = attention(*correlations)
    steps = []
    for k, t in enumerate(correlations, start=1):
        G = many_bit_reconstruction(correlations, k)
        steps.append(
            arithmetic(
                f"k = {k}: ||G|| = 1/{t} and rank(I - G A) <= {len(A) - k - 1}",
                norm(G) == 1 / t and rank(identity(len(A)) - G @ A) <= len(A) - k - 1,
                weights=G[0],
            )
        )
        steps.append(rank_at_least(A, t * Fraction(999, 1000), G))
    return Claim(
        f"two-bit/many-bits-{len(correlations)}",
        "MATH 9.1",
        "lower bounds on d_1, ..., d_b of the product of b channels",
        {"correlations": list(correlations)},
        list(correlations),
        tuple(steps),
    )


def many_bit_reconstruction(correlations: Sequence[Fraction], k: int) -> Matrix:
    """G with ||G|| = 1/t_k that inverts A on the span of 1, chi_1, ..., chi_k (t_1 >= t_2 >= ...).

    G[x, y] = lam(x xor y), where lam has total mass 1 and sum_y lam(y) chi_i(y) = u_i := 1/t_i.
    With u_0 := 1 <= u_1 <= ... <= u_k, lam puts (u_k + 1)/2 at 0 and -(u_j - u_{j-1})/2 at the
    word whose bits j..k are set: a telescoping sum of vertices of the cube.
    """
    bits = len(correlations)
    u = [Fraction(1), *(1 / t for t in correlations[:k])]
    weights = [Fraction(0)] * 2**bits
    weights[0] = (u[k] + 1) / 2
    for j in range(1, k + 1):
        word = sum(1 << (bits - i) for i in range(j, k + 1))
        weights[word] = -(u[j] - u[j - 1]) / 2
    return _convolution(weights)


def claims() -> Iterator[Claim]:
    """All claims of MATH 9.1."""
    published = [cell(f"two-bit/cell-{i}", *c) for i, c in enumerate(PUBLISHED_CELLS, start=1)]
    yield from published
    yield cell("two-bit/cell-7", *SEVENTH_CELL)
    yield published_sequence(published)
    yield theorem()
    yield from failures()
    yield many_bits([Fraction(3, 4), Fraction(1, 2), Fraction(1, 3)])
    yield many_bits([Fraction(4, 5), Fraction(3, 4), Fraction(3, 4), Fraction(1, 5)])
