"""Sphere and full ball: the bounds against tokens that are really made, and other arithmetic."""

from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest

from oracles import figure, support
from oracles.balls import endpoints
from softrank_exact import Target, UserError, certify
from softrank_exact.witness import FloatBernstein


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def grid(side, axes, radius):
    return np.array(list(product(np.linspace(-radius, radius, side), repeat=axes)))


def stereographic(u):
    """Points of the unit sphere from points of the plane at its equator."""
    squares = (u**2).sum(axis=1, keepdims=True)
    return np.hstack([2 * u, 1 - squares]) / (1 + squares)


def tokens(messages, counts):
    """Rows repeated, and for each token the number of its message."""
    owner = np.repeat(np.arange(len(messages)), counts)
    return messages[owner], owner


def decoded(A, owner):
    """One query a message, the keys of a message summed: contractive (MATH 5.1)."""
    first = np.unique(owner, return_index=True)[1]
    return A[first] @ np.eye(len(first))[owner], first


def bernstein(A, owner):
    """The near identity of the decoded channel as a reconstruction of A itself (MATH 5.3)."""
    channel, first = decoded(A, owner)
    n, p = len(A), len(channel)
    F = np.eye(p)[owner]
    D = np.eye(n)[first]
    G = F @ np.linalg.inv(channel) @ D
    U, s, V = np.linalg.svd(np.eye(n) - G @ A)
    return FloatBernstein(np.arange(n), G, U[:, : n - p] * s[: n - p], V[: n - p])


def sphere_tokens():
    d, beta, side, copies = 3, Fraction(600), 4, 2
    points = stereographic(grid(side, d - 1, 0.5))
    counts = np.full(len(points), copies)
    counts[:5] += 1
    return support.sphere(d, beta, side, copies), points, counts, float(beta)


def ball_tokens():
    d, beta, side = 2, Fraction(100), 3
    points = grid(side, d, float(support.RADII[d]))
    # The true multiplicities with K = 1: the bound of the module allows for a K of 256.
    heights = np.exp(float(beta) * (0.25 - (points**2).sum(axis=1)) / 2)
    exact = support.full_ball(d, beta, side)
    channel = support.Channel(side, d, exact.exponent, Fraction(2))
    return channel, points, np.ceil(heights).astype(int), float(beta)


@pytest.mark.parametrize("made", [sphere_tokens, ball_tokens])
def test_bound_covers_the_tokens_themselves(made):
    channel, points, counts, beta = made()
    kept = np.minimum(counts, 10**6)
    assert np.array_equal(kept, counts), "the instance is small enough to be made"
    logits = beta * points @ points.T + np.log(counts)
    mass = softmax(logits)
    off = 1 - np.diag(mass)
    assert off.max() <= endpoints(channel.off_mass)[1]
    assert channel.messages == len(points)


def test_kernel_certifies_the_sphere_tokens():
    """n = 37 tokens, N = 16 messages: the softmax of all tokens, with its slack, in the kernel."""
    channel, points, counts, beta = sphere_tokens()
    x, owner = tokens(points, counts)
    target = Target.qk(x, x, Fraction(1, 4), scale=Fraction(beta))
    certificate = certify(target, Fraction(1, 4), [bernstein(target.float_matrix, owner)])
    assert channel.certifies(Fraction(1, 4))
    assert certificate.lower == channel.messages == 16
    assert len(x) % 16 != 0


def test_published_instance_in_other_arithmetic():
    """log10 of the number of tokens, by mpmath; the grid's sum is a fourth power."""
    with mpmath.workdps(60):
        beta, K = mpmath.mpf(1280) ** 2, 256
        one = mpmath.fsum(
            mpmath.exp(-beta * (mpmath.mpf(k) / 128) ** 2 / 2) for k in range(-32, 33)
        )
        expected = mpmath.log10(K) + beta / 8 / mpmath.log(10) + 4 * mpmath.log10(one)
        claim = support.published_instance()
        enclosure = claim.value["log10_tokens"]
        assert enclosure.upper - enclosure.lower <= Fraction(1, 10**25)
        assert mpmath.mpf(enclosure.lower.numerator) / enclosure.lower.denominator <= expected
        assert expected <= mpmath.mpf(enclosure.upper.numerator) / enclosure.upper.denominator
    assert claim.proven
    assert claim.value["messages"] == 17_850_625
    assert str(float(enclosure.lower)).startswith("88945.918")


def test_slopes_by_numpy():
    for law in support.growths():
        claim = support.growth(law)
        assert claim.proven
        slope = np.polyfit(np.log(support.BETAS), np.log(np.array(law.messages, dtype=float)), 1)[0]
        assert slope == pytest.approx(float(claim.value["slope"].lower), abs=1e-9)
        assert slope == pytest.approx(float(law.theory), abs=1e-2)


def test_a_dense_grid_is_not_certified():
    assert support.full_ball(2, Fraction(100), 3).certifies(support.EPSILON)
    assert not support.full_ball(2, Fraction(100), 60).certifies(support.EPSILON)
    assert not support.sphere(2, Fraction(1), 50, 3).certifies(support.EPSILON)
    assert not support.full_ball(2, Fraction(10**6), 3).certifies(Fraction(1))


def test_figure(tmp_path):
    pytest.importorskip("matplotlib")
    figure.draw(tmp_path / "slopes.svg")
    text = (tmp_path / "slopes.svg").read_text()
    assert "<svg" in text
    with pytest.raises(UserError, match="cannot be drawn"):
        figure.draw(tmp_path / "missing" / "slopes.svg")
