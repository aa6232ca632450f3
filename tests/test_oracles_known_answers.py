"""The stored known answers, and the verbs that list, check and regenerate them."""

import dataclasses
import json
import re
from fractions import Fraction

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from oracles import commands, known_answers
from oracles.claims import Claim, Enclosure, Step, arithmetic, plain
from oracles.known_answers import CONTROLS, PATH, canonical, is_stored, regenerate, stored_lines
from softrank_exact import UserError

FRACTION = re.compile(r"-?[0-9]+(/[0-9]+)?")


@pytest.fixture(scope="module")
def claims():
    return [claim for control in CONTROLS for claim in control.claims()]


@pytest.fixture
def stored(claims, monkeypatch):
    """The command line with the claims already computed, so that each test is quick."""
    monkeypatch.setattr(commands, "_computed", lambda controls: claims)
    return CliRunner()


@pytest.fixture
def app():
    root = typer.Typer()
    commands.register(root)
    return root


def test_every_claim_is_proven(claims):
    assert [claim.id for claim in claims if not claim.proven] == []
    assert len({claim.id for claim in claims}) == len(claims) > 90


def test_stored_file_is_reproduced_byte_for_byte(claims):
    assert canonical(claims) == PATH.read_bytes()


def test_ids_begin_with_their_control(claims):
    assert {claim.id.split("/")[0] for claim in claims} == {control.name for control in CONTROLS}
    for control in (CONTROLS[0], CONTROLS[-1]):
        assert {claim.id.split("/")[0] for claim in control.claims()} == {control.name}


def test_file_follows_its_documented_form():
    document = json.loads(PATH.read_text())
    assert document.keys() == {"claims", "format"}
    assert document["format"] == known_answers.FORMAT
    ids = [claim["id"] for claim in document["claims"]]
    assert ids == sorted(ids)
    for claim in document["claims"]:
        assert claim.keys() == {"id", "inputs", "proof", "quantity", "source", "statement", "value"}
        assert claim["source"].startswith("MATH ")
        assert claim["proof"]
        for step in claim["proof"]:
            assert step.keys() == {"kind", "statement", "witness"}
        assert not any(isinstance(leaf, float) for leaf in leaves(claim))


def leaves(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [leaf for entry in value for leaf in leaves(entry)]
    return [value]


def test_witnesses_in_the_file_can_be_rechecked():
    """A reader with fractions alone re-proves every upper claim that shows its factors."""
    checked = 0
    for claim in json.loads(PATH.read_text())["claims"]:
        A, inputs = claim["inputs"].get("matrix"), claim["inputs"]
        for step in claim["proof"]:
            witness = step["witness"]
            shown = step["kind"] == "factor" and isinstance(witness["X"], list)
            if A is None or not shown or "epsilon" not in inputs or "alpha" in inputs:
                continue
            X, Y = (array(witness[name], shape) for name, shape in zip("XY", (1, 0), strict=True))
            error = max(sum(abs(e) for e in row) for row in array(A) - X @ Y)
            assert error <= Fraction(inputs["epsilon"])
            assert X.shape[1] == witness["rank"]
            checked += 1
    assert checked >= 10


def array(rows, empty_axis=1):
    values = np.array([[Fraction(e) for e in row] for row in rows], dtype=object)
    return values if values.size else values.reshape((len(rows), 0) if empty_axis else (0, 0))


def test_plain_forms():
    assert plain(Fraction(3, 6)) == "1/2"
    assert plain(Fraction(4)) == "4"
    assert plain(True) is True
    assert plain(np.int64(3)) == 3
    assert plain(Enclosure(Fraction(1, 3), Fraction(1, 2))) == {"lower": "1/3", "upper": "1/2"}
    assert plain({"a": [np.array([Fraction(1)], dtype=object)]}) == {"a": [["1"]]}
    with pytest.raises(TypeError, match="float"):
        plain(0.5)
    with pytest.raises(TypeError, match="NoneType"):
        plain(None)


def test_a_claim_needs_steps_that_all_hold():
    def claim(*steps):
        return Claim("x/y", "MATH 1", "says", {}, 1, steps)

    good, bad = arithmetic("a", True), arithmetic("b", False)
    assert claim(good).proven
    assert not claim().proven
    assert not claim(good, bad).proven
    assert not claim(Step("arithmetic", "truthy is not true", 1)).proven


def test_regenerate_refuses_what_is_not_proven(claims, tmp_path):
    broken = dataclasses.replace(claims[0], steps=(arithmetic("false", False),))
    path = tmp_path / "known_answers.json"
    with pytest.raises(ValueError, match=claims[0].id):
        regenerate([broken, *claims[1:]], path)
    assert not path.exists()
    regenerate(claims, path)
    assert path.read_bytes() == PATH.read_bytes()


def test_check_succeeds_on_the_stored_file(stored, app):
    result = stored.invoke(app, ["oracles", "check"])
    assert result.exit_code == 0
    assert re.search(r"proven +two-bit/published-sequence +\[4, 3, 2, 1, 3, 1\]", result.stdout)
    assert re.search(r"(\d+) of \1 claims proven; known_answers.json: identical", result.stdout)


def test_check_as_json(stored, app, claims):
    result = stored.invoke(app, ["oracles", "check", "--json"])
    document = json.loads(result.stdout)
    assert document["identical"] is True
    assert len(document["claims"]) == len(claims)
    assert all(entry["proven"] and entry["stored"] for entry in document["claims"])


def test_check_of_one_control(app, monkeypatch, tmp_path):
    check = ["oracles", "check", "--only", "class-gap"]
    result = CliRunner().invoke(app, check)
    assert result.exit_code == 0
    assert re.search(r"(\d+) of \1 claims proven; known_answers.json: identical", result.stdout)
    claims = [line for line in result.stdout.splitlines() if line.startswith("proven")]
    assert claims
    assert all("  class-gap/" in line for line in claims)
    path = tmp_path / "known_answers.json"
    path.write_bytes(PATH.read_bytes().replace(b'"value":"33/32"', b'"value":"33/31"'))
    monkeypatch.setattr(commands, "PATH", path)
    result = CliRunner().invoke(app, check)
    assert (result.exit_code, "DIFFERENT" in result.stdout) == (1, True)


def test_check_of_a_control_that_is_not_there(app):
    result = CliRunner().invoke(app, ["oracles", "check", "--only", "two"])
    assert isinstance(result.exception, UserError)
    assert "--only is two; accepted: class-gap, " in str(result.exception)


def test_check_finds_a_single_changed_byte(stored, app, monkeypatch, tmp_path):
    data = PATH.read_bytes()
    changed = data.replace(b'"value":"33/32"', b'"value":"33/31"')
    assert changed != data
    path = tmp_path / "known_answers.json"
    path.write_bytes(changed)
    monkeypatch.setattr(commands, "PATH", path)
    result = stored.invoke(app, ["oracles", "check"])
    assert result.exit_code == 1
    assert "proven, not as stored  class-gap/row-stochastic-rank-one-error" in result.stdout
    assert result.stdout.count("not as stored") == 1
    assert "DIFFERENT" in result.stdout


def test_check_finds_a_claim_too_many(stored, app, monkeypatch, tmp_path):
    path = tmp_path / "known_answers.json"
    path.write_bytes(PATH.read_bytes() + b"\n")
    monkeypatch.setattr(commands, "PATH", path)
    result = stored.invoke(app, ["oracles", "check"])
    assert result.exit_code == 1
    assert "not as stored" not in result.stdout


def test_check_names_the_step_that_fails(app, claims, monkeypatch):
    broken = dataclasses.replace(claims[0], steps=(arithmetic("one is two", False),))
    monkeypatch.setattr(commands, "_computed", lambda controls: [broken, *claims[1:]])
    result = CliRunner().invoke(app, ["oracles", "check"])
    assert result.exit_code == 1
    assert f"FAILED, not as stored  {broken.id}" in result.stdout
    assert "does not hold: one is two" in result.stdout
    result = CliRunner().invoke(app, ["oracles", "regenerate"])
    assert result.exit_code == 1
    assert result.stdout.startswith("nothing written: not proven")


def test_check_without_the_file(stored, app, monkeypatch, tmp_path):
    monkeypatch.setattr(commands, "PATH", tmp_path / "known_answers.json")
    result = stored.invoke(app, ["oracles", "check"])
    assert isinstance(result.exception, UserError)
    assert "cannot be read" in str(result.exception)


def test_list(app):
    result = CliRunner().invoke(app, ["oracles", "list"])
    assert result.exit_code == 0
    assert "two-bit" in result.stdout
    listed = json.loads(CliRunner().invoke(app, ["oracles", "list", "--json"]).stdout)
    assert [entry["name"] for entry in listed] == [control.name for control in CONTROLS]


def test_stored_lines_hold_each_claim_once(claims):
    lines = stored_lines(PATH.read_bytes())
    assert all(is_stored(claim, lines) for claim in claims)
    moved = dataclasses.replace(claims[0], value=17)
    assert not is_stored(moved, lines)
