"""The two checkers, against each other and against the truth, on random, forged and damaged files.

Neither may accept what is false; both must give the same verdict, code and numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import chain
from typing import Any

import pytest
import vector_cases
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from vector_cases import Draft

from oracles.exact_rank import exact_rank
from softrank_exact import minicheck
from softrank_exact.intake.audit import audit_bytes

LARGEST = (1 << 31) - 1
Row = tuple[str, str, Fraction | None, Fraction | None, Fraction | None]


def verdicts(data: bytes) -> list[tuple[str, str]]:
    """What both checkers say; numbers are compared on the way."""
    audit = audit_bytes(data)
    theirs = minicheck.check_bytes(data)
    if audit.malformed:
        ours: list[Row] = [("malformed", audit.malformed[0], None, None, None)]
    else:
        ours = [
            (v.verdict, v.code, v.finding.needed, v.finding.found, v.finding.margin)
            for v in audit.verdicts
        ]
    other = [(v.verdict, v.code, v.needed, v.found, v.margin) for v in theirs]
    if [row[:2] for row in ours] != [row[:2] for row in other] or "alpha" not in {
        r[1] for r in ours
    }:
        assert ours == other
    return [row[:2] for row in ours]


# ---------------------------------------------------------------------------------------------
# Random witnesses of every kind.

entry = st.one_of(st.integers(-3, 3), st.sampled_from([LARGEST, -LARGEST - 1, 1 << 20, -(1 << 21)]))
weight = st.one_of(st.integers(0, 3), st.sampled_from([LARGEST, 1 << 20]))
scale = st.sampled_from([1, 2, 3, 1 << 20, 1 << 40, 10**15])


def filled(
    draw: st.DrawFn, shape: list[int], entries: st.SearchStrategy[int]
) -> tuple[list[int], list[int]]:
    size = 1
    for axis in shape:
        size *= axis
    return shape, draw(st.lists(entries, min_size=size, max_size=size))


def spaced(draw: st.DrawFn, count: int, bound: int) -> tuple[list[int], list[int]]:
    return [count], sorted(draw(st.permutations(range(bound)))[:count])


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    """A small rational matrix and one random claim of a random kind, shapes right, entries wild."""
    m, n = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    fractions = st.fractions(-1, 1, max_denominator=8)
    rows = [[draw(fractions) for _ in range(n)] for _ in range(m)]
    epsilon = draw(st.sampled_from([Fraction(0), Fraction(1, 1000), Fraction(1, 4), Fraction(2)]))
    draft = vector_cases.matrix_target(rows, epsilon)
    rank = draw(st.integers(1, min(m, n)))
    q = draw(st.integers(rank, 5))
    c = draw(st.integers(rank, n))
    r = draw(st.integers(rank, m))
    params = {name: draw(scale) for name in ("scale", "q_scale", "g_scale", "xy_scale")}
    sparse = [[draw(st.booleans())] * q for _ in range(n)]
    kind = draw(st.sampled_from([kind for kind in minicheck.KINDS if kind != "trivial"]))
    if kind == "factor":
        tensors = {"X": filled(draw, [m, rank], entry), "Y": filled(draw, [rank, n], entry)}
    elif kind == "hilbert-schmidt":
        tensors = {"d": filled(draw, [m], entry), "T": filled(draw, [n, q], entry)}
        tensors["Q"] = ([q, q], _near_identity(draw, q, params["q_scale"]))
    elif kind == "bernstein":
        tensors = {"columns": spaced(draw, c, n), "G": filled(draw, [c, m], entry)}
        tensors["X"] = filled(draw, [c, c - rank], entry)
        tensors["Y"] = filled(draw, [c - rank, c], entry)
    elif kind == "bernstein-rows":
        tensors = {"rows": spaced(draw, r, m), "G": filled(draw, [n, r], entry)}
        tensors["X"] = filled(draw, [r, r - rank], entry)
        tensors["Y"] = filled(draw, [r - rank, r], entry)
    elif kind == "shattering":
        sizes = draw(st.lists(st.integers(1, rank), min_size=1, max_size=3))
        rank = draw(st.sampled_from([rank, min(sum(sizes), min(m, n))]))
        patterns = sum(1 << (size - 1) for size in sizes)
        tensors = {"D": filled(draw, [rank, m], entry), "Y": filled(draw, [patterns, n], entry)}
        tensors["blocks"] = ([len(sizes)], sizes)
        tensors["edges"] = ([0, 2], [])
        if draw(st.booleans()):
            ends = st.integers(-rank - 2, rank + 2)
            edges = draw(st.lists(st.tuples(ends, ends), max_size=2))
            facets = max(1, patterns + draw(st.integers(-1, 4)))
            tensors["D"] = filled(draw, [rank + len(edges), m], entry)
            tensors["edges"] = ([len(edges), 2], [*chain(*edges)])
            tensors["Y"] = filled(draw, [facets, n], entry)
    else:
        T = [value * keep for keep in chain(*sparse) for value in [draw(entry)]]
        s = sum(any(T[j * q : (j + 1) * q]) for j in range(n))
        tensors = {
            "T": ([n, q], T),
            "w": filled(draw, [s, m], weight),
            "v": filled(draw, [s, n], weight),
        }
        bases = [_near_identity(draw, q, params["q_scale"]) for _ in range(s)]
        tensors["Q"] = ([s, q, q], list(chain(*bases)))
    names = minicheck.KINDS[kind].params
    side = "upper" if kind == "factor" else "lower"
    return vector_cases.claim(draft, side, kind, rank, {k: params[k] for k in names}, tensors)


def _near_identity(draw: st.DrawFn, q: int, norm: int) -> list[int]:
    norm = min(norm, LARGEST - 1)
    noise = st.integers(-1, 1)
    return [norm * (i == j) + draw(noise) * (norm > 3) for i in range(q) for j in range(q)]


@settings(max_examples=300, deadline=None)
@given(drafts())
def test_random_witnesses(draft: Draft) -> None:
    verdicts(draft.bytes())


# ---------------------------------------------------------------------------------------------
# Forgeries: claims beyond the truth on matrices whose exact rank is known.


@st.composite
def small_problems(draw: st.DrawFn) -> tuple[list[list[Fraction]], Fraction]:
    m, n = draw(st.sampled_from([(2, 2), (2, 3), (3, 2), (3, 3)]))
    rows = [[Fraction(draw(st.integers(0, 6)), 6) for _ in range(n)] for _ in range(m)]
    return rows, Fraction(draw(st.integers(0, 8)), 8)


@settings(max_examples=60, deadline=None)
@given(small_problems(), st.data())
def test_nothing_beyond_the_truth(
    problem: tuple[list[list[Fraction]], Fraction], data: st.DataObject
) -> None:
    """Good witnesses for one rank, claimed for the next, and random ones."""
    import numpy as np

    from softrank_exact import Target, UserError, certify, witness

    rows, epsilon = problem
    bracket = exact_rank(rows, epsilon)
    target = Target.fractions(rows)
    A = target.float_matrix
    m, n = A.shape
    rank = data.draw(st.integers(1, min(m, n)))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    D, F = rng.standard_normal((rank, m)), rng.standard_normal((n, rank))
    candidates: list[Any] = [
        witness.truncated_svd(A, rank),
        witness.frobenius_tail(A, rank),
        witness.FloatHS(rank, rng.random(m), rng.standard_normal((n, n))),
        witness.FloatFantope(
            rank, rng.standard_normal((n, n)), rng.random((n, m)), 0.1 * rng.random((n, n))
        ),
    ]
    for D in (rng.standard_normal((rank, m)), np.eye(m)[:rank]):
        for sizes in ([rank], [1] * rank):
            values = _sign_values(D @ A, sizes)
            candidates.append(witness.FloatShattering(D, np.array(sizes), values))
    if np.linalg.matrix_rank(A) >= rank:
        candidates.append(witness.truncated_pseudoinverse(A, rank))
    if abs(np.linalg.det(D @ A @ F)) > 1e-6:
        candidates.append(witness.decoded_inverse(A, D, F))
    for candidate in candidates:
        try:
            certificate = certify(target, epsilon, [candidate])
        except UserError:
            continue
        assert certificate.lower is not None
        assert certificate.upper is not None
        assert certificate.lower <= bracket.upper
        assert certificate.upper >= bracket.lower
        verdicts(certificate.to_bytes())


def _sign_values(decoded: Any, sizes: list[int]) -> Any:
    """For every pattern of signs of every block the signs of the combined rows."""
    import numpy as np

    values, row = [], 0
    for size in sizes:
        for k in range(1 << (size - 1)):
            signs = [-1 if i and k >> (i - 1) & 1 else 1 for i in range(size)]
            values.append(np.sign(signs @ decoded[row : row + size]) + 1e-3)
        row += size
    return np.array(values)


# ---------------------------------------------------------------------------------------------
# Tampering: change anything in a closed certificate.

DISTANCES = [Fraction(1), Fraction(3, 4), Fraction(1, 2), Fraction(3, 8), Fraction(0)]


def closed() -> Draft:
    """r = 3 at 7/16 for K_{3/4} (x) K_{1/2}, closed by Bernstein and a factor; HS gives 2."""
    draft = vector_cases.rank_three_lower(vector_cases.matrix_target(vector_cases.ORACLE, "7/16"))
    # A - (3/32) chi chi^T in the basis of the three characters that remain (MATH 9.1).
    characters = [[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 1, -1]]
    X = [character[i] for i in range(4) for character in characters]
    Y = [w * value for w, row in zip((8, 6, 4), characters, strict=True) for value in row]
    tensors = {"X": ([4, 3], X), "Y": ([3, 4], Y)}
    draft = vector_cases.claim(draft, "upper", "factor", 3, {"scale": 32}, tensors)
    return vector_cases.frobenius_lower(draft, 2)


def spectral() -> Draft:
    """r = 4 at 11/64 by Fantope-Bernstein."""
    return vector_cases.fantope_lower(vector_cases.matrix_target(vector_cases.ORACLE, "11/64"), 4)


def true_rank(epsilon: Fraction) -> int:
    return next(k for k, distance in enumerate(DISTANCES) if distance <= epsilon)


def single_changes(base: Draft) -> Iterator[tuple[str, Draft]]:
    base.bytes()  # fills in the hash
    for name, (_, shape, values) in base.tensors.items():
        for index in range(len(values)):
            for delta in (1, -1, 1 << 20):
                draft = base.copy()
                draft.tensors[name][2][index] += delta
                yield f"{name}[{index}] {delta:+d}", draft
        for axis in range(len(shape)):
            draft = base.copy()
            draft.tensors[name][1][axis] += 1
            yield f"{name} axis {axis}", draft
        draft = base.copy()
        draft.tensors[name][1].reverse()
        yield f"{name} transposed", draft
    for index, claim in enumerate(base.meta["claims"]):
        for rank in range(5):
            draft = base.copy()
            draft.meta["claims"][index]["rank"] = rank
            yield f"claim {index} rank {rank}", draft
        for name in claim["params"]:
            for value in ("0x1", "0x3", "0x7", "0x1000000"):
                draft = base.copy()
                draft.meta["claims"][index]["params"][name] = value
                yield f"claim {index} {name} {value}", draft
    for epsilon in ("0x0/0x1", "0x3/0x10", "0x3/0x8", "0x1/0x2", "0x3/0x4", "0x1/0x1"):
        draft = base.copy()
        draft.meta["epsilon"] = epsilon
        yield f"epsilon {epsilon}", draft
    for alpha in ("0x1/0x10", "0x1/0x20", "0x1/0x1000000"):
        draft = base.copy()
        draft.meta["target"]["alpha"] = alpha
        yield f"alpha {alpha}", draft


def test_the_certificates_are_verified() -> None:
    assert verdicts(closed().bytes()) == [("verified", "ok")] * 3
    assert verdicts(spectral().bytes()) == [("verified", "ok")]


@pytest.mark.parametrize("source", [closed, spectral])
def test_single_changes_never_prove_a_falsehood(source: Callable[[], Draft]) -> None:
    """With the target as it is, nothing verified contradicts the closed form (MATH 9.1)."""
    count = 0
    for name, draft in single_changes(source()):
        data = draft.bytes()
        judged = verdicts(data)
        count += 1
        if judged[0][0] == "malformed" or name.startswith("target"):
            continue
        epsilon = Fraction(*(int(part, 16) for part in draft.meta["epsilon"].split("/")))
        rank = true_rank(epsilon)
        for claim, (verdict, _) in zip(draft.meta["claims"], judged, strict=True):
            if verdict == "verified":
                true = claim["rank"] <= rank if claim["side"] == "lower" else claim["rank"] >= rank
                assert true, name
            if verdict == "refuted":
                assert not (
                    claim["rank"] <= rank if claim["side"] == "lower" else claim["rank"] >= rank
                )
    assert count > 300


def test_a_changed_target_is_missed_by_its_hash() -> None:
    for name, draft in single_changes(closed()):
        if name.startswith("target.N["):
            draft.rehash = False
            assert verdicts(draft.bytes()) == [("malformed", "hash")], name


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_byte_mutations(data: st.DataObject) -> None:
    """Flip, cut, insert or overwrite bytes: a clean verdict, never a lie, alike from both."""
    source = data.draw(st.sampled_from([closed, vector_cases.small_qk, vector_cases.masked_logits]))
    content = bytearray(source().bytes())
    start = data.draw(st.integers(0, len(content) - 1))
    action = data.draw(st.sampled_from(["flip", "cut", "insert", "overwrite"]))
    if action == "flip":
        content[start] ^= 1 << data.draw(st.integers(0, 7))
    elif action == "cut":
        del content[start : start + data.draw(st.integers(1, 16))]
    else:
        new = data.draw(st.binary(min_size=1, max_size=16))
        content[start : start + (len(new) if action == "overwrite" else 0)] = new
    assume(bytes(content) != source().bytes())
    judged = verdicts(bytes(content))
    assert all(code for _, code in judged)
    if source is closed and judged[0][0] != "malformed":
        # The target is intact (hash), so the closed form decides what may be verified.
        document = audit_bytes(bytes(content)).document
        assert document is not None
        rank = true_rank(document.epsilon)
        for claim, (verdict, _) in zip(document.claims, judged, strict=True):
            if verdict == "verified" and document.target.den == 32:
                assert claim.rank <= rank if claim.side == "lower" else claim.rank >= rank


@pytest.mark.parametrize("name", ["bracket", "fantope", "qk-bias", "logits-masked"])
def test_every_prefix_is_malformed(name: str) -> None:
    data = next(case.data for case in vector_cases.judged_cases() if case.name == name)
    for length in range(0, len(data), 7):
        assert verdicts(data[:length])[0][0] == "malformed"
