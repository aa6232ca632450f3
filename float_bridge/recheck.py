"""Re-check someone else's torch results: attention tensors, claimed brackets, whatever proves them.

Many cells are judged at once in a first pass (exact integers on a device, or the float64 analysis
of ``classical``). A cell with a claim that the first pass leaves open goes to the kernel with an
exact target, and a claim without evidence to our own search. Only a proof is ``verified``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, prod
from typing import Any, Literal

import numpy as np
import torch

from softrank_exact import Certificate, Target, display
from softrank_exact.certifying import assemble, judge_witnesses, trivial_claims
from softrank_exact.errors import UserError
from softrank_exact.intake.audit import Verdict
from softrank_exact.intake.document import Claim
from softrank_exact.intake.target import nearest_integers
from softrank_exact.kernel.check import Finding
from softrank_exact.rounding import INT32
from softrank_exact.scalars import parse_epsilon
from softrank_exact.targets import GRID, ROOM, Contribution, Number
from softrank_exact.witness import FloatFactor, FloatWitness

from .batch_targets import BatchTargets, float_logits, matrix_targets, softmax_targets
from .cells import Cells, as_cells, index_of
from .evidence import Evidence, lower_evidence, upper_evidence
from .products import DeviceLimbs, Paranoia, check_device

OBJECT_TENSORS = ("attention", "logits", "Q", "K", "bias")
WITNESS_TENSORS = ("X", "Y", "B", "G", "U", "S", "Vh")
# Cells judged at once: so many that a chunk of 128 x 128 cells stays in a CPU's cache.
CPU_CHUNK = 8
DEVICE_CHUNK = 256
Effort = Literal["fast", "thorough"]


@dataclass(frozen=True)
class CellReport:
    """What is proven about the claims on one cell.

    ``index``: its leading indices; ``ledger`` sums to ``alpha`` at most; ``verdicts``: one for each
    claim, with ``methods`` saying what decided it; ``certificate``: if asked for.
    """

    index: tuple[int, ...]
    object: str
    shape: tuple[int, int]
    epsilon: Fraction
    alpha: Fraction
    ledger: tuple[Contribution, ...]
    verdicts: tuple[Verdict, ...]
    methods: tuple[str, ...]
    certificate: Certificate | None = None

    @property
    def budget(self) -> str:
        """alpha against 1e-7: "within", "over" (sound, accounted) or "unusable"."""
        if self.alpha > 0 and not self.alpha < self.epsilon:
            return "unusable"
        return "within" if self.alpha <= Fraction(1, 10**7) else "over"

    def as_json(self) -> dict[str, Any]:
        """Fractions as "p/q"."""
        return {
            "index": list(self.index),
            "object": self.object,
            "shape": list(self.shape),
            "epsilon": display.ratio(self.epsilon),
            "alpha": display.ratio(self.alpha),
            "budget": self.budget,
            "ledger": {line.source: display.ratio(line.bound) for line in self.ledger},
            "claims": [
                {**display.claim_json(verdict), "method": method}
                for verdict, method in zip(self.verdicts, self.methods, strict=True)
            ],
        }


@dataclass(frozen=True)
class Recheck:
    """All cells in order, the device of the first pass, and the record of ``paranoid``."""

    cells: tuple[CellReport, ...]
    device: str
    paranoia: Paranoia | None

    @property
    def verified(self) -> bool:
        """Whether every claim on every cell is verified."""
        return all(v.verdict == "verified" for cell in self.cells for v in cell.verdicts)


def recheck(
    tensors: Any,
    eps: Number,
    lower: Any = None,
    upper: Any = None,
    *,
    scale: Number = 1,
    over_sqrt: int = 1,
    effort: Effort | None = "fast",
    fast: bool = False,
    device: str = "cpu",
    paranoid: bool = False,
    certificates: bool = False,
    on_cell: Callable[[int], None] | None = None,
    called: Callable[[str], str] = str,
) -> Recheck:
    """Re-check claims ``lower <= r_eps <= upper`` on every cell of a batch.

    ``tensors``: attention weights [..., m, n], or a mapping with ``attention``; or ``logits``
    [..., m, n]; or ``Q`` [..., m, d], ``K`` [..., n, d] and maybe ``bias`` [..., m, n] (logits are
    scale / sqrt(over_sqrt) Q K^T + bias). Attention weights beside logits or Q, K are the working
    matrix, and what separates them from the softmax is charged. Evidence, in the same mapping:
    factors ``X`` [..., m, k], ``Y`` [..., k, n]; a reconstruction ``B`` [..., m, n]; a
    decomposition ``U``, ``S``, ``Vh``; for lower claims ``G`` [..., n, m], G A near the identity
    (MATH 5.3), or singular values ``S`` (their tail, recomputed, 5.2). Any real dtype, any device.

    ``lower``, ``upper``: claimed ranks, one for all cells or [...]; None: no such claim. A claim
    without evidence is searched for with ``effort`` (None: not at all). ``fast``: the first pass by
    float64 error analysis instead of exact integers. ``paranoid``: every exact product is verified
    modulo random primes. ``on_cell`` is called with the number of cells done. ``called``: what
    messages call a tensor or claim of a given name, such as its file and name.
    Raises ``UserError`` for tensors, claims or a device that cannot be used.
    """
    job = _Job.read(
        tensors, parse_epsilon(eps), lower, upper, parse_epsilon(scale, "scale"), over_sqrt, called
    )
    if fast and paranoid:
        raise UserError(
            "paranoid verifies exact products and fast makes none; accepted: one of them"
        )
    paranoia = Paranoia() if paranoid else None
    name = check_device(device)
    first = _FirstPass(torch.device(device), fast, paranoia, name)
    reports: list[CellReport] = []
    chunk = CPU_CHUNK if first.device.type == "cpu" else DEVICE_CHUNK
    for start in range(0, job.count, chunk):
        part = job.part(start, min(start + chunk, job.count))
        proven = first.run(part)
        for i in range(part.count):
            index = index_of(start + i, job.batch)
            report = None if certificates else proven.report(part, i, index)
            reports.append(report or _settle(part, proven, i, index, effort, certificates))
            if on_cell is not None:
                on_cell(len(reports))
    return Recheck(tuple(reports), first.name, paranoia)


# --- the job ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    """Validated tensors, [b, ., .] each, and claims for b cells."""

    object: str
    tensors: Mapping[str, Cells]
    batch: tuple[int, ...]
    epsilon: Fraction
    claims: Mapping[str, list[int]]
    scale: Fraction
    over_sqrt: int

    @classmethod
    def read(
        cls,
        given: Any,
        eps: Fraction,
        lower: Any,
        upper: Any,
        scale: Fraction,
        over_sqrt: int,
        called: Callable[[str], str],
    ) -> _Job:
        named = given if isinstance(given, Mapping) else {"attention": given}
        known = (*OBJECT_TENSORS, *WITNESS_TENSORS)
        unknown = sorted(set(named) - set(known))
        if unknown:
            raise UserError(
                f"{called(repr(unknown[0]))} is not known; accepted: {', '.join(known)}"
            )
        _require_pairs(named, called)
        cells = {name: _cells(value, name, called(name)) for name, value in named.items()}
        kind = "qk" if "Q" in cells else "logits" if "logits" in cells else "matrix"
        if kind == "matrix" and "attention" not in cells:
            raise UserError(
                f"{called('attention')} is missing; accepted: attention, logits, or Q and K"
            )
        if not over_sqrt > 0:
            raise UserError(f"over_sqrt is {over_sqrt}; accepted: a positive integer")
        batch = next(iter(cells.values())).batch
        job = cls(kind, cells, batch, eps, {}, scale, over_sqrt)
        job._require_shapes(called)
        ranks = {"lower": lower, "upper": upper}
        claims = {s: job._ranks(r, called(s)) for s, r in ranks.items() if r is not None}
        if not claims:
            raise UserError("there is no claim; accepted: lower, upper or both")
        return replace(job, claims=claims)

    @property
    def count(self) -> int:
        return prod(self.batch)

    @property
    def shape(self) -> tuple[int, int]:
        if "Q" in self.tensors:
            return self._axes("Q")[0], self._axes("K")[0]
        return self._axes("logits" if "logits" in self.tensors else "attention")

    def part(self, start: int, stop: int) -> _Job:
        """The cells start..stop - 1, with one batch axis."""
        tensors = {
            name: replace(cells, values=cells.values[start:stop], batch=(stop - start,))
            for name, cells in self.tensors.items()
        }
        claims = {side: ranks[start:stop] for side, ranks in self.claims.items()}
        return replace(self, tensors=tensors, batch=(stop - start,), claims=claims)

    def batch_targets(self, device: torch.device) -> BatchTargets | None:
        if self.object == "matrix":
            return matrix_targets(self.tensors["attention"], self.epsilon, device)
        logits, error = self._float_logits()
        return softmax_targets(logits, error, self.tensors.get("attention"), self.epsilon, device)

    def float_matrix(self) -> torch.Tensor:
        """The matrices approximately, [b, m, n] float64, to make witnesses of."""
        if "attention" in self.tensors:
            return self.tensors["attention"].values
        return torch.softmax(self._float_logits()[0], dim=-1)

    def _float_logits(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self.object == "logits":
            return self.tensors["logits"].values, None
        factor = float(self.scale) / float(self.over_sqrt) ** 0.5
        bias = self.tensors["bias"].values if "bias" in self.tensors else None
        return float_logits(self.tensors["Q"].values, self.tensors["K"].values, factor, bias)

    def target(self, cell: int) -> Target:
        """The cell's exact target, by ball arithmetic."""
        arrays = {name: cells.values[cell].numpy() for name, cells in self.tensors.items()}
        if self.object == "matrix":
            return Target.matrix(arrays["attention"], self.epsilon)
        if self.object == "logits":
            target = Target.logits(arrays["logits"], self.epsilon)
        else:
            bias = arrays.get("bias")
            target = Target.qk(
                arrays["Q"], arrays["K"], self.epsilon, self.scale, self.over_sqrt, bias
            )
        if "attention" not in arrays:
            return target
        return _with_stored_weights(target, arrays["attention"], self.tensors["attention"].dtype)

    def _axes(self, name: str) -> tuple[int, int]:
        m, n = self.tensors[name].values.shape[-2:]
        return m, n

    def _require_shapes(self, called: Callable[[str], str]) -> None:
        m, n = self.shape
        k = self._axes("X")[1] if "X" in self.tensors else 0
        d = self._axes("Q")[1] if "Q" in self.tensors else 0
        s = self._axes("U")[1] if "U" in self.tensors else 0
        expected = {
            "attention": (m, n),
            "logits": (m, n),
            "Q": (m, d),
            "K": (n, d),
            "bias": (m, n),
            "X": (m, k),
            "Y": (k, n),
            "B": (m, n),
            "G": (n, m),
            "U": (m, s),
            "S": (1, min(m, n)),
            "Vh": (self._axes("Vh")[0] if "Vh" in self.tensors else 0, n),
        }
        for name, cells in self.tensors.items():
            if cells.batch != self.batch:
                raise UserError(
                    f"{called(name)} has the leading axes {cells.batch}; "
                    f"accepted: {self.batch}, as others"
                )
            if self._axes(name) != expected[name]:
                raise UserError(
                    f"{called(name)} has the shape {self._axes(name)} a cell; "
                    f"accepted: {expected[name]}"
                )

    def _ranks(self, given: Any, name: str) -> list[int]:
        ranks = np.asarray(given)
        most = min(self.shape)
        several = f", one for all cells or one per cell {list(self.batch)}" if self.batch else ""
        accepted = f"integers from 0 to {most}{several}"
        if ranks.dtype.kind not in "iu" or ranks.shape not in ((), self.batch):
            raise UserError(
                f"{name} has dtype {ranks.dtype} and shape {ranks.shape}; accepted: {accepted}"
            )
        values: list[int] = np.broadcast_to(ranks, self.batch).ravel().tolist()
        bad = [value for value in values if not 0 <= value <= most]
        if bad:
            raise UserError(f"{name} is {bad[0]}; accepted: {accepted}")
        return values


def _require_pairs(named: Mapping[str, Any], called: Callable[[str], str]) -> None:
    for name, partners in {"Q": "K", "K": "Q", "X": "Y", "Y": "X", "U": "S", "Vh": "U"}.items():
        if name in named and partners not in named:
            raise UserError(f"{called(name)} is given without {partners}; accepted: both")
    if "logits" in named and "Q" in named:
        raise UserError(
            f"{called('logits')} and Q, K are both given; accepted: one declared object"
        )


def _cells(given: Any, name: str, called: str) -> Cells:
    if name != "S":
        return as_cells(given, called, masks=name in ("logits", "bias"))
    values = given if isinstance(given, torch.Tensor) else torch.as_tensor(np.asarray(given))
    cells = as_cells(values[..., None, :], called)
    if not bool((cells.values >= 0).all()):
        raise UserError(f"{called} has a negative entry; accepted: singular values")
    return cells


def _with_stored_weights(target: Target, weights: np.ndarray, dtype: str) -> Target:
    """The same softmax with the stored weights as working matrix; their distance is charged."""
    N = nearest_integers(weights, target.den).astype(np.int64)
    distance = target.declared.distance_bound(N)
    alpha = Fraction(ceil((distance * Fraction((1 << 20) + 1, 1 << 20) + ROOM) * GRID), GRID)
    declared = replace(target.declared, alpha=alpha, tensors={**target.declared.tensors, "N": N})
    ledger = (
        Contribution(f"attention weights as stored in {dtype}, rounded to integers", distance),
        Contribution("room for the checkers' enclosures", alpha - distance),
    )
    return Target(declared, N, ledger)


# --- first pass ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Proven:
    """What the first pass proved: for each side and cell a verified verdict, or None."""

    targets: BatchTargets | None
    evidence: Mapping[str, Evidence | None]
    verdicts: Mapping[str, list[Verdict | None]]
    method: str

    def report(self, job: _Job, cell: int, index: tuple[int, ...]) -> CellReport | None:
        """The cell's report if all its claims are verified."""
        verdicts = [self.verdicts[side][cell] for side in job.claims]
        done = tuple(verdict for verdict in verdicts if verdict is not None)
        if self.targets is None or len(done) < len(verdicts):
            return None
        return CellReport(
            index,
            job.object,
            job.shape,
            job.epsilon,
            self.targets.alpha(cell),
            self.targets.ledgers[cell],
            done,
            (self.method,) * len(done),
        )


@dataclass(frozen=True)
class _FirstPass:
    device: torch.device
    fast: bool
    paranoia: Paranoia | None
    name: str

    def run(self, job: _Job) -> _Proven:
        targets = job.batch_targets(self.device)
        evidence = self._evidence(job, targets)
        verdicts = {
            side: [_trivial(job, side, rank) for rank in job.claims[side]] for side in job.claims
        }
        if targets is not None:
            for side, known in evidence.items():
                if known is not None:
                    judged = self._verdicts(job, targets, side, known)
                    verdicts[side] = [a or b for a, b in zip(verdicts[side], judged, strict=True)]
        method = "float64 analysis" if self.fast else f"exact integers on {self.name}"
        return _Proven(targets, evidence, verdicts, method)

    def _evidence(self, job: _Job, targets: BatchTargets | None) -> dict[str, Evidence | None]:
        given = {
            name: job.tensors[name].values.to(self.device)
            for name in WITNESS_TENSORS
            if name in job.tensors
        }
        if "S" in given:
            given["S"] = given["S"][:, 0]
        found: dict[str, Evidence | None] = {}
        if "upper" in job.claims:
            found["upper"] = upper_evidence(given, job.claims["upper"])
        if "lower" in job.claims:
            found["lower"] = lower_evidence(
                given, job.float_matrix().to(self.device), job.claims["lower"]
            )
        return found

    def _verdicts(
        self, job: _Job, targets: BatchTargets, side: str, evidence: Evidence
    ) -> list[Verdict | None]:
        if self.fast:
            if not (targets.float_exact and evidence.covered()):
                return [None] * job.count
            found = evidence.float_findings(targets, job.epsilon)
        else:
            multiply = DeviceLimbs.__matmul__ if self.paranoia is None else self.paranoia.multiply
            found = evidence.findings(targets, job.epsilon, multiply)
        verdicts: list[Verdict | None] = []
        for i, (finding, rank) in enumerate(zip(found, job.claims[side], strict=True)):
            verdict = None
            if finding is not None and _reaches(side, finding.rank, rank):
                judged = _judge(finding.kind, finding.found, job.epsilon, targets.alpha(i))
                if judged.code == "ok":
                    verdict = Verdict(side, rank, finding.kind, "verified", judged)
            verdicts.append(verdict)
        return verdicts


def _reaches(side: str, proven: int, claimed: int) -> bool:
    return proven <= claimed if side == "upper" else proven >= claimed


def _trivial(job: _Job, side: str, claimed: int) -> Verdict | None:
    """The verdict on a claim that needs no witness (docs/certificate-format.md, "trivial")."""
    softmax, small = job.object != "matrix", job.epsilon < 1
    if side == "upper":
        proven = 0 if softmax and not small else min(job.shape)
        needed, margin = claimed, claimed - proven
    else:
        proven = 1 if softmax and small else 0
        needed, margin = claimed - 1, proven - claimed + 1
    if not _reaches(side, proven, claimed):
        return None
    finding = Finding("ok", Fraction(needed), Fraction(proven), Fraction(margin))
    return Verdict(side, claimed, "trivial", "verified", finding)


def _judge(kind: str, found: Fraction, eps: Fraction, alpha: Fraction) -> Finding:
    """The kernel's acceptance (docs/certificate-format.md, section 4)."""
    if kind == "factor":
        needed, margin = eps - alpha, eps - alpha - found
        ok = margin >= 0
    elif kind == "bernstein":
        needed, margin = Fraction(1), 1 - found
        ok = margin > 0
    else:
        needed, margin = (eps + alpha) ** 2, found - (eps + alpha) ** 2
        ok = margin > 0
    return Finding("ok" if ok else "margin", needed, found, margin)


# --- cell by cell -------------------------------------------------------------------------------


def _settle(
    job: _Job,
    proven: _Proven,
    cell: int,
    index: tuple[int, ...],
    effort: Effort | None,
    certificates: bool,
) -> CellReport:
    """The kernel's verdict on one cell's evidence; our own search where there is none."""
    target = job.target(cell)
    claims: list[Claim] = list(trivial_claims(target, job.epsilon))
    trivial = {claim.side: claim.rank for claim in claims}
    verdicts: dict[str, Verdict] = {}
    open_sides = []
    for side in job.claims:
        claimed, known = job.claims[side][cell], proven.evidence.get(side)
        if _reaches(side, trivial[side], claimed):
            continue
        if known is None:
            open_sides.append(side)
            continue
        verdicts[side], claim = _by_kernel(target, job.epsilon, side, claimed, known, cell)
        claims += [] if claim is None else [claim]
    if open_sides:
        claims += _searched(target, job.epsilon, effort)
    certificate = assemble(target, job.epsilon, claims)
    final, methods = [], []
    for side in job.claims:
        by_rank = _by_rank(certificate, side, job.claims[side][cell])
        final.append(_refuted(verdicts.get(side, by_rank), certificate))
        methods.append("search and kernel" if side in open_sides and effort else "kernel")
    return CellReport(
        index,
        job.object,
        job.shape,
        job.epsilon,
        target.alpha,
        target.ledger,
        tuple(final),
        tuple(methods),
        certificate if certificates else None,
    )


def _by_kernel(
    target: Target, eps: Fraction, side: str, claimed: int, evidence: Evidence, cell: int
) -> tuple[Verdict, Claim | None]:
    witness = evidence.witness(cell, target.float_matrix)
    try:
        (judged,) = judge_witnesses(target, eps, [witness])
    except UserError:
        kind = "factor" if isinstance(witness, FloatFactor) else "bernstein"
        return Verdict(side, claimed, kind, "rejected", _too_large(witness)), None
    claim = judged.claim
    if not _reaches(side, claim.rank, claimed):
        short = Fraction(claimed - claim.rank) * (1 if side == "upper" else -1)
        finding = Finding("rank", Fraction(claimed), Fraction(claim.rank), short)
        return Verdict(side, claimed, claim.kind, "rejected", finding), None
    word = "verified" if judged.verified else "rejected"
    verdict = Verdict(side, claimed, claim.kind, word, judged.finding)
    return verdict, claim if judged.verified else None


def _too_large(witness: FloatWitness) -> Finding:
    """Why a witness has no integer form."""
    arrays = (np.abs(value) for value in vars(witness).values() if isinstance(value, np.ndarray))
    largest = max(Fraction(float(array.max(initial=0.0))) for array in arrays)
    most = Fraction(INT32)
    return Finding("value", most, largest, most - largest)


def _searched(target: Target, eps: Fraction, effort: Effort | None) -> Sequence[Claim]:
    if effort is None:
        return ()
    from .bracket import bracket

    certificate: Certificate = bracket(target, eps, effort=effort).certificate
    return certificate.claims


def _by_rank(certificate: Certificate, side: str, claimed: int) -> Verdict:
    """The verdict on a claim from the best claim proven on its side."""
    best = next(verdict for verdict in certificate.verdicts if verdict.side == side)
    if _reaches(side, best.rank, claimed):
        return Verdict(side, claimed, best.kind, "verified", best.finding)
    short = Fraction(claimed - best.rank) * (1 if side == "upper" else -1)
    finding = Finding("rank", Fraction(claimed), Fraction(best.rank), short)
    return Verdict(side, claimed, best.kind, "rejected", finding)


def _refuted(verdict: Verdict, certificate: Certificate) -> Verdict:
    """A rejected claim that the opposite proof contradicts."""
    lower, upper = certificate.lower, certificate.upper
    if verdict.verdict != "rejected" or lower is None or upper is None:
        return verdict
    false = verdict.rank < lower if verdict.side == "upper" else verdict.rank > upper
    return replace(verdict, verdict="refuted") if false else verdict
