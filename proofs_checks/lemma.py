"""What a lemma is, and the registry of all of them.

A lemma is a generator function over one example, with its formula in keyword-only arguments:

    @lemma(
        "3.1-projective-inequality",
        r"\\lVert\\sigma(x)-\\sigma(y)\\rVert_1 \\le 2\\tanh(\\operatorname{osc}(x-y)/4)",
        given=logit_pairs(),
        mutants={"the factor 2 is dropped": {"factor": 1}},
    )
    def projective_inequality(x, y, *, factor=2):
        \"\"\"Two softmax rows differ by at most 2 tanh(osc/4) in l1.\"\"\"
        yield at_most("distance <= bound", l1(softmax(x) - softmax(y)), ...)

The defaults are the true statement. A mutant is the same check with some of them replaced: a wrong
statement, which the same examples must refute by a clause that is false. An exception refutes
nothing: it ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from inspect import Parameter, getdoc, signature
from typing import Any, TypeAlias

from hypothesis.strategies import SearchStrategy

from .clauses import Clause

Check: TypeAlias = Callable[..., Iterator[Clause]]
EXAMPLES = 100
"""Examples for a lemma, unless asked otherwise."""
MUTANT_BUDGET = 300
"""Examples within which a mutant must fall, at least: most fall in the first ten."""


@dataclass(frozen=True)
class Mutant:
    """A wrong variant: ``changes`` replaces keyword-only arguments of the lemma's check."""

    says: str
    changes: Mapping[str, Any]


@dataclass(frozen=True)
class Lemma:
    """A testable statement.

    id: "section.number-name" as in MATH; says: the statement in words; latex: in symbols; assumes:
    the hypotheses, which every example satisfies; given: strategy of the examples, each a tuple
    of the check's positional arguments.
    """

    id: str
    says: str
    latex: str
    assumes: str
    given: SearchStrategy[tuple[Any, ...]]
    check: Check
    mutants: tuple[Mutant, ...]

    @property
    def number(self) -> str:
        """The number of the statement in the theory: "3.1"."""
        return self.id.partition("-")[0]

    @property
    def source(self) -> str:
        """Where the statement and its proof are."""
        return f"MATH {self.number}"


REGISTRY: dict[str, Lemma] = {}


def lemma(
    id: str,
    latex: str,
    *,
    given: SearchStrategy[tuple[Any, ...]],
    mutants: Mapping[str, Mapping[str, Any]],
    assumes: str = "none",
) -> Callable[[Check], Lemma]:
    """Register a check as a lemma; its docstring is the statement in words.

    Raises ``ValueError`` for a second lemma of the same id, a missing statement, no mutant, or a
    mutant that changes no keyword-only argument of the check.
    """

    def register(check: Check) -> Lemma:
        says = getdoc(check)
        if id in REGISTRY or not says or not mutants:
            raise ValueError(f"{id}: a lemma needs its own id, a docstring and a mutant")
        formula = {p.name for p in signature(check).parameters.values() if _is_formula(p)}
        for name, changes in mutants.items():
            if not changes or not changes.keys() <= formula:
                raise ValueError(f"{id}: mutant {name!r} must change some of {sorted(formula)}")
        variants = tuple(Mutant(name, changes) for name, changes in mutants.items())
        REGISTRY[id] = Lemma(id, " ".join(says.split()), latex, assumes, given, check, variants)
        return REGISTRY[id]

    return register


def _is_formula(parameter: Parameter) -> bool:
    return parameter.kind is Parameter.KEYWORD_ONLY
