"""Examining a lemma: it must hold on every example, and every mutant must fall on one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any
from zlib import crc32

import numpy as np
from flint import ctx
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings

from oracles.balls import PRECISION

from .clauses import Clause
from .lemma import EXAMPLES, MUTANT_BUDGET, Lemma, Mutant


@dataclass(frozen=True)
class Counterexample:
    """An example and the clause that is false for it."""

    case: str
    clause: Clause


@dataclass
class Search:
    """What a search for a counterexample saw.

    tried: examples that the statement says something about; worst: the least margin of a clause.
    """

    tried: int = 0
    worst: Fraction | None = None
    counterexample: Counterexample | None = None

    def note(self, case: tuple[Any, ...], clause: Clause) -> None:
        if clause.margin is not None:
            self.worst = clause.margin if self.worst is None else min(self.worst, clause.margin)
        if not clause.holds:
            self.counterexample = Counterexample(shown(case), clause)
            raise _Refuted(clause.says)


class _Refuted(AssertionError):
    """Tells hypothesis that the example refutes the statement."""


@dataclass(frozen=True)
class Report:
    """The outcome for one lemma: its own search, and one for each mutant."""

    lemma: Lemma
    search: Search
    mutants: Mapping[str, Search] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """The lemma says something about some example, and none refutes it."""
        return self.search.tried > 0 and self.search.counterexample is None

    @property
    def survivors(self) -> list[str]:
        """Mutants without a counterexample."""
        return [name for name, search in self.mutants.items() if search.counterexample is None]

    @property
    def passed(self) -> bool:
        """The lemma holds and no mutant survives."""
        return self.holds and not self.survivors


def examine(lemma: Lemma, examples: int = EXAMPLES) -> Report:
    """Try a lemma on ``examples`` examples, each mutant on as many and at least MUTANT_BUDGET.

    The counterexample of a lemma that fails is shrunk; that of a mutant is the first one met. The
    examples depend on the lemma's id alone. Whatever a check raises, ``examine`` raises.
    """
    own = _search(lemma, None, examples, (Phase.generate, Phase.shrink))
    budget = max(examples, MUTANT_BUDGET)
    killed = {m.says: _search(lemma, m, budget, (Phase.generate,)) for m in lemma.mutants}
    return Report(lemma, own, killed)


def _search(
    lemma: Lemma, mutant: Mutant | None, examples: int, phases: tuple[Phase, ...]
) -> Search:
    search = Search()
    formula = mutant.changes if mutant else {}

    @seed(crc32(lemma.id.encode()))
    @settings(
        max_examples=examples,
        phases=phases,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=Verbosity.quiet,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(lemma.given)
    def every(case: tuple[Any, ...]) -> None:
        clauses = lemma.check(*case, **formula)
        for number, clause in enumerate(clauses):
            search.tried += number == 0
            search.note(case, clause)

    with ctx.workprec(PRECISION), suppress(_Refuted):
        every()
    return search


def shown(value: Any) -> str:
    """An example as a person would write it: fractions as p/q, matrices as nested lists."""
    match value:
        case np.ndarray() | list():
            return "[" + ", ".join(shown(entry) for entry in value) + "]"
        case tuple():
            return "(" + ", ".join(shown(entry) for entry in value) + ")"
        case _:
            return str(value)
