"""What this machine is, and whether its arithmetic is what the kernel needs."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter

import numpy as np

from .certifying import certify
from .selftest import SelfTestFailure, self_test
from .targets import Target
from .witness import frobenius_tail, truncated_svd

PACKAGES = ("softrank-exact", "numpy", "python-flint", "mpmath", "sympy")
OPTIONAL = ("torch", "transformers", "matplotlib")
SIZE = 128
TEST_SIZE, TEST_COPIES = 32, 16

# In a process of its own: the one that checks never imports torch, whatever state torch is in.
_DEVICES = """
import torch
names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
print(", ".join(["cpu", *names]))
"""


@dataclass(frozen=True)
class Diagnosis:
    """What was found, by name in order of display; whether the exact part can be trusted here."""

    facts: dict[str, str]
    trustworthy: bool


def diagnose() -> Diagnosis:
    """Examine this machine; takes some seconds."""
    found = {
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "platform": platform.platform(),
        "cpu cores": str(os.cpu_count()),
    }
    found |= {name: _installed(name) for name in (*PACKAGES, *OPTIONAL)}
    if found["torch"] != "not installed":
        found["torch devices"] = _devices()
    found["BLAS"] = _blas()
    found["minicheck"] = _minicheck()
    start = perf_counter()
    try:
        self_test(TEST_SIZE, TEST_COPIES)
    except SelfTestFailure as failure:
        return Diagnosis({**found, "self-test": f"FAILED: {failure}"}, trustworthy=False)
    width = TEST_SIZE * TEST_COPIES
    found["self-test"] = (
        f"passed: a {width} x 4096 x {width} product of 42-bit integers is exact "
        f"({perf_counter() - start:.2f} s)"
    )
    found[f"check {SIZE} x {SIZE}"] = _timed_check()
    return Diagnosis(found, trustworthy=True)


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _devices() -> str:
    probe = subprocess.run([sys.executable, "-c", _DEVICES], capture_output=True, text=True)
    if probe.returncode:
        reason = (probe.stderr.strip().splitlines() or ["no message"])[-1]
        return f"torch cannot be imported: {reason}"
    return probe.stdout.strip()


def _blas() -> str:
    """The BLAS that is loaded if threadpoolctl can tell, else the one numpy was built with."""
    if importlib.util.find_spec("threadpoolctl") is not None:
        import threadpoolctl

        loaded = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
        if loaded:
            return "; ".join(
                f"{pool['internal_api']} {pool['version']}, threads: {pool['num_threads']}, "
                f"{pool.get('architecture', 'architecture unknown')}"
                for pool in loaded
            )
    built = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{built['name']} {built['version']} (as numpy was built)"


def _minicheck() -> str:
    spec = importlib.util.find_spec("softrank_exact.minicheck")
    return "present" if spec is not None else "missing: audit --both cannot run"


def _timed_check() -> str:
    """Seconds for both sides of a bracket of a synthetic head, rounding included."""
    logits = np.random.default_rng(0).normal(size=(SIZE, SIZE)) * 3
    A = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    target = Target.matrix(A, "1/4")
    start = perf_counter()
    certify(target, "1/4", [truncated_svd(A, SIZE * 3 // 4), frobenius_tail(A, 2)])
    return f"{perf_counter() - start:.2f} s for an upper and a spectral lower claim"
