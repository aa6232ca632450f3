"""Floating point: captures heads, searches for witnesses, re-checks batches. Trusted by no one."""

from .bracket import Bracket, bracket
from .capture import Capture, CapturedHead, capture, load_capture
from .recheck import Recheck, recheck

__all__ = [
    "Bracket",
    "Capture",
    "CapturedHead",
    "Recheck",
    "bracket",
    "capture",
    "load_capture",
    "recheck",
]
