"""MATH 3 and 8 as softrank_exact.interaction computes them, against the small formulas."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from oracles.rational import Matrix, centred, identity, inner, norm, rank
from softrank_exact.errors import UserError
from softrank_exact.interaction import (
    ExactMatrix,
    explicit_bound,
    gauge_audit,
    gauged,
    of_logits,
    of_matrix,
    of_qk,
    profile,
    size,
)
from softrank_exact.interaction import residual as library_residual

from .clauses import Clause, at_most, equal, that
from .formulas import radius_square, residual, singular_distance
from .lemma import lemma
from .softmax import dual_triple, factors_and_duals, interactions
from .strategies import (
    degenerate_shapes,
    either,
    gauges,
    matrices,
    proper_fractions,
    queries_and_keys,
    rationals,
    shapes,
    stochastic_matrices,
)


@lemma(
    "3.3-library",
    r"\texttt{of\_qk(Q, K).rank()} = \operatorname{rank} P_m QK^{\mathsf T} P_n",
    assumes="scale nonzero",
    given=st.tuples(queries_and_keys(), st.sampled_from([1, 2, 64])).map(
        lambda case: (*case[0], case[1])
    ),
    mutants={
        "the rank of the logits": {"interaction": lambda H: H},
        "the number of coordinates": {"interaction": lambda H: identity(3)},
    },
)
def library_rank(Q, K, over_sqrt, *, interaction=centred):
    """The library's visible dimension is exact for queries and keys."""
    found = of_qk(Q, K, over_sqrt=over_sqrt).rank()
    yield equal("lower end", found.lower, rank(interaction(Q @ K.T)))
    yield equal("upper end", found.upper, rank(interaction(Q @ K.T)))


@lemma(
    "3.4-library",
    r"\texttt{residual(F).value} = q(F)",
    given=st.tuples(either(interactions(), matrices(degenerate_shapes(), rationals()))),
    mutants={
        "the best constants of rows alone": {
            "claimed": lambda F, found: max(max(row) - min(row) for row in F)
        },
        "the cycle counted twice": {"claimed": lambda F, found: 2 * found.value},
    },
)
def library_residual_value(F, *, claimed=lambda F, found: found.value):
    """The library's residual is the largest cycle mean, and its certificate proves it."""
    found = library_residual(ExactMatrix.of(F))
    yield equal("q", claimed(F, found), residual(F))
    yield that("its certificate proves it", found.proves(ExactMatrix.of(F)))


@lemma(
    "3.6-library",
    r"\texttt{size(T).enclosure} \ni \kappa(T)",
    assumes="kappa enclosed by R(X) R(Y) and by dual triples",
    given=factors_and_duals(),
    mutants={
        "q / 2 as the size": {"enclosure": lambda found: (found.q / 2, found.q / 2)},
        "twice the lower end": {
            "enclosure": lambda found: (2 * found.enclosure.lower, found.enclosure.upper)
        },
    },
)
def library_size(X, Y, D, *, enclosure=lambda f: (f.enclosure.lower, f.enclosure.upper)):
    """The library's enclosure of the size meets every factorisation and every dual triple."""
    T = X @ Y.T
    low, high = enclosure(size(ExactMatrix.of(T)))
    _, _, feasible = dual_triple(centred(D))
    yield at_most("lower end", low**2, radius_square(X) * radius_square(Y))
    yield at_most("upper end", abs(inner(centred(T), feasible)), high)


@st.composite
def _positive(draw: DrawFn) -> tuple[Matrix, Fraction]:
    n = draw(st.integers(2, 4))
    weak = draw(stochastic_matrices((n, n), positive=True))
    share = draw(proper_fractions())
    return share * weak + (1 - share) / n, draw(proper_fractions())


@lemma(
    "3.8-library",
    r"\texttt{explicit\_bound(point, eps).bound} \ge r_\varepsilon(A)",
    assumes="A square, positive, row-stochastic; bounds below n are tested (MATH 5.5)",
    given=_positive(),
    mutants={
        "an eighth of the tolerance would do": {"reach": lambda e: e / 8},
        "one less": {"bound": lambda found: found.bound - 1},
    },
)
def library_explicit_bound(A, epsilon, *, reach=lambda e: e, bound=lambda found: found.bound):
    """An explicit profile bound below full rank is true of the matrix."""
    points = profile(of_matrix(ExactMatrix.of(A)))
    for point in points.points():
        found = explicit_bound(point, epsilon)
        if found is not None:
            full = singular_distance(A) > reach(epsilon)
            zero = norm(A) <= reach(epsilon)
            lower = 0 if zero else len(A) if full else 1
            yield at_most("r_eps", lower, bound(found))


@lemma(
    "8-library",
    r"\texttt{gauge\_audit}: A, \operatorname{rank} C, q, \kappa \text{ unchanged}",
    assumes="two coordinates, condition ratios 4 and 16",
    given=queries_and_keys(3, 2).flatmap(
        lambda QK: st.tuples(st.just(QK[0]), st.just(QK[1]), gauges(2))
    ),
    mutants={
        "native sizes do not move either": {
            "fixed": lambda audit: len({row.native.gamma for row in audit.rows}) == 1
        },
        "the keys are gauged as the queries": {
            "other_gauge": lambda Q, K, G: (ExactMatrix.of(Q @ G), ExactMatrix.of(K @ G))
        },
    },
)
def library_gauges(Q, K, G, *, fixed=lambda audit: audit.intrinsic_agree, other_gauge=gauged):
    """The audit proves that a gauge moves nothing intrinsic."""
    audit = gauge_audit(Q, K)
    yield that("A is unchanged", audit.unchanged)
    yield that("intrinsic quantities agree", fixed(audit))
    X, Y = other_gauge(Q, K, G)
    yield that("any gauge keeps the logits", (X @ Y.T).equals(ExactMatrix.of(Q @ K.T)))


@st.composite
def _masked(draw: DrawFn) -> tuple[np.ndarray, np.ndarray]:
    m, n = draw(shapes(3, 1))
    mask = draw(matrices((m, n), st.booleans())).astype(bool)
    return mask, np.where(mask, -np.inf, 0.0)


@lemma(
    "1.5-masks",
    r"\text{a row-dependent mask has no interaction}",
    assumes="logits 0 and minus infinity",
    given=_masked(),
    mutants={
        "any mask is refused": {"accepted": lambda mask: not mask.any()},
        "any mask with a key left in each row is accepted": {
            "accepted": lambda mask: not mask.all(axis=1).any()
        },
    },
)
def masks_refused(mask, H, *, accepted=lambda mask: _common(mask)):
    """Interactions need one support for all rows: a row-dependent mask is refused by name."""
    try:
        columns = of_logits(H).columns
        yield that("accepted", accepted(mask))
        yield that("the keys in use", list(columns) == list(np.flatnonzero(~mask[0])))
    except UserError as error:
        yield that("refused", not accepted(mask))
        yield _named(mask, error)


def _common(mask: np.ndarray) -> bool:
    """The same keys for all rows, and at least one."""
    return bool((mask == mask[:1]).all() and not mask.all())


def _named(mask: np.ndarray, error: UserError) -> Clause:
    same = bool((mask == mask[:1]).all())
    return that("by name", same or "row-dependent mask" in str(error))
