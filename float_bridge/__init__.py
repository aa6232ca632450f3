"""Floating point: captures heads, searches for witnesses, re-checks batches. Trusted by no one."""

from .bracket import Bracket, bracket

__all__ = ["Bracket", "bracket"]
