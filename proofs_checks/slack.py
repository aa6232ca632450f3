"""MATH 2: what moving the matrix costs."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import floor, log2

import numpy as np
from hypothesis import strategies as st

from oracles.balls import ball, endpoints
from oracles.rational import Matrix, matrix, norm
from oracles.two_bit import channel
from softrank_exact import Target

from .clauses import at_most, equal, less, that
from .formulas import ball_norm, balls, entrywise, singular_distance, softmax, sup, two_tanh
from .lemma import lemma
from .strategies import (
    invertible_matrices,
    logit_pairs,
    matrices,
    proper_fractions,
    rationals,
    shapes,
    tolerances_near,
)


@st.composite
def _moved(draw):
    """A and A0 within alpha, by any change or by stretching, and a tolerance near d(A)."""
    A = draw(invertible_matrices())
    stretch = draw(st.sampled_from([None, Fraction(1, 4), Fraction(-1, 4), Fraction(1, 1 << 30)]))
    change = draw(matrices(A.shape, rationals(1))) if stretch is None else stretch * A
    return A, A + change, norm(change), draw(tolerances_near(singular_distance(A)))


@lemma(
    "2.1-shift",
    r"\lVert A - A_0\rVert \le \alpha \implies r_{\varepsilon+\alpha}(A_0) \le r_\varepsilon(A)"
    r" \le r_{\varepsilon-\alpha}(A_0)",
    assumes="A invertible; at rank n - 1, where the distance d is known (MATH 5.5)",
    given=_moved(),
    mutants={
        "a lower claim without the shift": {"lower": lambda e, alpha: e},
        "a lower claim shifted the wrong way": {"lower": lambda e, alpha: e - alpha},
        "half the shift": {"lower": lambda e, alpha: e + alpha / 2},
        "an upper claim without the shift": {"upper": lambda e, alpha: e},
        "an upper claim shifted the wrong way": {"upper": lambda e, alpha: e + alpha},
    },
)
def shift(
    A,
    A0,
    alpha,
    epsilon,
    *,
    lower=lambda e, alpha: e + alpha,
    upper=lambda e, alpha: e - alpha,
):
    """Lower claims carry over from A0 to A at eps + alpha, upper claims at eps - alpha."""
    d, d0 = singular_distance(A), singular_distance(A0)
    yield that("full rank of A0 carries over", not d0 > lower(epsilon, alpha) or d > epsilon)
    yield that("low rank of A0 carries over", not d0 <= upper(epsilon, alpha) or d <= epsilon)


def rounded(x: Fraction, bits: int) -> Fraction:
    """The float of this many significant bits nearest to x, of any exponent."""
    if x == 0:
        return x
    exponent = floor(log2(abs(x.numerator)) - log2(x.denominator)) - bits
    unit = Fraction(2) ** exponent
    return round(x / unit) * unit


@lemma(
    "2.2-stored-softmax",
    r"0 < \lVert A^* - \mathrm{fl}_p(A^*)\rVert \le 2^{-p}",
    assumes="rational logits, some row not constant; p significant bits, no underflow",
    given=st.tuples(
        matrices(shapes(3), rationals()).filter(lambda H: any(max(h) > min(h) for h in H)),
        st.sampled_from([24, 53]),
    ),
    mutants={
        "the stored matrix is the softmax": {"bound": lambda p: Fraction(0)},
        "float32 as good as float64": {"bound": lambda p: Fraction(1, 1 << 53)},
    },
)
def stored_softmax(H, bits, *, bound=lambda p: Fraction(1, 1 << p)):
    """A stored attention matrix is never the softmax of its logits, but within 2^-p of it."""
    A = softmax(H)
    stored = entrywise(lambda p: rounded(sum(endpoints(p), Fraction(0)) / 2, bits - 1), A)
    distance = ball_norm(A - balls(stored))
    yield less("it differs", 0, distance)
    yield at_most("by at most the bound", distance, bound(bits))


@lemma(
    "2.3-rounding",
    r"\lVert A - N/\mathrm{den}\rVert \le \frac{n}{2\,\mathrm{den}}",
    assumes="N is the matrix of integers nearest to den A",
    given=st.tuples(matrices(shapes(), rationals(1)), st.integers(1, 6)),
    mutants={
        "one entry instead of a row": {"columns": lambda n: 1},
        "a quarter for a half": {"columns": lambda n: Fraction(n, 2)},
    },
)
def rounding(A, den, *, columns=lambda n: n):
    """Rounding to integers over den moves a row by at most n halves of 1/den."""
    N = entrywise(round, A * den)
    bound = Fraction(columns(A.shape[1])) / (2 * den)
    yield at_most("the distance", norm(A - matrix(N) / den), bound)


def _floats(shape):
    entry = st.sampled_from([0.0, 1.0, 0.5, 1 / 3, 0.1, 1e-30, 2.0**-70, -(2.0**-80)])
    return st.lists(entry, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]).map(
        lambda values: np.array(values).reshape(shape)
    )


def _whole(target: Target) -> Fraction:
    return target.alpha


def _without_rounding(target: Target) -> Fraction:
    return target.alpha - max(line.bound for line in target.ledger)


DECLARED: dict[str, tuple[Callable[..., Target], Callable[..., Matrix]]] = {
    "matrix": (Target.matrix, lambda A: balls(matrix(A))),
    "logits": (Target.logits, lambda H: softmax(matrix(H))),
}


@lemma(
    "2.3-ledger",
    r"\lVert A^* - N/\mathrm{den}\rVert \le \alpha = \textstyle\sum_i \alpha_i",
    assumes="a target of stored floats, as a matrix or as logits",
    given=st.tuples(
        shapes(3).flatmap(_floats),
        st.sampled_from(sorted(DECLARED)),
        st.sampled_from([Fraction(1, 4), Fraction(1, 1000)]),
    ),
    mutants={"without the largest line of the ledger": {"slack": _without_rounding}},
)
def ledger(stored, object, epsilon, *, slack=_whole):
    """The working matrix is within alpha of the declared one, and alpha is the ledger's total."""
    make, exactly = DECLARED[object]
    target = make(stored, epsilon)
    working = balls(matrix(target.N) / target.den)
    yield at_most("the distance", ball_norm(exactly(stored) - working), slack(target))
    total = sum((line.bound for line in target.ledger), Fraction(0))
    yield equal("alpha is the total", target.alpha, total)


@lemma(
    "2.4-shift-needed",
    r"d_1(K_t) = t, \quad \lVert K_t - K_{t-\alpha}\rVert = \alpha",
    assumes="0 < alpha < t < 1, eps = t - alpha",
    given=st.tuples(proper_fractions(), proper_fractions()).map(lambda ts: (ts[0], ts[0] * ts[1])),
    mutants={
        "no shift": {"needed": lambda e, alpha: e},
        "a shift short by one part in a million": {
            "needed": lambda e, alpha: e + alpha * Fraction(999_999, 1_000_000)
        },
    },
)
def shift_is_needed(t, alpha, *, needed=lambda e, alpha: e + alpha):
    """Moving K_t by exactly alpha drops the rank at eps = t - alpha: no smaller shift is sound."""
    epsilon = t - alpha
    A0, A = channel(t), channel(epsilon)
    yield equal("the move is alpha", norm(A0 - A), alpha)
    yield equal("the distance to rank one is t", singular_distance(A0), t)
    claimed = singular_distance(A0) > needed(epsilon, alpha)
    yield that("a proven claim is true", not claimed or singular_distance(A) > epsilon)


@lemma(
    "2.5-softmax-enclosure",
    r"\lVert h - h'\rVert_\infty \le \eta \implies"
    r" \lVert\sigma(h) - \sigma(h')\rVert_1 \le 2\tanh(\eta/2)",
    assumes="finite logits",
    given=logit_pairs(),
    mutants={
        "the factor 2 is dropped": {"bound": lambda eta: ball(eta / 2).tanh()},
        "eta / 4 for eta / 2": {"bound": lambda eta: two_tanh(eta / 4)},
        "eta / 2 itself": {"bound": lambda eta: eta / 2},
    },
)
def softmax_enclosure(h, other, *, bound=lambda eta: two_tanh(eta / 2)):
    """Logits known to within eta give a softmax row known to within 2 tanh(eta/2)."""
    distance = ball_norm((softmax(h) - softmax(other))[None, :])
    yield at_most("the distance", distance, bound(sup(other - h)))
