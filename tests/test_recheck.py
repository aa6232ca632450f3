"""Re-checking others' results: verdicts, ledgers, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_devices import DEVICES  # noqa: E402

from float_bridge.batch_targets import (  # noqa: E402
    float_logits,
    matrix_targets,
    softmax_targets,
)
from float_bridge.cells import as_cells  # noqa: E402
from float_bridge.evidence import (  # noqa: E402
    BernsteinEvidence,
    FactorEvidence,
    TailEvidence,
    _integer_product,
    _integers,
    _shifts,
    lower_evidence,
    upper_evidence,
)
from float_bridge.products import DeviceLimbs  # noqa: E402
from float_bridge.recheck import recheck  # noqa: E402
from softrank_exact import Target  # noqa: E402
from softrank_exact.certificate import audit_file  # noqa: E402
from softrank_exact.errors import UserError  # noqa: E402
from softrank_exact.kernel.check import Bernstein, Factor, HilbertSchmidt, Question, check  # noqa: E402
from softrank_exact.kernel.limbs import Limbs  # noqa: E402

pytestmark = pytest.mark.bridge
EPS = Fraction(1, 4)


def random_logits(*shape: int, spread: float = 3.0) -> Any:
    generator = torch.Generator().manual_seed(sum(shape))
    return spread * torch.randn(*shape, generator=generator, dtype=torch.float64)


class Example:
    """A batch [2, 3] of 16 x 20 heads with true claims and the evidence for them."""

    def __init__(self) -> None:
        self.H = random_logits(2, 3, 16, 20)
        self.A = torch.softmax(self.H, dim=-1)
        self.U, self.S, self.Vh = torch.linalg.svd(self.A, full_matrices=False)
        flat = self.A.reshape(6, 16, 20)
        self.upper = np.array([self._upper(a) for a in flat]).reshape(2, 3)
        self.lower = np.array([self._lower(a) for a in flat]).reshape(2, 3)

    @staticmethod
    def _upper(A: Any) -> int:
        U, S, Vh = torch.linalg.svd(A)
        errors = [float((A - U[:, :k] * S[:k] @ Vh[:k]).abs().sum(dim=-1).max()) for k in range(17)]
        return next(k for k, error in enumerate(errors) if error < 0.2499)

    @staticmethod
    def _lower(A: Any) -> int:
        S = torch.linalg.svdvals(A)
        return max(k for k in range(1, 17) if float((S[k - 1 :] ** 2).sum()) / 16 > 0.2501**2)

    @property
    def svd(self) -> dict[str, Any]:
        return {"U": self.U, "S": self.S, "Vh": self.Vh}

    def factors(self) -> dict[str, Any]:
        k = int(self.upper.max())
        kept = torch.arange(k) < torch.from_numpy(self.upper)[..., None]
        X = self.U[..., :k] * (self.S[..., :k] * kept)[..., None, :]
        return {"X": X, "Y": self.Vh[..., :k, :]}


@pytest.fixture(scope="module")
def example() -> Example:
    return Example()


# --- the first pass computes the kernel's fractions ----------------------------------------------


def evidence_cases(example: Example) -> Any:
    A = as_cells(example.A, "A").values
    given = {
        "X": as_cells(example.factors()["X"], "X").values,
        "Y": as_cells(example.factors()["Y"], "Y").values,
        "G": torch.linalg.pinv(A),
    }
    factor = upper_evidence(given, [0] * 6)
    bernstein = lower_evidence(given, A, [2] * 6)
    return factor, bernstein, TailEvidence([3] * 6)


@pytest.mark.parametrize("device", DEVICES)
def test_the_first_pass_finds_the_kernels_fractions(example: Example, device: str) -> None:
    on = torch.device(device)
    targets = matrix_targets(as_cells(example.A, "A"), EPS, on)
    assert targets is not None
    factor, bernstein, tail = evidence_cases(example)
    for i in range(6):
        N = Limbs.of(targets.N[i].cpu().numpy())
        question = Question(N, targets.den, EPS, targets.alpha(i))
        for evidence in (factor, bernstein, tail):
            moved = type(evidence)(
                *(v.to(on) if isinstance(v, torch.Tensor) else v for v in vars(evidence).values())
            )
            found = moved.findings(targets, EPS, DeviceLimbs.__matmul__)[i]
            finding = check(question, *kernel_witness(moved, i, targets))
            assert found.found == finding.found


def kernel_witness(evidence: Any, i: int, targets: Any) -> tuple[int, Any]:
    """The same integers as a witness of the kernel, at a rank that they fit."""

    def whole(limbs: DeviceLimbs) -> np.ndarray:
        return limbs.integers()[i].astype(np.int64)

    if isinstance(evidence, TailEvidence):
        from float_bridge.classical import eigenvectors

        values = (targets.N.to(torch.float64) / targets.den).mT
        Q = torch.round(eigenvectors(values) * 2.0**20).to(torch.int64)[i].cpu().numpy()
        n, m = values.shape[-2:]
        # The kernel's witness works on columns: this is the tail of the transpose, in disguise.
        return evidence.ranks[i], _Transposed(np.ones(n, dtype=np.int64), Q, m)
    X, Y, scales = _integer_product(evidence.X, evidence.Y)
    if isinstance(evidence, FactorEvidence):
        return X.shape[-1], Factor(whole(X), whole(Y), scales[i])
    assert isinstance(evidence, BernsteinEvidence)
    shifts = _shifts(evidence.G)
    G = whole(_integers(evidence.G, shifts))
    c = X.shape[-2]
    witness = Bernstein(np.arange(c), G, whole(X), whole(Y), 1 << shifts[i], scales[i])
    return c - X.shape[-1], witness


class _Transposed:
    """The kernel's Hilbert-Schmidt check on N^T: singular values do not see the difference."""

    shapes: ClassVar[Any] = {}
    scales: ClassVar[Any] = ()

    def __init__(self, d: np.ndarray, Q: np.ndarray, m: int) -> None:
        self.d, self.Q, self.m = d, Q, m

    def relations(self, axes: Any) -> bool:
        return True

    def values(self, axes: Any) -> None:
        pass

    def judge(self, question: Question, rank: int) -> Any:
        flipped = Question(question.N.T, question.den, question.epsilon, question.alpha)
        T = np.eye(self.m, dtype=np.int64)
        witness = HilbertSchmidt(self.d, T, self.Q, 1 << 20)
        finding = witness.judge(flipped, rank)
        # N^T has n rows, N has m: the same tail over a different weight.
        ratio = Fraction(len(self.d), self.m)
        return type(finding)(finding.code, finding.needed, finding.found * ratio, finding.margin)


# --- verdicts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", [{}, {"fast": True}, {"paranoid": True}])
def test_true_claims_with_evidence_are_verified(
    example: Example, mode: dict[str, bool], device: str
) -> None:
    tensors = {"attention": example.A, **example.svd}
    claims = {"lower": example.lower, "upper": example.upper}
    result = recheck(tensors, EPS, **claims, effort=None, device=device, **mode)
    assert result.verified
    assert [cell.index for cell in result.cells] == [(i, j) for i in range(2) for j in range(3)]
    wanted = "float64 analysis" if mode.get("fast") else "exact integers on"
    for cell in result.cells:
        assert all(method.startswith(wanted) for method in cell.methods)
        assert all(v.finding.margin >= 0 for v in cell.verdicts)
        assert sum(line.bound for line in cell.ledger) <= cell.alpha <= Fraction(1, 10**7)
    if mode.get("paranoid"):
        assert result.paranoia is not None
        assert result.paranoia.products >= 24
        assert 0 < result.paranoia.false_accept < Fraction(1, 10**9)


@pytest.mark.parametrize("kind", ["factors", "B", "svd"])
def test_every_form_of_upper_evidence(example: Example, kind: str) -> None:
    if kind == "factors":
        evidence = example.factors()
    elif kind == "svd":
        evidence = example.svd
    else:
        factors = example.factors()
        evidence = {"B": (factors["X"] @ factors["Y"]).float()}
    tensors = {"attention": example.A, **evidence}
    assert recheck(tensors, EPS, upper=example.upper, effort=None).verified


def test_a_reconstruction_of_the_identity_proves_a_lower_claim() -> None:
    A = torch.softmax(8 * torch.eye(12, dtype=torch.float64), dim=-1)
    tensors = {"attention": A, "G": torch.linalg.inv(A)}
    for fast in (False, True):
        result = recheck(tensors, EPS, lower=12, effort=None, fast=fast)
        assert result.verified
        assert result.cells[0].verdicts[0].kind == "bernstein"


@pytest.mark.parametrize("fast", [False, True])
def test_false_claims_are_rejected_with_the_numbers(example: Example, fast: bool) -> None:
    tensors = {"attention": example.A, **example.svd}
    claims = {"lower": example.lower + 1, "upper": example.upper - 1}
    result = recheck(tensors, EPS, **claims, effort=None, fast=fast)
    assert not result.verified
    for cell in result.cells:
        assert [v.verdict for v in cell.verdicts] == ["rejected", "rejected"]
        assert all(v.finding.margin < 0 for v in cell.verdicts)
        assert cell.methods == ("kernel", "kernel")


def test_a_claim_that_the_other_side_contradicts_is_refuted(example: Example) -> None:
    tensors = {"attention": example.A, **example.svd}
    both = {"lower": example.upper + 1, "upper": example.upper}
    for cell in recheck(tensors, EPS, **both, effort=None).cells:
        assert [v.verdict for v in cell.verdicts] == ["refuted", "verified"]


def test_factors_of_too_high_a_rank_say_so(example: Example) -> None:
    tensors = {"attention": example.A, **example.factors()}
    cell = recheck(tensors, EPS, upper=1, effort=None).cells[0]
    verdict = cell.verdicts[0]
    assert (verdict.verdict, verdict.code) == ("rejected", "rank")
    assert verdict.finding.found == example.upper[0, 0]


def test_trivial_claims_need_no_evidence(example: Example) -> None:
    claims = {"lower": 0, "upper": 16}
    for evidence in ({}, example.svd):
        assert recheck({"attention": example.A, **evidence}, EPS, **claims, effort=None).verified
    logits = {"logits": example.H}
    assert recheck(logits, EPS, lower=1, effort=None).verified
    assert recheck(logits, 1, upper=0, effort=None).verified
    assert not recheck(logits, EPS, lower=2, effort=None).verified


def test_without_evidence_the_claim_is_searched_for() -> None:
    A = torch.softmax(8 * torch.eye(6, dtype=torch.float64), dim=-1)
    result = recheck(A, EPS, lower=6, upper=6)
    assert result.verified
    assert recheck(A, EPS, upper=5).cells[0].verdicts[0].verdict == "refuted"


def test_a_claim_on_the_exact_threshold_is_verified() -> None:
    """Two bits, t = s = 3/4: rank 3 at eps = 9/16 exactly (MATH 9.1); float64 cannot decide it."""
    K = np.array([[7, 1], [1, 7]]) / 8
    A = np.kron(K, K)
    chi = np.array([1.0, -1.0, -1.0, 1.0])
    B = A - 9 / 64 * np.outer(chi, chi)
    X, Y = B[:, :3], np.eye(3, 4)
    Y[:, 3] = np.linalg.solve(B[:3, :3], B[:3, 3])
    tensors = {"attention": A, "X": X, "Y": np.rint(Y)}
    assert np.array_equal(X @ np.rint(Y), B)
    for fast in (False, True):
        assert recheck(tensors, "9/16", upper=3, effort=None, fast=fast).verified
        below = Fraction(9, 16) - Fraction(1, 10**18)
        assert not recheck(tensors, below, upper=3, effort=None, fast=fast).verified


def test_certificates_hold_what_was_verified(example: Example, tmp_path: Any) -> None:
    tensors = {"attention": example.A, **example.svd}
    claims = {"lower": example.lower, "upper": example.upper}
    result = recheck(tensors, EPS, **claims, effort=None, certificates=True)
    for cell, low, high in zip(
        result.cells, example.lower.ravel(), example.upper.ravel(), strict=True
    ):
        assert (cell.certificate.lower, cell.certificate.upper) == (low, high)


# --- objects and ledgers ------------------------------------------------------------------------


def test_logits_and_qk_are_declared_objects_with_proven_slack() -> None:
    Q, K = random_logits(2, 16, 8), random_logits(2, 20, 8, spread=1.0)
    H = Q @ K.mT / 8**0.5
    U, S, Vh = torch.linalg.svd(torch.softmax(H, dim=-1), full_matrices=False)
    evidence = {"U": U, "S": S, "Vh": Vh}
    for tensors, options in (
        ({"logits": H}, {}),
        ({"Q": Q, "K": K}, {"over_sqrt": 8}),
        ({"Q": Q, "K": K, "bias": torch.zeros(2, 16, 20)}, {"over_sqrt": 8}),
    ):
        result = recheck({**tensors, **evidence}, EPS, upper=15, effort=None, **options)
        assert result.verified
        for cell in result.cells:
            sources = [line.source for line in cell.ledger]
            assert "softmax in float64, proven bound" in sources
            assert ("logit products in float64, proven bound" in sources) == ("Q" in tensors)
            assert cell.alpha <= Fraction(1, 10**7)


def pairs(x: Any, y: Any) -> Any:
    return zip(x.tolist(), y.tolist(), strict=True)


def test_the_bound_of_float_logits_holds() -> None:
    Q, K, bias = random_logits(3, 5, 7), random_logits(3, 6, 7), random_logits(3, 5, 6)
    H, error = float_logits(Q, K, 1 / 7**0.5, bias)
    from flint import arb, ctx

    with ctx.workprec(200):
        root = arb(7).sqrt()
        for b in range(3):
            for i in range(5):
                for j in range(6):
                    dot = sum(arb(x) * arb(y) for x, y in pairs(Q[b, i], K[b, j]))
                    truth = dot / root + arb(float(bias[b, i, j]))
                    assert abs(truth - arb(float(H[b, i, j]))) <= arb(float(error[b, i]))


def test_a_float32_attention_matrix_is_not_the_softmax_of_its_logits(tmp_path: Any) -> None:
    """The distance is charged, the budget says so, and the audit rejects a claim of 1e-7."""
    H = random_logits(32, 32, spread=12.0).float()
    A = torch.softmax(H, dim=-1)
    U, S, Vh = torch.linalg.svd(A.double())
    tensors = {"attention": A, "logits": H, "U": U, "S": S, "Vh": Vh}
    (quick,) = recheck(tensors, EPS, upper=31, effort=None).cells
    (cell,) = recheck(tensors, EPS, upper=31, effort=None, certificates=True).cells
    for found in (quick, cell):
        assert found.budget == "over"
        assert found.verdicts[0].verdict == "verified"
        assert any("as stored in float32" in line.source for line in found.ledger)
    assert abs(quick.alpha - cell.alpha) < Fraction(1, 10**8)
    path = tmp_path / "honest.softrank.safetensors"
    cell.certificate.save(path)
    assert all(v.verdict == "verified" for v in audit_file(path).verdicts)
    declared = replace(cell.certificate.declared, alpha=Fraction(1, 10**7))
    liar = tmp_path / "liar.softrank.safetensors"
    replace(cell.certificate, declared=declared).save(liar)
    for verdict in audit_file(liar).verdicts:
        assert (verdict.verdict, verdict.code) == ("rejected", "alpha")
        assert verdict.finding.found > Fraction(1, 10**7)


@pytest.mark.parametrize(
    ("dtype", "budget"),
    [(torch.float64, "within"), (torch.float16, "over"), (torch.bfloat16, "over")],
)
def test_half_precision_weights_are_charged(dtype: Any, budget: str) -> None:
    H = random_logits(16, 16)
    A = torch.softmax(H, dim=-1).to(dtype)
    tensors = {"attention": A, "logits": H, "B": torch.softmax(H, dim=-1)}
    (cell,) = recheck(tensors, EPS, upper=15, effort=None).cells
    assert cell.budget == budget
    worst = float((A.double() - torch.softmax(H, dim=-1)).abs().sum(dim=-1).max())
    stored = next(line.bound for line in cell.ledger if "as stored in" in line.source)
    assert float(stored) == pytest.approx(worst, rel=1e-6, abs=1e-14)
    (tight,) = recheck(tensors, Fraction(1, 10**6), upper=16, effort=None).cells
    assert tight.budget == ("within" if budget == "within" else "unusable")


def test_as_a_matrix_half_precision_weights_are_exact() -> None:
    A = torch.softmax(random_logits(16, 16), dim=-1).to(torch.bfloat16)
    (cell,) = recheck({"attention": A, "B": A}, EPS, upper=15, effort=None).cells
    assert cell.budget == "within"
    assert cell.ledger[0].bound == 0


def test_masked_logits_are_welcome() -> None:
    H = torch.where(torch.tril(torch.ones(12, 12)) > 0, random_logits(12, 12), -torch.inf)
    A = torch.softmax(H, dim=-1)
    assert recheck({"logits": H, "B": A}, EPS, upper=12, effort=None).verified
    assert recheck({"logits": H, "B": A}, EPS, upper=11, effort=None).verified


# --- input --------------------------------------------------------------------------------------


def test_odd_tensors_are_taken_as_they_are(example: Example) -> None:
    strange = example.A.mT.contiguous().mT.clone().requires_grad_()
    assert recheck(strange, EPS, upper=16, effort=None).verified
    assert recheck(list(example.A[0]), EPS, upper=16, effort=None).verified
    assert recheck(example.A.numpy(), EPS, upper=16, effort=None).verified
    assert recheck(np.eye(3, dtype=np.uint8), EPS, upper=3, effort=None).verified


def with_entry(value: float, dtype: Any = torch.float64) -> Any:
    A = torch.full((2, 3, 4), 0.25, dtype=dtype)
    A[1, 2, 0] = value
    return A


nan_row = torch.full((2, 3, 4), 0.25)
nan_row[1, 2] = torch.nan


@pytest.mark.parametrize(
    ("attention", "said"),
    [
        (torch.empty(2, 2, device="meta"), "meta tensor"),
        ([torch.zeros(2, 2), torch.zeros(3, 2)], "mixes the shapes"),
        (nan_row, "fully masked query"),
        (with_entry(np.nan), r"attention\[1, 2, 0\] is nan"),
        (with_entry(np.inf, torch.float16), "overflow of float16"),
        (with_entry(-np.inf), "is -inf"),
        (torch.zeros(2, 2, dtype=torch.complex64), "complex64"),
        (torch.zeros(2, 2, dtype=torch.bool), "bool"),
        (np.array([["a"]]), "dtype"),
        (np.ma.masked_array(np.eye(2), mask=np.eye(2)), "masked array"),
        (torch.zeros(3), "shape"),
        (torch.zeros(0, 3), "shape"),
        (torch.zeros(1, 5000), "4096"),
        (torch.tensor([[(1 << 53) + 1]]), "2\\^53"),
        (np.array([[2**63 + 5]], dtype=np.uint64), "2\\^53"),
        (torch.eye(2).to_sparse(), "sparse"),
        ("text", "is a str"),
    ],
)
def test_bad_attention_is_one_clear_sentence(attention: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        recheck(attention, EPS, upper=1, effort=None)


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"Q": torch.zeros(2, 2)}, "Q is given without K"),
        ({"attention": torch.eye(2), "X": torch.eye(2)}, "X is given without Y"),
        ({"attention": torch.eye(2), "nonsense": torch.eye(2)}, "'nonsense' is not known"),
        ({"X": torch.eye(2), "Y": torch.eye(2)}, "attention is missing"),
        ({"attention": torch.eye(2), "B": torch.eye(3)}, "B has the shape"),
        ({"attention": torch.ones(2, 2, 2), "B": torch.eye(2)}, "leading axes"),
        ({"attention": torch.eye(2), "S": torch.tensor([1.0, -1.0])}, "negative"),
        ({"logits": torch.eye(2), "Q": torch.eye(2), "K": torch.eye(2)}, "both given"),
        ({"logits": torch.full((2, 2), -torch.inf)}, "fully masked row"),
        ({"logits": torch.full((2, 2), torch.inf)}, "inf"),
    ],
)
def test_bad_collections_are_one_clear_sentence(tensors: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        recheck(tensors, EPS, upper=1, effort=None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "there is no claim"),
        ({"upper": 3}, "accepted: integers from 0 to 2"),
        ({"upper": -1}, "accepted: integers"),
        ({"lower": 1.5}, "float64"),
        ({"lower": [1, 2]}, "shape"),
        ({"upper": 1, "device": "nowhere"}, "accepted: cpu or cuda"),
        ({"upper": 1, "fast": True, "paranoid": True}, "paranoid"),
        ({"upper": 1, "over_sqrt": 0}, "over_sqrt"),
    ],
)
def test_bad_claims_and_options_are_one_clear_sentence(options: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        recheck(torch.eye(2), EPS, effort=None, **options)


def test_entries_of_any_size_get_a_verdict() -> None:
    for size in (1e-320, 1e-300, 1e6, 1e300):
        A = size * torch.eye(3, dtype=torch.float64)
        tensors = {"attention": A, "B": A}
        assert recheck(tensors, EPS, upper=3, effort=None).verified
        result = recheck({"attention": A}, EPS, upper=0, effort="fast")
        assert result.verified == (size < 0.25)


def test_fast_leaves_what_its_analysis_does_not_cover_to_the_kernel() -> None:
    wide = torch.tensor([[2.0**24 + 2.0**-25, 0.0], [0.0, 1.0]], dtype=torch.float64)
    for A, B in ((wide, wide), (torch.eye(2), torch.full((2, 2), 1e200, dtype=torch.float64))):
        result = recheck({"attention": A, "B": B}, "1/4", upper=1, effort=None, fast=True)
        assert result.cells[0].methods == ("kernel",)
        assert result.cells[0].verdicts[0].verdict == "rejected"
    one = torch.tensor([[2.0**24 + 2.0**-25], [2.0**24 + 2.0**-25]], dtype=torch.float64)
    for fast in (False, True):
        tensors = {"attention": one.expand(2, 2), "X": one, "Y": torch.ones(1, 2)}
        assert recheck(tensors, "1/4", upper=1, effort=None, fast=fast).verified


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0, 300.0])
def test_alpha_of_a_batch_bounds_the_true_distance(spread: float, device: str) -> None:
    """Against the checker's own enclosure of the distance, for every object."""
    on = torch.device(device)
    Q, K = random_logits(3, 9, 4, spread=spread), random_logits(3, 11, 4, spread=1.0)
    H, error = float_logits(Q, K, 0.5, None)
    mask = torch.rand(3, 9, 11, generator=torch.Generator().manual_seed(0)) < 0.3
    mask[..., 0] = False
    cells = as_cells(torch.softmax(H, dim=-1).float(), "A")
    declared = {
        "matrix": (matrix_targets(cells, EPS, on), lambda i: Target.matrix(cells.values[i], EPS)),
        "logits": (
            softmax_targets(H.masked_fill(mask, -torch.inf), None, None, EPS, on),
            lambda i: Target.logits(H[i].masked_fill(mask[i], -torch.inf), EPS),
        ),
        "qk": (
            softmax_targets(H, error, None, EPS, on),
            lambda i: Target.qk(Q[i], K[i], EPS, scale=Fraction(1, 2)),
        ),
        "stored": (
            softmax_targets(H, None, cells, EPS, on),
            lambda i: Target.logits(H[i], EPS),
        ),
    }
    for targets, exact in declared.values():
        for i in range(3):
            truth = exact(i).declared
            assert truth.den == targets.den or truth.object == "matrix"
            N = targets.N[i].cpu().numpy()
            same = replace(truth, den=targets.den)
            assert same.distance_bound(N) <= targets.alpha(i) + Fraction(1, 1 << 79)
