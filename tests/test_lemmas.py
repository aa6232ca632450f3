"""The lemmas of proofs_checks: each holds, each mutant is refuted, and the report tells."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path

import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.rational import inverse, norm, rank
from proofs_checks import strategies
from proofs_checks.catalogue import select
from proofs_checks.clauses import Undecided, at_most, equal, less
from proofs_checks.examine import examine
from proofs_checks.lemma import Lemma, Mutant, lemma
from softrank_exact.cli import main
from softrank_exact.errors import UserError

LEMMAS = select()
EXAMPLES = 15


@pytest.mark.parametrize("statement", LEMMAS, ids=[x.id for x in LEMMAS])
def test_the_lemma_holds_and_its_mutants_are_refuted(statement: Lemma) -> None:
    report = examine(statement, EXAMPLES)
    assert report.search.counterexample is None, report.search.counterexample
    assert report.holds, "no example satisfies the hypotheses"
    assert not report.survivors


def test_every_section_of_the_theory_is_there() -> None:
    assert {x.number.split(".")[0] for x in LEMMAS} == {*"12345789"}
    assert len({x.id for x in LEMMAS}) == len(LEMMAS)


def _squares(limit: int, mutants: dict) -> Lemma:
    def check(x, *, bound=limit):
        yield at_most("x^2 <= bound", x * x, bound)

    found = tuple(Mutant(name, changes) for name, changes in mutants.items())
    integers = st.tuples(st.integers(-3, 3))
    return Lemma("0-squares", "squares are small", "x^2", "none", integers, check, found)


def test_a_surviving_mutant_fails_the_lemma() -> None:
    report = examine(_squares(9, {"a weaker bound": {"bound": 10}, "a wrong one": {"bound": 8}}))
    assert report.holds
    assert not report.passed
    assert report.survivors == ["a weaker bound"]
    assert report.mutants["a wrong one"].counterexample.clause.margin == -1


def test_a_false_lemma_is_refuted_by_its_smallest_counterexample() -> None:
    report = examine(_squares(3, {"a wrong bound": {"bound": 2}}))
    assert not report.holds
    assert report.search.counterexample.case == "(2)"
    assert report.search.worst == -6


def test_a_crash_refutes_nothing() -> None:
    broken = _squares(9, {"not a number": {"bound": "nine"}})
    with pytest.raises(ValueError, match="nine"):
        examine(broken)


def test_a_lemma_about_nothing_does_not_hold() -> None:
    def check(x, *, sign=1):
        if x > 3:
            yield at_most("never", sign, 0)

    mutants = (Mutant("flipped", {"sign": -1}),)
    empty = Lemma(
        "0-empty", "says nothing", "", "x > 3", st.tuples(st.integers(0, 3)), check, mutants
    )
    assert not examine(empty).holds


def test_the_same_lemma_sees_the_same_examples() -> None:
    statement = select("3.5")[0]
    first, second = examine(statement, 10), examine(statement, 10)
    assert first.search == second.search
    assert first.mutants == second.mutants


@pytest.mark.parametrize(
    ("says", "mutants"),
    [
        ("", {"m": {"bound": 1}}),
        ("words", {}),
        ("words", {"m": {"unknown": 1}}),
        ("words", {"m": {}}),
    ],
)
def test_a_lemma_needs_words_and_mutants_of_its_formula(says: str, mutants: dict) -> None:
    def check(x, *, bound=0):
        yield at_most("", x, bound)

    check.__doc__ = says
    with pytest.raises(ValueError, match="0-incomplete"):
        lemma("0-incomplete", "", given=st.tuples(st.integers()), mutants=mutants)(check)


def test_clauses_are_exact_for_rationals() -> None:
    third = Fraction(1, 3)
    assert at_most("", third, third).holds
    assert not less("", third, third).holds
    assert at_most("", third, Fraction(1, 4)).margin == Fraction(-1, 12)
    assert not equal("", third, third + Fraction(1, 10**40)).holds


def test_wide_balls_decide_nothing() -> None:
    wide = arb(1, 1)
    for clause in (at_most, less, equal):
        with pytest.raises(Undecided):
            clause("", wide, 1)
    assert less("", arb(0, "1e-9"), 1).holds
    assert not at_most("", arb(2, "1e-9"), 1).holds


def test_selection() -> None:
    assert [x.id for x in select("3.5")] == ["3.5-contrast"]
    assert {x.number for x in select("3.4")} == {"3.4"}
    with pytest.raises(UserError, match=r"no lemma is called '3\.99'"):
        select("3.99")


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lemmas", "list", "--only", "3.5"]) == 0
    assert capsys.readouterr().out.startswith("3.5-contrast  Half the largest rectangular contrast")


def test_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lemmas", "check", "--only", "3.5", "--examples", "20"]) == 0
    out = capsys.readouterr().out
    assert "2 of 2" in out
    assert "1 of 1 lemmas hold and refute their mutants" in out
    assert "refuted by contrast / 2, at ([[" in out


def test_check_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lemmas", "check", "--only", "3.5", "--examples", "20", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["passed"] is True
    assert entry["source"] == "MATH 3.5"
    assert entry["worst_margin"] == 0
    assert all(mutant["refuted_by"]["clause"] for mutant in entry["mutants"])


def test_an_unknown_lemma_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lemmas", "check", "--only", "0.0"]) == 2
    assert "no lemma is called '0.0'" in capsys.readouterr().err


# The public strategies


@given(strategies.stochastic_matrices(strategies.shapes(), dyadic=True))
def test_dyadic_matrices_are_stochastic_and_stored_by_floats(A) -> None:
    assert (A.sum(axis=1) == 1).all()
    assert (A >= 0).all()
    assert all(Fraction(float(a)) == a for a in A.flat)


@given(strategies.dyadics(2, 8))
def test_dyadics(x) -> None:
    assert abs(x) <= 2
    assert (x * 256).denominator == 1


@given(st.one_of(strategies.degenerate_matrices(), strategies.stochastic_matrices((2, 3), True)))
def test_stochastic_matrices(A) -> None:
    assert (A.sum(axis=1) == 1).all()
    assert (A >= 0).all()


@given(strategies.gauges(2), strategies.orthogonal_gauges(3), strategies.diagonal_gauges(2, 4))
def test_gauges(G, R, D) -> None:
    assert rank(G) == 2
    assert (inverse(R) @ R == R @ R.T).all()
    assert max(D.diagonal()) <= 4 * min(D.diagonal())


@given(strategies.low_rank_plus_error())
def test_low_rank_plus_error(case) -> None:
    B, E, epsilon, k = case
    assert rank(B) <= k < min(B.shape)
    assert norm(E) == epsilon > 0


@settings(max_examples=30)
@given(strategies.on_a_threshold())
def test_thresholds_are_attained(case) -> None:
    A, epsilon, k = case
    if k == len(A) - 1 and rank(A) == len(A) == A.shape[1]:
        assert epsilon == 1 / norm(inverse(A))


@given(st.just(Fraction(3, 4)).flatmap(strategies.tolerances_near))
def test_tolerances_near_a_threshold(epsilon) -> None:
    assert 0 <= epsilon <= Fraction(9, 8)


def test_strategies_shrink_to_simple_matrices() -> None:
    from hypothesis import find

    A = find(strategies.stochastic_matrices(strategies.shapes()), lambda A: rank(A) > 1)
    assert A.tolist() == [[0, 1], [1, 0]] or A.tolist() == [[1, 0], [0, 1]]


def test_the_examples_of_the_page_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proofs_checks.lemma.REGISTRY", {})
    page = (Path(__file__).parents[1] / "docs" / "lemmas.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        exec(example, {})


def test_the_page_names_every_strategy() -> None:
    page = (Path(__file__).parents[1] / "docs" / "lemmas.md").read_text()
    public = [
        name
        for name, value in vars(strategies).items()
        if callable(value) and getattr(value, "__module__", "") == strategies.__name__
    ]
    missing = [n for n in public if not n.startswith("_") and f"`{n}(" not in page]
    assert not missing
