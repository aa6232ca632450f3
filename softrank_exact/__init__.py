"""Certified approximation rank of softmax attention: float proposes, exact disposes."""

from __future__ import annotations

from .certificate import Certificate, load_certificate
from .certificate import audit_file as audit
from .certifying import certify
from .errors import UserError
from .targets import Target

__all__ = ["Certificate", "Target", "UserError", "audit", "certify", "load_certificate"]
