"""The geometry of the support (MATH 9.4): sphere and full ball, by finite certificates.

N messages are points y of a grid, each held by many equal tokens (keys and queries alike).
Decoding by representatives (one query a message, the keys of a message summed) is contractive
(MATH 5.1), so an off-diagonal mass mu < (1 - eps)/2 of the decoded channel proves r_eps >= N. The
bounds need only the spacing of the grid: tokens are never made.

* Sphere, S^{d-1}: the stereographic image of a grid of ``side`` points a dimension on [-1/2,
  1/2]^{d-1} (rational points of the sphere), n tokens shared as evenly as n allows. With rho = 1
  + (d-1)/4, |x - y| >= 2 |u - v| / rho and beta x.y = beta - beta |x - y|^2 / 2.
* Full ball, radius 1/2: a grid of ``side`` points a dimension on [-a, a]^d, d a^2 <= 1/4.
  Multiplicity ceil(K exp(beta (1/4 - |y|^2)/2)) turns exp(beta x.y) into a Gaussian in x - y, up
  to 1 + 1/K.

In both, mass(y) / mass(x) <= slack exp(-c |u - v|^2), u, v in multiples of the grid's spacing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial

from flint import arb

from .balls import at_precision, ball, enclosure
from .claims import Claim, arithmetic
from .claims import ball as ball_step
from .kernel_steps import closed, nonzero_rank, rank_at_most
from .rational import ones

TERMS = 8
EPSILON = Fraction(1, 4)
DIMENSIONS = range(2, 6)
BETAS = [4**j for j in range(8, 21, 2)]
RADII = {2: Fraction(7, 20), 3: Fraction(2, 7), 4: Fraction(1, 4), 5: Fraction(2, 9)}
MULTIPLICITY = 256


@dataclass(frozen=True)
class Channel:
    """A grid of messages: ``side`` points in each of ``axes`` dimensions.

    exponent: c, the decay over one step of the grid; slack: the ratio of multiplicities allowed
    for.
    """

    side: int
    axes: int
    exponent: Fraction
    slack: Fraction

    @property
    def messages(self) -> int:
        """N."""
        return self.side**self.axes

    @cached_property
    def off_mass(self) -> arb:
        """An upper bound (a ball) on the off-diagonal mass of every decoded row."""
        others = (1 + 2 * _gauss_sum(self.exponent)) ** self.axes - 1
        ratio = ball(self.slack) * others
        return ratio / (1 + ratio)

    def certifies(self, epsilon: Fraction) -> bool:
        """Whether 2 mu + epsilon < 1, which proves r_eps >= N (MATH 5.1, 5.3 near identity)."""
        return bool(2 * self.off_mass + ball(epsilon) < 1)


def _gauss_sum(c: Fraction) -> arb:
    """An upper bound on sum_{k >= 1} exp(-c k^2): TERMS terms and a geometric series."""
    terms = [(-ball(c * k * k)).exp() for k in range(1, TERMS + 2)]
    rest = terms[-1] / (1 - (-ball(c * (2 * TERMS + 3))).exp())
    return sum(terms[:-1], arb(0)) + rest


def sphere(d: int, beta: Fraction, side: int, copies: int) -> Channel:
    """N messages on S^{d-1}, each held by ``copies`` or ``copies + 1`` tokens."""
    spacing, rho = Fraction(1, side - 1), 1 + Fraction(d - 1, 4)
    exponent = 2 * beta * spacing**2 / rho**2
    return Channel(side, d - 1, exponent, Fraction(copies + 1, copies))


def full_ball(d: int, beta: Fraction, side: int) -> Channel:
    """N messages in the ball of radius 1/2 of R^d, K = MULTIPLICITY."""
    spacing = 2 * RADII[d] / (side - 1)
    return Channel(side, d, beta * spacing**2 / 2, 1 + Fraction(1, MULTIPLICITY))


def log10_tokens(d: int, beta: Fraction, side: int) -> arb:
    """log10 of the number of tokens of ``full_ball``: sum over the grid of ceil(K exp(...)).

    The sum before rounding up is K exp(beta/8) g^d, g = sum_u exp(-beta u^2/2) over one axis;
    rounding up adds at most N.
    """
    spacing = 2 * RADII[d] / (side - 1)
    offsets = [spacing * k - RADII[d] for k in range(side)]
    g = sum(((-ball(beta * u * u / 2)).exp() for u in offsets), arb(0))
    before = ball(MULTIPLICITY) * ball(Fraction(beta) / 8).exp() * g**d
    at_least = before.log()
    at_most = (before + side**d).log()
    return at_least.union(at_most) / arb(10).log()


def largest_side(family: Callable[[int], Channel]) -> int:
    """The largest side whose channel certifies EPSILON; the off mass grows with the side."""
    low, high = 2, 4
    while family(high).certifies(EPSILON):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if family(middle).certifies(EPSILON) else (low, middle)
    return low


@dataclass(frozen=True)
class Growth:
    """The messages certified at each of BETAS for one support, and the slope that theory gives."""

    name: str
    dimension: int
    theory: Fraction
    family: Callable[[int, int], Channel]

    @cached_property
    def sides(self) -> list[int]:
        """The largest certified side at each beta."""
        return [largest_side(partial(self.family, beta)) for beta in BETAS]

    @cached_property
    def messages(self) -> list[int]:
        """N at each beta."""
        pairs = zip(BETAS, self.sides, strict=True)
        return [self.family(beta, side).messages for beta, side in pairs]

    def slope(self) -> arb:
        """The least-squares slope of log N against log beta."""
        x = [ball(beta).log() for beta in BETAS]
        y = [ball(n).log() for n in self.messages]
        mean = sum(x, arb(0)) / len(x)
        covariance = sum(((a - mean) * b for a, b in zip(x, y, strict=True)), arb(0))
        return covariance / sum(((a - mean) ** 2 for a in x), arb(0))


def growths() -> list[Growth]:
    """Sphere and full ball for d = 2..5."""
    spheres = [
        Growth("sphere", d, Fraction(d - 1, 2), partial(sphere, d, copies=3)) for d in DIMENSIONS
    ]
    balls = [Growth("ball", d, Fraction(d, 2), partial(full_ball, d)) for d in DIMENSIONS]
    return spheres + balls


@at_precision
def growth(law: Growth) -> Claim:
    """The slope of a support's law, fitted to certified messages."""
    slope = law.slope()
    at = f"every side certifies epsilon = {EPSILON}, the next one does not"
    edges = [
        law.family(beta, side).certifies(EPSILON)
        and not law.family(beta, side + 1).certifies(EPSILON)
        for beta, side in zip(BETAS, law.sides, strict=True)
    ]
    return Claim(
        f"support/slope/{law.name}-{law.dimension}",
        "MATH 9.4",
        "slope of log N against log beta, N messages certified (r >= N)",
        {"d": law.dimension, "epsilon": EPSILON, "beta": BETAS, "theory": law.theory},
        {"slope": enclosure(slope), "sides": law.sides, "messages": law.messages},
        (
            ball_step(at, all(edges)),
            ball_step(
                "within 1/100 of theory", abs(slope - ball(law.theory)) < ball(Fraction(1, 100))
            ),
        ),
    )


@at_precision
def published_instance() -> Claim:
    """The full-ball certificate with 17,850,625 messages."""
    d, beta, side = 4, Fraction(1280) ** 2, 65
    channel, tokens = full_ball(d, beta, side), log10_tokens(d, beta, side)
    return Claim(
        "support/published-ball-instance",
        "MATH 9.4",
        "messages (r >= that), log10 of the number of tokens, bound on the off-diagonal mass",
        {"d": d, "beta": beta, "side": side, "spacing": Fraction(1, 128), "multiplicity": 256},
        {
            "messages": channel.messages,
            "log10_tokens": enclosure(tokens),
            "off_mass": enclosure(channel.off_mass),
        },
        (
            arithmetic(
                "the grid lies in the ball of radius 1/2", d * RADII[d] ** 2 <= Fraction(1, 4)
            ),
            arithmetic(
                "spacing = 10 / sqrt(beta)", 2 * RADII[d] / (side - 1) == Fraction(10, 1280)
            ),
            ball_step(
                "2 mu + epsilon < 1 at epsilon = 99/100", channel.certifies(Fraction(99, 100))
            ),
            ball_step("about 10^88,946 tokens", abs(tokens - 88946) < ball(Fraction(1, 2))),
        ),
    )


@at_precision
def sphere_instance() -> Claim:
    """A sphere certificate whose token count is no multiple of its messages."""
    d, beta, copies = 3, Fraction(4096), 2
    side = largest_side(lambda side: sphere(d, beta, side, copies))
    channel = sphere(d, beta, side, copies)
    n = copies * channel.messages + 1
    return Claim(
        "support/sphere-instance",
        "MATH 9.4",
        "messages (r >= that) when n tokens do not divide evenly, bound on the off-diagonal mass",
        {"d": d, "beta": beta, "side": side, "tokens": n, "epsilon": EPSILON},
        {"messages": channel.messages, "off_mass": enclosure(channel.off_mass)},
        (
            arithmetic("n is no multiple of N", n % channel.messages != 0),
            ball_step("2 mu + epsilon < 1", channel.certifies(EPSILON)),
        ),
    )


def zero_temperature() -> Claim:
    """beta = 0: A = J/n whatever the points, rank one even at tolerance zero."""
    n, epsilon = 5, Fraction(0)
    A = ones(n, n) / n
    return closed(
        "support/beta-zero",
        "MATH 9.4",
        "approximation rank at beta = 0",
        {"n": n, "epsilon": epsilon, "matrix": A},
        nonzero_rank(A, epsilon),
        rank_at_most(A, epsilon, ones(n, 1), ones(1, n) / n),
    )


def claims() -> Iterator[Claim]:
    """All claims of MATH 9.4."""
    yield zero_temperature()
    yield sphere_instance()
    yield published_instance()
    for law in growths():
        yield growth(law)
