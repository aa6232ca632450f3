"""The kernel's verdicts on matrices of known rank (MATH 5, as softrank_exact.kernel checks it).

Every example is a matrix A with r_eps(A) <= k, the working matrix A0 at distance alpha of it, and a
witness about A0 as good as can be proposed. The kernel must not take a rank above k as proven. A
mutant is the same check with a clause of the kernel missing.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from oracles.kernel_steps import question
from oracles.rational import (
    Matrix,
    identity,
    norm,
    ones,
    over_common_denominator,
)
from softrank_exact.kernel.check import (
    Bernstein,
    BernsteinRows,
    Fantope,
    Finding,
    HilbertSchmidt,
    InvalidWitness,
    Question,
    Shattering,
    Witness,
    check,
)

from .clauses import at_most
from .formulas import fantope_constant, fantope_form
from .lemma import lemma
from .proposals import (
    BASIS,
    eigenbasis,
    fantope_weights,
    integers,
    reconstruction,
    shatterings,
    worst_row,
    worst_signs,
)
from .strategies import known_ranks, matrices, rationals, vectors


@st.composite
def _moved_target(draw: DrawFn) -> tuple[Matrix, Matrix, Fraction, Fraction, int]:
    """(A, A0, alpha, eps, k): r_eps(A) <= k and ||A - A0|| = alpha, A0 often A stretched."""
    A, epsilon, k = draw(known_ranks())
    stretch = draw(st.sampled_from([0, 0, Fraction(1, 1 << 20), Fraction(1, 8), None]))
    change = draw(matrices(A.shape, rationals(1))) if stretch is None else stretch * A
    return A, A + change, norm(change), epsilon, k


def _ok(finding: Finding, witness: Witness) -> bool:
    return finding.code == "ok"


def _proven(
    asked: Question, rank_claimed: int, witness: Witness, proves: Callable[..., bool]
) -> int:
    """The rank that is taken as proven: the one claimed, or 0 if the witness is refused."""
    try:
        finding = check(asked, rank_claimed, witness)
    except InvalidWitness:
        return 0
    return rank_claimed if finding.code != "basis" and proves(finding, witness) else 0


SHARED_MUTANTS: dict[str, dict[str, Any]] = {
    "no shift": {"asked": lambda A, e, alpha: question(A, e)},
    "eps - alpha for eps + alpha": {"asked": lambda A, e, alpha: question(A, abs(e - alpha))},
    "a closed inequality": {"proves": lambda finding, witness: finding.margin >= 0},
}
"""What any lower check could get wrong."""


@st.composite
def _spectral_case(draw: DrawFn):
    """A moved target with row weights d and a T: uniform, random, or one row and its signs."""
    target = draw(_moved_target())
    A0 = target[1]
    m, n = A0.shape
    random = (
        draw(vectors(m, st.integers(0, 3)).filter(np.any)),
        draw(matrices((n, draw(st.integers(1, n)))).filter(np.any)),
    )
    one_row = identity(m)[worst_row(A0)], worst_signs(A0)
    return *target, *draw(st.sampled_from([random, one_row, (ones(m), identity(n))]))


@lemma(
    "5.2-kernel",
    r"\text{a verified Hilbert-Schmidt witness of rank } p \implies p \le k",
    assumes="r_eps(A) <= k, ||A - A0|| = alpha; the witness is about A0",
    given=_spectral_case(),
    mutants={
        **SHARED_MUTANTS,
        "eps for its square": {"proves": lambda f, witness: f.found**2 > f.needed},
        "rows of T of any length": {
            "proves": lambda f, witness: f.found * int((witness.T**2).sum(axis=1).max()) > f.needed
        },
        "weights of any sum": {
            "proves": lambda f, witness: f.found * int((witness.d**2).sum()) > f.needed
        },
    },
)
def spectral_verdicts(A, A0, alpha, epsilon, k, d, T, *, asked=question, proves=_ok):
    """No Hilbert-Schmidt witness makes the kernel prove more than the known rank."""
    image = d[:, None] * (A0 @ T)
    (weights,), (frame,) = integers(d), integers(T)
    witness = HilbertSchmidt(weights, frame, eigenbasis(image.T @ image), BASIS)
    proven = _proven(asked(A0, epsilon, alpha), k + 1, witness, proves)
    yield at_most("the proven rank", proven, k)


@st.composite
def _reconstructed_case(draw: DrawFn):
    """A moved target with indices (repeats included) for p = k + 1, exactly or nearly inverted."""
    target = draw(_moved_target())
    return *target, draw(st.booleans()), draw(st.integers(0, 3)), draw(st.booleans())


def _indices(n: int, count: int, repeated: bool, first: int) -> list[int]:
    """All of 0..n-1, or one of them ``count`` times."""
    return [first % n] * count if repeated else list(range(n))


class _AnyColumns(Bernstein):
    def values(self, axes):
        """Any indices: the clause is missing."""


@lemma(
    "5.3-kernel",
    r"\text{a verified Bernstein witness of rank } p \implies p \le k",
    assumes="r_eps(A) <= k, ||A - A0|| = alpha; the witness is about A0",
    given=_reconstructed_case(),
    mutants={**SHARED_MUTANTS, "a repeated column": {"kind": _AnyColumns}},
)
def bernstein_verdicts(
    A, A0, alpha, epsilon, k, repeated, first, exact, *, asked=question, proves=_ok, kind=Bernstein
):
    """No reconstruction from columns makes the kernel prove more than the known rank."""
    columns = _indices(A0.shape[1], k + 2, repeated, first)
    G, X, Y = reconstruction(A0[:, columns], k + 1, exact)
    witness = _reconstruction_witness(kind, columns, G, X, Y)
    claimed = len(columns) - X.shape[1]
    proven = _proven(asked(A0, epsilon, alpha), claimed, witness, proves)
    yield at_most("the proven rank", proven, k)


@lemma(
    "5.3-kernel-rows",
    r"\text{a verified witness of the left mirror of rank } p \implies p \le k",
    assumes="r_eps(A) <= k, ||A - A0|| = alpha; the witness is about A0",
    given=_reconstructed_case(),
    mutants=SHARED_MUTANTS,
)
def bernstein_row_verdicts(
    A, A0, alpha, epsilon, k, repeated, first, exact, *, asked=question, proves=_ok
):
    """No reconstruction from rows makes the kernel prove more than the known rank."""
    rows = _indices(len(A0), k + 2, repeated, first)
    G, X, Y = reconstruction(A0[rows].T, k + 1, exact)
    witness = _reconstruction_witness(BernsteinRows, rows, G.T, Y.T, X.T)
    claimed = len(rows) - X.shape[1]
    proven = _proven(asked(A0, epsilon, alpha), claimed, witness, proves)
    yield at_most("the proven rank", proven, k)


def _reconstruction_witness(kind, indices, G, X, Y):
    (G, g), (X, x), (Y, y) = (over_common_denominator(F) for F in (G, X, Y))
    return kind(np.array(indices, dtype=np.int64), G, X, Y, g, x * y)


@st.composite
def _fantope_case(draw: DrawFn):
    """A moved target, heaviest column first, with T and weights, negative ones at times."""
    A, A0, alpha, epsilon, k = draw(_moved_target())
    heaviest_first = np.argsort(-abs(A0).sum(axis=0), kind="stable")
    A, A0 = A[:, heaviest_first], A0[:, heaviest_first]
    return A, A0, alpha, epsilon, k, *draw(fantope_weights(A0, epsilon + alpha, k))


class _FirstColumn(Fantope):
    def support(self):
        """The first column alone: the others are not tested."""
        return super().support()[:1]


class _AnyWeights(Fantope):
    def values(self, axes):
        """Weights of any sign, if only their sum is positive: the clause is missing."""
        if not (self.w.sum(axis=1) + self.v.sum(axis=1) > 0).all():
            raise InvalidWitness("value", "weights without a positive sum")


@lemma(
    "5.4-kernel",
    r"\text{a verified Fantope witness of rank } p \implies p \le k",
    assumes="r_eps(A) <= k, ||A - A0|| = alpha; the witness is about A0",
    given=_fantope_case(),
    mutants={
        **SHARED_MUTANTS,
        "the first column alone": {"kind": _FirstColumn, "tested": lambda J: J[:1]},
        "negative weights": {"kind": _AnyWeights, "weights": lambda w: w},
    },
)
def fantope_verdicts(
    A,
    A0,
    alpha,
    epsilon,
    k,
    T,
    w,
    v,
    *,
    asked=question,
    proves=_ok,
    kind=Fantope,
    tested=lambda J: J,
    weights=abs,
):
    """No Fantope witness makes the kernel prove more than the known rank."""
    J = tested([j for j in range(len(T)) if T[j].any()])
    w, v = weights(w[J]), weights(v[J])
    bases = [
        eigenbasis(fantope_form(A0, T, a, b, j, fantope_constant(epsilon + alpha, a, b)))
        for j, a, b in zip(J, w, v, strict=True)
    ]
    witness = kind(*integers(T), *integers(w, v), np.stack(bases), BASIS)
    proven = _proven(asked(A0, epsilon, alpha), k + 1, witness, proves)
    yield at_most("the proven rank", proven, k)


@lemma(
    "5.8-kernel",
    r"\text{a verified shattering witness of rank } p \implies p \le k",
    assumes="r_eps(A) <= k, ||A - A0|| = alpha; the witness is about A0",
    given=_moved_target().flatmap(
        lambda case: st.tuples(*map(st.just, case), shatterings(case[1], case[-1] + 1))
    ),
    mutants={
        **SHARED_MUTANTS,
        "queries of any length": {
            "proves": lambda f, witness: f.found * abs(witness.D).sum(axis=1).min() > f.needed
        },
        "values of any size": {
            "proves": lambda f, witness: f.found * abs(witness.Y).max() > f.needed
        },
    },
)
def shattering_verdicts(A, A0, alpha, epsilon, k, shattered, *, asked=question, proves=_ok):
    """No shattering witness makes the kernel prove more than the known rank."""
    D, blocks, edges, Y = shattered
    (queries,), (values,) = integers(D), integers(Y)
    ends = np.array([(i + 1, s * (j + 1)) for i, j, s in edges], dtype=np.int64).reshape(-1, 2)
    witness = Shattering(queries, np.array(blocks), ends, values)
    proven = _proven(asked(A0, epsilon, alpha), k + 1, witness, proves)
    yield at_most("the proven rank", proven, k)
