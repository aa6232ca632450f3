"""The intrinsic interaction of softmax attention, certified (MATH 3 and 8; docs/interaction.md)."""

from __future__ import annotations

from .exact import Enclosure, ExactMatrix
from .explicit import (
    ExplicitBound,
    explicit_bound,
    explicit_witness,
    polynomial_witness,
    span_witness,
)
from .native import GaugeAudit, Movement, NativeProfile, gauge_audit, gauged, native_profile
from .profile import Profile, ProfilePoint, Retained, ShapeScore, profile
from .residual import Residual, residual, tau
from .size import DualProof, FactorProof, Size, TripleProof, size
from .visible import Rank, VisibleInteraction, of_logits, of_matrix, of_qk, visible

__all__ = [
    "DualProof",
    "Enclosure",
    "ExactMatrix",
    "ExplicitBound",
    "FactorProof",
    "GaugeAudit",
    "Movement",
    "NativeProfile",
    "Profile",
    "ProfilePoint",
    "Rank",
    "Residual",
    "Retained",
    "ShapeScore",
    "Size",
    "TripleProof",
    "VisibleInteraction",
    "explicit_bound",
    "explicit_witness",
    "gauge_audit",
    "gauged",
    "native_profile",
    "of_logits",
    "of_matrix",
    "of_qk",
    "polynomial_witness",
    "profile",
    "residual",
    "size",
    "span_witness",
    "tau",
    "visible",
]
