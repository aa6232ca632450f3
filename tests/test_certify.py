"""From float witnesses to certificates: what verifies is kept, and nothing lies."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softrank_exact import Target, UserError, audit, certify, load_certificate, minicheck, witness
from softrank_exact.certificate import SUFFIX
from softrank_exact.kernel.check import Factor
from softrank_exact.scalars import float_above, float_below, parse_epsilon

EPS = Fraction(1, 4)


@pytest.fixture(scope="module")
def target() -> Target:
    rng = np.random.default_rng(3)
    return Target.logits(2 * rng.standard_normal((24, 5)) @ rng.standard_normal((5, 24)), EPS)


@pytest.fixture(scope="module")
def A(target: Target) -> witness.FloatArray:
    return target.float_matrix


def fantope(A: witness.FloatArray, rank: int) -> witness.FloatFantope:
    m, n = A.shape
    T = np.linalg.svd(A)[2][: rank + 3].T
    return witness.FloatFantope(rank, T, np.full((n, m), 1.0 / m), np.full((n, n), 1e-9))


def shattering(A: witness.FloatArray, rank: int) -> witness.FloatShattering:
    """The heaviest entries in rows and columns of their own, every sign pattern at them."""
    rest, D, columns = A.copy(), np.zeros((rank, len(A))), []
    for i in range(rank):
        row, column = np.unravel_index(rest.argmax(), rest.shape)
        rest[row], rest[:, column] = 0.0, 0.0
        D[i, row] = 1.0
        columns.append(column)
    Y = np.zeros((1 << (rank - 1), A.shape[1]))
    for pattern in range(len(Y)):
        Y[pattern, columns] = [1.0, *(1 - 2 * (pattern >> i & 1) for i in range(rank - 1))]
    return witness.FloatShattering(D, np.array([rank]), Y)


def strongest(target: Target, make: Any) -> int:
    """The largest rank that a family of lower witnesses proves."""
    proven = 0
    for rank in range(1, 13):
        lower = certify(target, EPS, [make(rank)]).lower
        proven = max(proven, lower or 0)
    return proven


def test_a_bracket_from_classical_witnesses(target: Target, A: witness.FloatArray) -> None:
    uppers = [witness.truncated_svd(A, rank) for rank in range(A.shape[1] + 1)]
    lowers = [witness.frobenius_tail(A, rank) for rank in range(1, 12)]
    certificate = certify(target, EPS, [*uppers, *lowers], {"search": "classical"})
    error = [float(np.abs(A - w.X @ w.Y).sum(axis=1).max()) for w in uppers]
    assert certificate.upper == next(k for k, e in enumerate(error) if e < 0.25)
    tails = np.cumsum(np.linalg.svd(A)[1][::-1] ** 2)[::-1]
    assert certificate.lower == sum(tail > A.shape[0] / 16 for tail in tails)
    assert 1 < certificate.lower <= certificate.upper < A.shape[1]
    kinds = {verdict.kind for verdict in certificate.verdicts}
    assert kinds == {"factor", "hilbert-schmidt"}


def test_every_named_witness_proves_something(target: Target, A: witness.FloatArray) -> None:
    rng = np.random.default_rng(0)
    order = [int(i) for i in np.argsort(-A.max(axis=1))]
    columns = [int(A[i].argmax()) for i in order]

    def decoded(rank: int) -> witness.FloatBernstein:
        D, F = np.eye(24)[order[:rank]], np.eye(24)[columns[:rank]].T
        return witness.decoded_inverse(A, D, F + 1e-9 * rng.standard_normal(F.shape))

    proven = {
        "frobenius": strongest(target, lambda r: witness.frobenius_tail(A, r)),
        "pseudoinverse": strongest(target, lambda r: witness.truncated_pseudoinverse(A, r)),
        "decoded": strongest(target, decoded),
        "fantope": strongest(target, lambda r: fantope(A, r)),
        "shattering": strongest(target, lambda r: shattering(A, r)),
    }
    assert all(rank >= 1 for rank in proven.values()), proven
    inverse = witness.distance_to_singularity(np.eye(24) * 0.5)
    assert certify(Target.matrix(np.eye(24) * 0.5, EPS), EPS, [inverse]).lower == 24
    near = witness.near_identity(np.eye(3), np.eye(3), np.eye(3) * 0.9)
    assert certify(Target.matrix(np.eye(3), EPS), EPS, [near]).lower == 3
    rows = np.repeat(A[:2], 5, axis=0)
    repeated = witness.representative_rows(rows, [0, 5])
    assert certify(Target.matrix(rows, EPS), EPS, [repeated]).upper == 2


def test_the_left_mirror(target: Target, A: witness.FloatArray) -> None:
    right = witness.truncated_pseudoinverse(A, 3)
    mirrored = witness.FloatBernsteinRows(right.columns, right.G.T, right.Y.T, right.X.T)
    assert mirrored.rank == 3
    transposed = Target.matrix(A.T.copy(), Fraction(1, 100))
    assert certify(transposed, Fraction(1, 100), [mirrored]).lower == 3


def test_save_load_and_audit(target: Target, A: witness.FloatArray, tmp_path: Path) -> None:
    certificate = certify(target, EPS, [witness.truncated_svd(A, 20), fantope(A, 1)])
    path = certificate.save(tmp_path / f"head{SUFFIX}")
    assert path.read_bytes() == certificate.to_bytes()
    again = certify(target, EPS, [witness.truncated_svd(A, 20), fantope(A, 1)])
    assert again.to_bytes() == certificate.to_bytes()
    loaded = load_certificate(path)
    assert (loaded.lower, loaded.upper) == (certificate.lower, certificate.upper)
    assert loaded.to_bytes() == certificate.to_bytes()
    assert [v.verdict for v in audit(path).verdicts] == ["verified", "verified"]
    assert all(v.verdict == "verified" for v in minicheck.check_bytes(path.read_bytes()))
    assert os.listdir(tmp_path) == [path.name]


def test_a_failed_write_leaves_nothing(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"x{SUFFIX}"
    path.write_bytes(b"old")

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        certify(target, EPS).save(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


def test_unreadable_and_malformed_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load_certificate(tmp_path / "none")
    (tmp_path / "x").write_bytes(b"12345678")
    with pytest.raises(UserError, match=r"malformed \(size\)"):
        load_certificate(tmp_path / "x")
    with pytest.raises(UserError, match="cannot be written"):
        certify(Target.matrix(np.eye(2), EPS), EPS).save(tmp_path / "no" / "x")


def test_trivial_brackets() -> None:
    matrix = certify(Target.matrix(np.ones((3, 2)), EPS), EPS)
    assert (matrix.lower, matrix.upper) == (0, 2)
    softmax = certify(Target.logits(np.ones((3, 2)), EPS), EPS)
    assert (softmax.lower, softmax.upper) == (1, 2)
    one = certify(Target.logits(np.ones((3, 2)), 1), 1)
    assert (one.lower, one.upper) == (0, 0)


def test_tolerance_below_alpha_is_still_a_bracket() -> None:
    eps = Fraction(1, 10**25)
    certificate = certify(Target.logits(np.arange(6.0).reshape(2, 3), eps), eps)
    assert (certificate.lower, certificate.upper) == (1, 2)


def test_zero_tolerance_and_thresholds() -> None:
    """eps = 0 is exact rank; the distance 1/2 of [[1, 0], [0, 1/2]] decides on its threshold."""
    A = np.array([[1.0, 0.0], [0.0, 0.5]])
    full = witness.distance_to_singularity(A)
    factor = witness.FloatFactor(A[:, :1], np.array([[1.0, 0.0]]))
    assert certify(Target.matrix(A, 0), 0, [full, factor]).lower == 2
    on = certify(Target.matrix(A, "1/2"), "1/2", [full, factor])
    assert (on.lower, on.upper) == (0, 1)
    below = certify(Target.matrix(A, "499/1000"), "499/1000", [full, factor])
    assert (below.lower, below.upper) == (2, 2)


def test_integer_witnesses_are_taken_as_they_are() -> None:
    eye = np.eye(2, dtype=np.int64)
    certificate = certify(
        Target.fractions([[Fraction(1, 3), Fraction(0)], [Fraction(0), Fraction(1, 3)]]),
        0,
        [(2, Factor(eye, eye, 3))],
    )
    assert certificate.verdicts[-1].finding.margin == 0
    assert certificate.verdicts[-1].kind == "factor"


def test_tiny_and_large_entries() -> None:
    """Entries of 1e-300 and 1e300 give sound brackets, exact at eps = 0 where den holds them."""
    small = certify(Target.matrix(np.array([[1e-300, 0.0], [0.0, 1e-300]]), 0), 0)
    assert (small.lower, small.upper) == (0, 2)
    large = certify(Target.matrix(np.array([[1e300, 0.0], [0.0, 1.0]]), EPS), EPS)
    assert (large.lower, large.upper) == (0, 2)


def test_mistaken_arguments_are_told(target: Target, A: witness.FloatArray) -> None:
    factor = witness.truncated_svd(A, 20)
    mistakes: list[tuple[Any, Any, str]] = [
        (A, [factor], "target is a ndarray"),
        (target, factor, "single witness"),
        (target, [A], "witness 0 is a ndarray"),
    ]
    for first, second, words in mistakes:
        with pytest.raises(UserError, match=words):
            certify(first, EPS, second)
    for rank in (-1, 25):
        with pytest.raises(UserError, match="rank is"):
            witness.truncated_svd(A, rank)
    with pytest.raises(UserError, match=r"rows\[0\]\[1\] is 'x'"):
        Target.fractions([["1/2", "x"]])  # type: ignore[list-item]
    with pytest.raises(UserError, match=r"Target\.fractions"):
        Target.matrix([[Fraction(1, 3)]])
    assert repr(certify(target, EPS)) == "Certificate(1 <= r_eps <= 24, eps=1/4, logits 24 x 24)"


@pytest.mark.parametrize(
    "bad",
    [
        witness.FloatFactor(np.ones((2, 1)), np.ones((1, 24))),
        witness.FloatFactor(np.full((24, 1), np.nan), np.ones((1, 24))),
        witness.FloatFactor(np.full((24, 1), 1e200), np.full((1, 24), 1e200)),
        witness.FloatFactor(np.ones((24, 3)), np.ones((2, 24))),
        witness.FloatHS(1, np.zeros(24), np.eye(24)),
        witness.FloatBernstein(
            np.array([0, 0]), np.ones((2, 24)), np.ones((2, 1)), np.ones((1, 2))
        ),
    ],
)
def test_unusable_witnesses_are_told(target: Target, bad: Any) -> None:
    with pytest.raises(UserError, match="witness 0"):
        certify(target, EPS, [bad])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1/4", Fraction(1, 4)),
        ("0.25", Fraction(1, 4)),
        ("25e-2", Fraction(1, 4)),
        (0.1, Fraction(0.1)),
        (1, Fraction(1)),
        ("0", Fraction(0)),
    ],
)
def test_tolerances(text: Any, value: Fraction) -> None:
    assert parse_epsilon(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1/4",
        "1/0",
        "inf",
        "nan",
        float("nan"),
        float("inf"),
        -0.5,
        True,
        None,
        "1e999",
        "٠.٥",
        "1_0",
        " 1",
        "0x1",
        "1/-4",
        1j,
    ],
)
def test_refused_tolerances(text: Any) -> None:
    with pytest.raises(UserError, match="accepted"):
        parse_epsilon(text)


def test_floats_are_rounded_outward() -> None:
    for value in (
        Fraction(1, 3),
        Fraction(2, 3),
        -Fraction(1, 3),
        Fraction(1, 4),
        Fraction(10**400),
        Fraction(1, 10**400),
    ):
        assert float_above(value) >= value >= float_below(value)
    assert float_above(Fraction(1, 4)) == float_below(Fraction(1, 4)) == 0.25
