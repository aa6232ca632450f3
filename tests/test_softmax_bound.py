"""The proven bound of the float64 softmax holds, against ball arithmetic, where it hurts."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

torch = pytest.importorskip("torch")

from torch_devices import DEVICES  # noqa: E402

from float_bridge import softmax as module  # noqa: E402
from float_bridge.softmax import EXP_ERROR, REDUCED, exp_error, softmax_with_bound  # noqa: E402
from softrank_exact.errors import UserError  # noqa: E402

pytestmark = pytest.mark.bridge


def distance(row: list[float], p: list[float]) -> Any:
    """The l1 distance of p from the exact softmax of row, as a ball."""
    top = max(row)
    weights = [arb(0) if h == -np.inf else (arb(h) - arb(top)).exp() for h in row]
    total = sum(weights, arb(0))
    return sum((abs(w / total - arb(q)) for w, q in zip(weights, p, strict=True)), arb(0))


def assert_bounded(logits: np.ndarray, device: str = "cpu") -> None:
    p, bound = softmax_with_bound(torch.from_numpy(logits).to(device))
    with ctx.workprec(2400):
        for row, computed, limit in zip(logits, p.tolist(), bound.tolist(), strict=True):
            assert distance(row.tolist(), computed) <= arb(limit)


rng = np.random.default_rng(0)
ADVERSARIAL = {
    "equal": np.zeros((2, 33)),
    "huge equal": np.full((1, 7), 1.7e308),
    "opposite ends": np.array([[1.7e308, -1.7e308, 0.0]]),
    "plus and minus 700": np.array([[700.0, -700.0, 699.5], [-700.0, -700.0, -700.0]]),
    "around the cut": np.array([[0.0, -707.9, -708.0, -708.1, -745.0, -746.0]]),
    "denormal": np.array([[5e-324, -5e-324, 1e-310, 0.0, -0.0]]),
    "tiny and huge": np.array([[1e-300, 1e300, 1e300, -1e-300]]),
    "masked": np.array([[0.5, -np.inf, 0.25, -np.inf], [-np.inf, -np.inf, -np.inf, -3.0]]),
    "one column": np.array([[3.0], [-1e308]]),
    "halves of log 2": np.arange(-40, 1)[None] * (np.log(2.0) / 2),
    "neighbours of halves of log 2": np.nextafter(np.arange(-40, 1)[None] * (np.log(2.0) / 2), 0.0),
    "small": rng.normal(size=(8, 64)),
    "large": 50 * rng.normal(size=(8, 64)),
    "spread over the range": -np.sort(rng.uniform(0, 720, size=(4, 300))),
    "wide": 3 * rng.normal(size=(1, 2049)),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("logits", ADVERSARIAL.values(), ids=ADVERSARIAL.keys())
def test_the_bound_holds(logits: np.ndarray, device: str) -> None:
    assert_bounded(logits, device)


def test_the_bound_holds_when_denormals_are_flushed() -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush denormals")
    try:
        rows = np.array([[5e-324, -5e-324, 1e-310, 0.0], [0.0, -707.9, -708.0, -700.0]])
        p, bound = softmax_with_bound(torch.from_numpy(rows))
        p, bound = p.tolist(), bound.tolist()
    finally:
        torch.set_flush_denormal(False)
    with ctx.workprec(2400):
        for row, computed, limit in zip(rows, p, bound, strict=True):
            assert distance(row.tolist(), computed) <= arb(limit)


@settings(deadline=None, max_examples=60)
@given(arrays(np.float64, (2, 9), elements=st.floats(-800, 800)))
def test_the_bound_holds_for_any_logits(logits: np.ndarray) -> None:
    assert_bounded(logits)


def test_exp_stays_within_its_error_on_a_fine_grid() -> None:
    x = np.concatenate([-np.logspace(-320, 2.85, 3000), -np.linspace(0, 708, 3001)])
    values = module._exp(torch.from_numpy(x)).tolist()
    with ctx.workprec(200):
        worst = max(abs(arb(v) / arb(e).exp() - 1) for v, e in zip(values, x.tolist(), strict=True))
        assert worst <= arb(EXP_ERROR - 1) * arb(2) ** -53


def test_the_analysis_adds_up() -> None:
    u = Fraction(1, 2**53)
    assert exp_error() <= 3 * u
    with ctx.workprec(300):
        log2 = arb(2).log()
        assert abs(log2 - arb(module._LOG2_HIGH) - arb(module._LOG2_LOW)) < arb(2) ** -97
        assert log2 / 2 + arb(2) ** -40 < arb(3466) / 10000 < arb(float(REDUCED))
    assert (module._LOG2_HIGH * 2**42).is_integer()
    assert module._LOG2_HIGH * 2**42 < 2**42


def test_the_bound_is_small_and_below_what_the_docstring_says() -> None:
    logits = torch.from_numpy(4 * np.random.default_rng(1).normal(size=(64, 256)))
    _, bound = softmax_with_bound(logits)
    assert float(bound.max()) < (2 * np.log(256) + 8 + 9) * 2**-53 * 1.01


def test_batches_equal_their_members_bit_for_bit() -> None:
    logits = torch.from_numpy(5 * np.random.default_rng(2).normal(size=(3, 4, 6, 19)))
    p, bound = softmax_with_bound(logits)
    assert bound.shape == (3, 4, 6)
    one, limit = softmax_with_bound(logits[2, 1])
    assert torch.equal(p[2, 1], one)
    assert torch.equal(bound[2, 1], limit)


def test_masked_entries_are_exact_zeros() -> None:
    p, _ = softmax_with_bound(torch.tensor([[0.0, -torch.inf, 1.0]], dtype=torch.float64))
    assert p[0, 1] == 0
    assert float(p[0].sum()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("logits", "said"),
    [
        (torch.zeros(1, 2), "torch.float64"),
        (torch.tensor([[0.0, torch.nan]], dtype=torch.float64), "NaN"),
        (torch.tensor([[0.0, torch.inf]], dtype=torch.float64), "plus infinity"),
        (torch.full((1, 2), -torch.inf, dtype=torch.float64), "fully masked"),
    ],
)
def test_bad_logits_are_named(logits: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        softmax_with_bound(logits)
