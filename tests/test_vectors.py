"""The public conformance vectors: as generated, and judged alike by both checkers."""

from __future__ import annotations

import json

import pytest
import vector_cases

from softrank_exact import minicheck
from softrank_exact.intake.audit import audit_bytes

CASES = vector_cases.all_cases()
BY_NAME = {case.name: case for case in CASES}


def test_the_folder_is_what_the_cases_say() -> None:
    expected = {f"{case.name}.softrank.safetensors": case.data for case in CASES}
    found = {path.name: path.read_bytes() for path in vector_cases.FOLDER.glob("*.safetensors")}
    assert found == expected, "run `python tests/vector_cases.py`"
    assert (vector_cases.FOLDER / "index.json").read_text() == vector_cases.index(CASES)


def test_names_are_unique_and_controls_are_accepted() -> None:
    assert len(BY_NAME) == len(CASES) > 40
    for case in CASES:
        verified = all(verdict[0] == "verified" for verdict in case.verdicts)
        if not verified:
            assert case.control is not None, case.name
            assert all(v[0] == "verified" for v in BY_NAME[case.control].verdicts), case.name


def test_every_reason_code_has_a_vector() -> None:
    text = (vector_cases.FOLDER.parent / "docs" / "certificate-format.md").read_text()
    codes = {verdict[1] for case in CASES for verdict in case.verdicts}
    assert codes == {
        *("ok", "margin", "basis", "alpha"),
        *("size", "json", "layout", "version", "field", "unknown-kind", "tensors", "hash", "value"),
    }
    assert all(f"`{code}`" in text for code in codes)


def test_the_index_fits_its_schema() -> None:
    schema = json.loads((vector_cases.FOLDER / "schema.json").read_text())
    rows = json.loads((vector_cases.FOLDER / "index.json").read_text())["vectors"]
    required = set(schema["properties"]["vectors"]["items"]["required"])
    assert all(set(row) == required for row in rows)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_exact_checker(case: vector_cases.Case) -> None:
    audit = audit_bytes(case.data)
    if audit.malformed:
        assert case.verdicts == [["malformed", audit.malformed[0]]]
    else:
        assert case.verdicts == [[verdict.verdict, verdict.code] for verdict in audit.verdicts]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_second_checker(case: vector_cases.Case) -> None:
    found = [[verdict.verdict, verdict.code] for verdict in minicheck.check_bytes(case.data)]
    assert found == case.verdicts


@pytest.mark.parametrize("case", vector_cases.judged_cases(), ids=lambda case: case.name)
def test_both_checkers_find_the_same_numbers(case: vector_cases.Case) -> None:
    ours = [verdict.finding for verdict in audit_bytes(case.data).verdicts]
    theirs = minicheck.check_bytes(case.data)
    for mine, other in zip(ours, theirs, strict=True):
        if mine.code != "alpha":
            assert (mine.needed, mine.found, mine.margin) == (
                other.needed,
                other.found,
                other.margin,
            )
