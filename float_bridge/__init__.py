"""Floating point: captures heads, searches for witnesses, re-checks batches. Trusted by no one."""

from softrank_exact.captures import Capture, CapturedHead, load_capture

from .bracket import Bracket, bracket
from .capture import capture
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
