"""Working matrices and ledgers for many cells at once, in float64 with proven bounds (MATH 2).

What ``softrank_exact.Target`` does for one cell with ball arithmetic is done here for a batch with
the float64 softmax of ``softmax`` and its bound. The bound is of the order of 1e-14: it replaces
the enclosures wherever it suffices, and the ledger says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import torch

from softrank_exact.targets import Contribution

from .cells import Cells
from .classical import UNIT
from .softmax import softmax_with_bound

GRID = 1 << 80
MAX_BITS = 60
EXACT_STORAGE = "storage (entries taken exactly)"
_UP = 1.0 + 2.0**-36


@dataclass(frozen=True)
class BatchTargets:
    """N / 2^bits, N int64 [b, m, n], with a ledger per cell whose sum bounds ||A* - N/2^bits||."""

    N: torch.Tensor
    bits: int
    ledgers: tuple[tuple[Contribution, ...], ...]

    @property
    def den(self) -> int:
        return 1 << self.bits

    @property
    def float_exact(self) -> bool:
        """Whether float64 holds N / 2^bits exactly."""
        return bool((self.N.abs() <= 1 << 53).all())

    def alpha(self, cell: int) -> Fraction:
        """The sum of the cell's ledger, rounded up to a grid of 2^-80."""
        total = sum((line.bound for line in self.ledgers[cell]), Fraction(0))
        return Fraction(ceil(total * GRID), GRID)


def matrix_targets(attention: Cells, eps: Fraction, device: torch.device) -> BatchTargets | None:
    """Stored matrices; None if an entry needs more than 62 bits or is denormal."""
    values = attention.values.to(device)
    return _targets(values, eps, [(EXACT_STORAGE, values.new_zeros(len(values)))])


def softmax_targets(
    logits: torch.Tensor,
    product_error: torch.Tensor | None,
    attention: Cells | None,
    eps: Fraction,
    device: torch.device,
) -> BatchTargets | None:
    """Softmax of logits [b, m, n], known up to ``product_error`` [b, m] (MATH 2.5).

    None if they are not known to better than 1. With ``attention`` the working matrix is that of
    the stored weights, and their distance from the softmax is a line of the ledger.
    """
    if product_error is not None and not bool((product_error < 1).all()):
        return None
    p, bound = softmax_with_bound(logits.to(device))
    lines = []
    if product_error is not None:
        # ||softmax(h) - softmax(h')||_1 <= 2 tanh(eta/2) <= eta.
        lines.append(("logit products in float64, proven bound", product_error.amax(dim=-1)))
    lines.append(("softmax in float64, proven bound", bound.amax(dim=-1)))
    if attention is None:
        return _targets(p, eps, lines)
    values = attention.values.to(device)
    stored = (p - values).abs().sum(dim=-1).amax(dim=-1) * _UP
    lines.append((f"attention weights as stored in {attention.dtype}", stored))
    return _targets(values, eps, lines)


def float_logits(
    query: torch.Tensor, key: torch.Tensor, factor: float, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """factor Q K^T + bias in float64 [b, m, n], and a bound of every row's largest error [b, m].

    Q: [b, m, d], K: [b, n, d], ``factor`` within 4u of the declared one. Entry by entry
    |fl(Q K^T) - Q K^T| <= g_d |Q| |K|^T <= g_d ||q_i|| max_j ||k_j||, the factor and its product
    add 6u of the same, and the bias u of the sum. Where they overflow the bound is infinite.
    """
    products = factor * (query @ key.mT)
    norms = query.norm(dim=-1) * key.norm(dim=-1).amax(dim=-1, keepdim=True)
    size = abs(factor) * norms * _UP
    error = (query.shape[-1] + 8) * UNIT * size
    error = torch.where(torch.isfinite(products).all(dim=-1), error, torch.inf)
    if bias is None:
        return products, error * _UP + 2.0**-900
    largest = bias.masked_fill(bias == -torch.inf, 0.0).abs().amax(dim=-1)
    return products + bias, (error + 2 * UNIT * (size + largest)) * _UP + 2.0**-900


def _targets(
    values: torch.Tensor, eps: Fraction, lines: list[tuple[str, torch.Tensor]]
) -> BatchTargets | None:
    bits = _bits(values.shape[-1], eps)
    # Denormal entries, which a device may flush to zero, are left to the exact path.
    pattern = values.view(torch.int64) & ((1 << 63) - 1)
    if bool(((pattern > 0) & (pattern < 1 << 52)).any()):
        return None
    scaled = values * 2.0**bits
    if not bool((scaled.abs() <= 2.0**62).all()):
        return None
    # All of this is exact; the nearest integer is taken, halves upwards.
    floor = torch.floor(scaled)
    nearest = floor + (scaled - floor >= 0.5)
    rounding = (scaled - nearest).abs().sum(dim=-1).amax(dim=-1) * _UP * 2.0**-bits
    lines = [*lines, ("rounding to integers over den", rounding)]
    names, bounds = [name for name, _ in lines], [bound.tolist() for _, bound in lines]
    ledgers = tuple(
        tuple(Contribution(name, Fraction(b)) for name, b in zip(names, row, strict=True))
        for row in zip(*bounds, strict=True)
    )
    return BatchTargets(nearest.to(torch.int64), bits, ledgers)


def _bits(n: int, eps: Fraction) -> int:
    """The least s with n 2^-(s+1) <= min(1e-8, eps 2^-20), at most 60."""
    limit = min(Fraction(1, 10**8), eps / (1 << 20))
    if not limit:
        return MAX_BITS
    return min(MAX_BITS, (ceil(n / (2 * limit)) - 1).bit_length())
