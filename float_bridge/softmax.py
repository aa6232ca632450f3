"""Softmax in float64 with a proven error bound, from IEEE +, -, x, / and integer shifts alone.

The library exponential of a CPU or GPU comes without a proof, so this module has its own. It runs
batched on any torch device whose float64 +, -, x, / round to nearest (results below 2^-1022 may be
flushed to zero), and never calls exp. u = 2^-53 throughout; h is a row of finite or minus-infinite
logits, t its maximum (a comparison, hence exact), W_j = exp(h_j - t) and P = W / sum(W) the truth.

1. **Shift.** x_j = fl(h_j - t) = (h_j - t)(1 + e), |e| <= u, up to 2^-1020 where flushed. Entries
   with x_j < -708 get the weight 0 (minus infinity: exactly); their W_j is below 2^-1020.
2. **Reduction.** k = the integer nearest to x / log 2 as computed, by adding and subtracting
   1.5 2^52: |k| <= 1022 and |x - k log 2| <= 0.3466. log 2 = C1 + C2 + c, where C1 is a multiple of
   2^-42 with 42 bits and |c| < 2^-97. k C1 is exact (42 + 10 bits). x - k C1 is exact: for k != 0,
   |x| > 0.34 is a multiple of 2^-54, and so is the difference, itself below 2^-1. k C2 has an
   error below 2^-86, the last subtraction one below 0.3466 u. So r = x - k log 2 + d with
   |d| <= 0.3466 u + 2^-84, and |r| <= R = 0.3467.
3. **Polynomial.** Taylor to degree 14 by Horner's rule, coefficients rounded to nearest. With p_i
   the partial sums, p_i = c_i + r p_{i+1}, b_i a bound of |p_i| (for r >= 0 its value at R, for
   r < 0 the first term c_i, as the terms alternate and decrease) and e_i a bound of the error, the
   product has the error q = R (e_{i+1} + u (b_{i+1} + e_{i+1})) and e_i = s + q + u (b_i + s + q),
   s the rounding of c_i. The last addition is accounted relative to its result. The truncated terms
   add at most e^R R^15 / 15!. Relative to exp(r), >= 1 or >= exp(-R), and with the error of r, the
   value v satisfies |v / exp(x) - 1| <= 3u: ``exp_error`` evaluates all this exactly.
4. **Scaling** by 2^k is exact: x >= -708 gives k >= -1021 and v 2^k > 2^-1022. The factor 2^k is
   made by shifting k + 1023 into the exponent. An entry equal to the maximum has the weight 1.
5. **Together**, relative to W_j, the shift adds exp(u |h_j - t| + 2^-1020) - 1: for kept entries
   w_j = W_j (1 + e_j) with |e_j| <= 4u + 1.001 u |h_j - t| < 2^-43.
6. **Sum.** Added pairwise, every w_j passes ceil(log2 n) additions: S = (1 + g) sum(w) >= 1,
   |g| <= 1.001 ceil(log2 n) u. Division: p_j = (1 + f_j) w_j / S, |f_j| <= u, up to 2^-1022.
7. **Row error.** With e = sum P_j |e_j| over the kept entries, p_j = P_j (1 + e_j) (1 + f_j) /
   ((1 + e') (1 + g)), |e'| <= e, so sum |p_j - P_j| <= 1.001 (2 e + (ceil(log2 n) + 1) u) +
   n 2^-1000, the last term for the entries dropped or flushed. e <= 4u + 1.001 u sum P_j |h_j - t|,
   where p and x stand for P and h - t: a relative change below 2^-40, which the final factor
   1 + 2^-8 covers with the factors 1.001 and the roundings of evaluating the bound itself.
   Since sum P_j |h_j - t| <= log n, the bound is about (2 log n + log2 n + 9) u at most: 3e-15 for
   n = 256.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, factorial, log2

import torch

from softrank_exact.errors import UserError

UNIT = 2.0**-53
_U = Fraction(1, 2**53)
EXP_ERROR = 4  # in units of u, step 5
LOWEST = -708.0
REDUCED = Fraction(3467, 10000)

_DEGREE = 14
_COEFFICIENTS = [float(Fraction(1, factorial(i))) for i in range(_DEGREE + 1)]
_PER_LOG2 = float.fromhex("0x1.71547652b82fep+0")
_LOG2_HIGH = float.fromhex("0x1.62e42fefa38p-1")
_LOG2_LOW = float.fromhex("0x1.ef35793c7673p-45")
_TO_INTEGER = 1.5 * 2.0**52
_SLACK = 1.0 + 2.0**-8


def softmax_with_bound(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax over the last axis, and a bound of every row's l1 error.

    ``logits``: float64 [..., m, n] on any device, minus infinity where masked. Returns p
    [..., m, n] and bound [..., m], float64 on the same device, with
    ``sum_j |p_j - softmax(logits)_j| <= bound`` for every row, proven in the module's docstring.
    Raises ``UserError`` for another dtype, NaN, plus infinity or a fully masked row.
    """
    _require(logits)
    n = logits.shape[-1]
    shifted = logits - logits.amax(dim=-1, keepdim=True)
    kept = shifted >= LOWEST
    x = torch.where(kept, shifted, 0.0)
    weights = torch.where(kept, _exp(x), 0.0)
    p = weights / _pairwise_sum(weights)[..., None]
    spread = _pairwise_sum(p * -x)
    depth = ceil(log2(n)) if n > 1 else 0
    units = 2 * (EXP_ERROR + spread) + (depth + 1)
    return p, _SLACK * UNIT * units + n * 2.0**-1000


def _require(logits: torch.Tensor) -> None:
    if logits.dtype != torch.float64:
        raise UserError(f"logits have dtype {logits.dtype}; accepted: torch.float64")
    if bool(torch.isnan(logits).any()) or bool((logits == torch.inf).any()):
        raise UserError("logits have NaN or plus infinity; accepted: finite, or -inf for a mask")
    if not bool(torch.isfinite(logits).any(dim=-1).all()):
        raise UserError("logits have a fully masked row; accepted: rows with a finite entry")


def _exp(x: torch.Tensor) -> torch.Tensor:
    """exp(x) for -708 <= x <= 0, with a relative error of at most 3u (steps 2 to 4)."""
    k = (x * _PER_LOG2 + _TO_INTEGER) - _TO_INTEGER
    r = (x - k * _LOG2_HIGH) - k * _LOG2_LOW
    value = torch.full_like(r, _COEFFICIENTS[_DEGREE])
    for coefficient in reversed(_COEFFICIENTS[:_DEGREE]):
        value = coefficient + r * value
    power = ((k.to(torch.int64) + 1023) << 52).view(torch.float64)
    return value * power


def _pairwise_sum(values: torch.Tensor) -> torch.Tensor:
    """The sum over the last axis in a fixed tree of ceil(log2 n) levels: the same everywhere."""
    while values.shape[-1] > 1:
        if values.shape[-1] % 2:
            values = torch.nn.functional.pad(values, (0, 1))
        values = values[..., ::2] + values[..., 1::2]
    return values[..., 0]


def exp_error() -> Fraction:
    """Step 3's bound of |v / exp(x) - 1|, evaluated exactly."""
    # exp(-R) > 1 - R + R^2/2 - R^3/6, and exp(R) < 2.
    smallest = 1 - REDUCED + REDUCED**2 / 2 - REDUCED**3 / 6
    rounding = max(_horner_error(1), _horner_error(-1) / smallest)
    truncated = 2 * REDUCED ** (_DEGREE + 1) / factorial(_DEGREE + 1) / smallest
    argument = (REDUCED * _U + Fraction(1, 2**84)) * Fraction(1001, 1000)
    return (1 + _U) * (1 + argument) * (1 + truncated) * (1 + rounding) - 1


def _horner_error(sign: int) -> Fraction:
    """The error of 1 + r p_1 before its last rounding, for all r of this sign, |r| <= R."""
    bound = Fraction(1, factorial(_DEGREE))
    error = _U * bound
    for i in reversed(range(1, _DEGREE)):
        term = Fraction(1, factorial(i))
        product = REDUCED * (error + _U * (bound + error))
        bound = term + REDUCED * bound if sign > 0 else term
        stored = abs(term - Fraction(_COEFFICIENTS[i]))
        error = stored + product + _U * (bound + stored + product)
    return REDUCED * (error + _U * (bound + error))
