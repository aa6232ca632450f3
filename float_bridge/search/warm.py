"""Warm starts: claims of a certificate, judged anew, and as float proposals to go on from."""

from __future__ import annotations

import numpy as np

from softrank_exact import Certificate, UserError
from softrank_exact.kernel.check import (
    Bernstein,
    BernsteinRows,
    Factor,
    Fantope,
    HilbertSchmidt,
    Shattering,
    Witness,
)
from softrank_exact.witness import (
    FloatBernstein,
    FloatBernsteinRows,
    FloatFactor,
    FloatFantope,
    FloatHS,
    FloatShattering,
    FloatWitness,
)

from .cell import Cell
from .types import Proposal, Side


def offer_certificate(cell: Cell, certificate: Certificate) -> None:
    """Offer every claim to the cell, whatever it was made for. Raises ``UserError`` on shapes."""
    if certificate.declared.shape != cell.target.shape:
        raise UserError(
            f"warm is about a {certificate.declared.shape} matrix; accepted: {cell.target.shape}"
        )
    for claim in certificate.claims:
        if claim.witness is None:
            continue
        cell.offer_exact(claim.rank, claim.witness)
        side: Side = "upper" if claim.side == "upper" else "lower"
        cell.offer(Proposal(side, claim.rank, as_float(claim.rank, claim.witness)))


def as_float(rank: int, witness: Witness) -> FloatWitness:
    """The float witness that an integer one is a rounding of."""
    match witness:
        case Factor(X, Y, scale):
            return FloatFactor(X / np.sqrt(float(scale)), Y / np.sqrt(float(scale)))
        case HilbertSchmidt():
            return FloatHS(rank, _normalised(witness.d.astype(float) ** 2), _unit(witness.T))
        case Bernstein(columns, G, X, Y, g_scale, xy_scale):
            root = np.sqrt(float(xy_scale))
            return FloatBernstein(columns, G / float(g_scale), X / root, Y / root)
        case BernsteinRows(rows, G, X, Y, g_scale, xy_scale):
            root = np.sqrt(float(xy_scale))
            return FloatBernsteinRows(rows, G / float(g_scale), X / root, Y / root)
        case Fantope():
            return FloatFantope(
                rank, _unit(witness.T), witness.w.astype(float), witness.v.astype(float)
            )
        case Shattering(D, blocks, edges, Y):
            return FloatShattering(D.astype(float), blocks, Y.astype(float), edges)
    raise TypeError(f"no float form of {type(witness).__name__}")


def _normalised(weights: np.ndarray) -> np.ndarray:
    return weights / weights.sum()


def _unit(T: np.ndarray) -> np.ndarray:
    """T scaled so that its longest row has norm one."""
    return T / np.linalg.norm(T.astype(float), axis=1).max()
