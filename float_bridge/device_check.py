"""The kernel's inequalities for many cells at once, in exact integers on a torch device.

The same integers as ``softrank_exact.kernel.check`` computes for one cell (certificate format,
section 4), so the same fractions come out; tests hold both to it. ``multiply`` is the exact
product: ``DeviceLimbs.__matmul__`` or that of a ``Paranoia``.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import gcd, lcm
from typing import TypeAlias

import torch

from .products import DeviceLimbs

Multiply: TypeAlias = Callable[[DeviceLimbs, DeviceLimbs], DeviceLimbs]


def factor_found(
    multiply: Multiply, N: DeviceLimbs, den: int, X: DeviceLimbs, Y: DeviceLimbs, scale: list[int]
) -> list[Fraction]:
    """||N/den - X Y/scale|| for every cell (MATH 4.1).

    N: [b, m, n], X: [b, m, k], Y: [b, k, n], one scale per cell.
    """
    shared = [gcd(s, den) for s in scale]
    error = N.times([s // g for s, g in zip(scale, shared, strict=True)])
    error -= multiply(X, Y).times([den // g for g in shared])
    rows = zip(error.absolute().sums().tolist(), scale, shared, strict=True)
    return [Fraction(max(row), s // g * den) for row, s, g in rows]


def bernstein_found(
    multiply: Multiply,
    N: DeviceLimbs,
    den: int,
    hi: list[Fraction],
    G: DeviceLimbs,
    X: DeviceLimbs,
    Y: DeviceLimbs,
    g_scale: list[int],
    xy_scale: list[int],
) -> list[Fraction]:
    """max_j (hi ||G_j||/g_scale + ||(I - G N/(g_scale den) - X Y/xy_scale)_j||) (MATH 5.3).

    N: [b, m, c] the chosen columns, G: [b, c, m], X: [b, c, c - p], Y: [b, c - p, c].
    """
    b, _, c = N.shape
    unit = [lcm(g * den, s) for g, s in zip(g_scale, xy_scale, strict=True)]
    ones = torch.eye(c, dtype=torch.int64, device=N.digits[0].device).expand(b, c, c)
    residual = (
        DeviceLimbs.of(ones).times(unit)
        - multiply(G, N).times([u // (g * den) for u, g in zip(unit, g_scale, strict=True)])
        - multiply(X, Y).times([u // s for u, s in zip(unit, xy_scale, strict=True)])
    )
    rows = zip(G.absolute().sums().tolist(), residual.absolute().sums().tolist(), strict=True)
    return [
        max(
            hi[i] * Fraction(g, g_scale[i]) + Fraction(h, unit[i])
            for g, h in zip(*pair, strict=True)
        )
        for i, pair in enumerate(rows)
    ]


def tail_found(
    multiply: Multiply, M: DeviceLimbs, Q: DeviceLimbs, q_scale: int, k: list[int]
) -> list[Fraction | None]:
    """A lower bound of the squared singular values of M beyond the k largest, summed (MATH 5.6).

    M: [b, m, q] integers; Q: [b, q, q] near to q_scale times eigenvectors of M^T M. None where Q is
    too far from orthogonal.
    """
    b, _, q = M.shape
    square = q_scale**2
    ones = torch.eye(q, dtype=torch.int64, device=M.digits[0].device).expand(b, q, q)
    defects = (multiply(Q.T, Q) - DeviceLimbs.of(ones).times([square] * b)).absolute().sums()
    image = multiply(M, Q)
    gram = multiply(image.T, image)
    diagonals = gram.diagonal().integers()
    absolute = gram.absolute().sums()
    found: list[Fraction | None] = []
    for i in range(b):
        defect = max(defects[i].tolist())
        if not (defect < square):
            found.append(None)
            continue
        x = sorted(d + abs(d) - r for d, r in zip(diagonals[i], absolute[i], strict=True))
        bottom = x[: max(q - k[i], 0)]
        gained, lost = sum(e for e in bottom if e > 0), sum(e for e in bottom if e < 0)
        found.append(Fraction(gained, square + defect) + Fraction(lost, square - defect))
    return found
