"""`bracket` end to end: sound, certified, sensible on special shapes."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from float_bridge import bracket  # noqa: E402
from softrank_exact import Target, UserError, audit, load_certificate  # noqa: E402

pytestmark = pytest.mark.bridge


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def softmax_head(seed: int, m: int, n: int, scale: float = 3.0) -> np.ndarray:
    logits = (
        scale
        * np.random.default_rng(seed).standard_normal((m, 4))
        @ np.random.default_rng(seed + 1).standard_normal((4, n))
    )
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def test_saved_certificate_proves_what_the_bracket_says(tmp_path):
    found = bracket(softmax_head(0, 24, 24), "1/4")
    path = found.save(tmp_path / "head.softrank.safetensors")
    verdicts = audit(path).verdicts
    assert all(v.verdict == "verified" for v in verdicts)
    loaded = load_certificate(path)
    assert (loaded.lower, loaded.upper) == (found.lower, found.upper)
    assert 1 <= found.lower <= found.upper < 24


def test_leading_axes_give_an_array_of_brackets():
    heads = np.stack([softmax_head(seed, 10, 12) for seed in range(4)]).reshape(2, 2, 10, 12)
    brackets = bracket(heads, 0.25)
    assert brackets.shape == (2, 2)
    alone = bracket(heads[1, 0], 0.25)
    assert brackets[1, 0].lower >= 1
    assert max(brackets[1, 0].lower, alone.lower) <= min(brackets[1, 0].upper, alone.upper)


def test_a_shared_fantope_witness_is_proven_anew():
    """Its eigenvectors belong to one tolerance: every certificate of the call must still verify."""
    generator = np.random.default_rng(5)
    logits = 1.5 * generator.normal(size=(48, 8)) @ generator.normal(size=(8, 48)) / 2
    A = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    found = bracket(A, ["1/4", "6/25", "23/100", "1/5"])
    kinds = {verdict.kind for one in found for verdict in one.certificate.verdicts}
    assert "fantope" in kinds
    for one in found:
        assert all(verdict.verdict == "verified" for verdict in one.certificate.verdicts)
        assert (one.certificate.lower, one.certificate.upper) == (one.lower, one.upper)


def test_several_tolerances_are_monotone():
    brackets = bracket(softmax_head(3, 16, 16), ["1/2", "1/10", "1/4"])
    by_eps = sorted(brackets, key=lambda b: b.epsilon)
    for tighter, looser in pairwise(by_eps):
        assert tighter.lower >= looser.lower
        assert tighter.upper >= looser.upper


def test_same_seed_gives_the_same_certificate():
    A = softmax_head(5, 14, 14)
    first, second = (bracket(A, "1/4", seed=7).certificate.to_bytes() for _ in range(2))
    assert first == second


def test_warm_start_is_never_worse():
    A = softmax_head(6, 20, 20)
    before = bracket(A, "1/4")
    after = bracket(A, "1/4", seed=1, warm=before.certificate)
    assert before.lower <= after.lower <= after.upper <= before.upper


def test_seconds_reports_only_proven_improvements():
    seen = []
    found = bracket(softmax_head(8, 16, 16), "1/10", seconds=1.5, progress=seen.append)
    assert seen
    assert all(b.lower <= found.upper and b.upper >= found.lower for b in seen)


def test_interrupt_returns_what_is_proven():
    def stop(_):
        raise KeyboardInterrupt

    found = bracket(softmax_head(9, 16, 16), "1/10", progress=stop)
    assert found.interrupted
    assert found.certificate.lower == found.lower <= found.upper


BLOCKS = np.kron(np.eye(4), np.full((5, 3), 1 / 3))
ONE_HOT = np.zeros((9, 7))
ONE_HOT[:, 2] = 1.0
SPECIAL = {
    "identity": (np.eye(9), "9/10", 9),
    "permutation": (np.eye(8)[[3, 1, 0, 2, 7, 5, 4, 6]], "1/2", 8),
    "uniform": (np.full((8, 8), 1 / 8), "1/4", 1),
    "rank one": (np.outer(np.ones(6), softmax_head(1, 1, 9)[0]), "1/4", 1),
    "block-diagonal": (BLOCKS, "1/2", 4),
    "one hot column": (ONE_HOT, "1/4", 1),
    "one column": (np.full((5, 1), 1.0), "1/4", 1),
    "one row": (softmax_head(2, 1, 6), "1/4", 1),
    "one entry": (np.array([[0.5]]), "1/2", 0),
    "repeated rows": (np.repeat(np.eye(3), 5, axis=0), "1/4", 3),
    "loose tolerance": (np.eye(4), 1, 0),
    "very loose tolerance": (np.eye(4), 10**6, 0),
    "tolerance zero": (np.eye(6), 0, 6),
    "tolerance zero, rank two": (np.repeat(np.eye(2), 3, axis=0), 0, 2),
    "zero matrix": (np.zeros((3, 4)), 0, 0),
    "tiny entries": (np.full((4, 4), 1e-300), "1/4", 0),
    "negative entries": (-np.eye(5), "1/2", 5),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_matrix_is_exact(name):
    A, eps, rank = SPECIAL[name]
    found = bracket(A, eps)
    assert (found.lower, found.upper) == (rank, rank)


@pytest.mark.parametrize("shape", [(2, 60), (60, 2), (1, 1), (1, 50), (50, 1)])
def test_lopsided_shapes_are_sound(shape):
    found = bracket(softmax_head(4, *shape), "1/10")
    assert 1 <= found.lower <= found.upper <= min(shape)


def test_logits_target_is_about_the_exact_softmax():
    found = bracket(np.zeros((4, 4)), "1/4", object="logits")
    assert found.exact
    assert found.certificate.declared.object == "logits"
    assert bracket(np.zeros((4, 4)), 1, object="logits").upper == 0


def test_targets_of_any_object_are_taken():
    found = bracket(Target.fractions([[Fraction(1, 3), Fraction(2, 3)]] * 3), Fraction(1, 9))
    assert (found.lower, found.upper) == (1, 1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_torch_tensors_embed_exactly(dtype):
    A = torch.eye(4, requires_grad=True).to(getattr(torch, dtype)).T
    assert bracket(A, "1/2").exact


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"A": np.array([[np.nan]])}, "nan"),
        ({"A": np.zeros(3)}, "shape"),
        ({"A": torch.empty(2, 2, device="meta")}, "meta"),
        ({"A": torch.zeros(2, 2, dtype=torch.complex64)}, "complex"),
        ({"A": np.ma.masked_array(np.eye(2))}, "masked"),
        ({"eps": []}, "eps"),
        ({"eps": -1}, "negative"),
        ({"effort": "heroic"}, "effort"),
        ({"object": "image"}, "object"),
        ({"seconds": 0}, "seconds"),
        ({"device": "abacus"}, "device"),
    ],
)
def test_bad_input_is_one_sentence(arguments, message):
    with pytest.raises(UserError, match=message) as raised:
        bracket(**{"A": np.eye(2), "eps": "1/4"} | arguments)
    assert "accepted" in str(raised.value)


def test_entries_beyond_every_witness_still_give_a_sound_bracket():
    found = bracket(np.diag([1e-300, 1.0]), 0)
    assert found.lower <= 2 <= found.upper
