"""Checks that a signal ends, even where native code swallows the exception."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def unbroken() -> Iterator[None]:
    """Leave the block with ``KeyboardInterrupt`` if SIGINT arrived inside it, come what may.

    An exception raised by a signal handler inside a native callback can get lost, and a check that
    went on after it has proven nothing. Outside the main thread Python delivers no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def record(number: int, frame: FrameType | None) -> None:
        received.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, record)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if received:
        raise KeyboardInterrupt
