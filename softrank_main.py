"""Where the command ``softrank`` starts: Ctrl-C ends it with one line also while it still loads.

No part of softrank_exact, whose import takes tenths of a second before any of its lines can run.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def main() -> int:
    """Load the command line and run it; returns its exit code."""
    # Matrices of heads are small: BLAS threads cost more than they give, and may change last bits.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # else SIGINT is ignored, as for a background job
        signal.signal(signal.SIGINT, _leave)
    from softrank_exact.cli import main as run

    signal.signal(signal.SIGINT, before)
    return run()


def _leave(number: int, frame: FrameType | None) -> None:
    """End the process at once: nothing has begun, and no importing module can swallow this."""
    sys.stderr.write("softrank: interrupted\n")
    sys.stderr.flush()
    os._exit(128 + number)
