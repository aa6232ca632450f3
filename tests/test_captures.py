"""Captures as every verb reads them: which head, which object, and is a certificate about it?"""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensor_files import KEYS, QUERIES, SCALE, WIDTH, write_capture, write_safetensors

from softrank_exact import UserError, load_certificate
from softrank_exact.captures import METADATA_KEY, load_capture
from softrank_exact.cli import main
from softrank_exact.inputs import read_tensors

Run = Callable[..., tuple[int, str, str]]
HEAD = ("--layer", "1", "--head", "1")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run one command line in a folder with two captures, a causal one among them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    write_capture(Path("heads.safetensors"))
    write_capture(Path("causal.safetensors"), causal=True)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_a_head_is_what_the_file_holds(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "c.safetensors")
    stored, head = read_tensors(path), load_capture(path).head(1, 1)
    assert head.query is not None
    assert head.key is not None
    assert head.query.tolist() == stored["layers.1.query"][0, 1].tolist()
    assert head.key.tolist() == stored["layers.1.key"][0, 0].tolist()
    assert head.weights.tolist() == stored["layers.1.weights"][0, 1].tolist()
    assert head.scale == Fraction(SCALE)
    assert head.bias is None


def test_one_bias_serves_every_head(tmp_path: Path) -> None:
    captured = load_capture(write_capture(tmp_path / "c.safetensors", causal=True))
    for head in captured.heads():
        assert head.bias is not None
        assert np.isneginf(head.bias).tolist() == (np.tri(QUERIES, KEYS) == 0).tolist()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layers.1.weights": None}, "has no tensor 'layers.1.weights'"),
        ({"layers.1.query": np.zeros((1, 1))}, r"has shape \[1, 1\]; accepted: a matrix \(0, 1\)"),
        ({"layers.1.query": np.zeros((1, 0, 6, 3))}, r"accepted: a matrix \(0, 1\)"),
    ],
)
def test_a_damaged_capture_is_told(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    captured = load_capture(write_capture(tmp_path / "c.safetensors", change))
    with pytest.raises(UserError, match=said):
        captured.head(1, 1)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null"])
def test_metadata_that_are_not_a_captures_are_told(tmp_path: Path, text: str) -> None:
    path = write_safetensors(tmp_path / "c.safetensors", {METADATA_KEY: text})
    with pytest.raises(UserError, match="is a damaged capture"):
        load_capture(path)


# --- profile -----------------------------------------------------------------------------------


def test_profile_takes_queries_keys_and_scale_of_a_capture(run: Run) -> None:
    code, out, _ = run("profile", "heads.safetensors", *HEAD, "--eps", "1/4", "--json")
    found = json.loads(out)
    head = load_capture("heads.safetensors").head(1, 1)
    np.savez("qk.npz", Q=head.query, K=head.key)
    given = ("--object", "qk", "--scale", str(head.scale), "--eps", "1/4", "--json")
    expected = json.loads(run("profile", "qk.npz", *given)[1])
    assert code == 0
    assert found["file"] == "heads.safetensors: layer 1, head 1"
    assert found["object"] == "qk"
    assert len(found["native"]["points"]) == WIDTH + 1
    assert {**found, "file": ""} == {**expected, "file": ""}


def test_profile_of_other_objects_of_a_capture(run: Run) -> None:
    shared = ("profile", "heads.safetensors", *HEAD, "--eps", "1/4", "--json")
    for object in ("logits", "matrix"):
        code, out, _ = run(*shared, "--object", object)
        assert (code, json.loads(out)["object"], json.loads(out)["native"]) == (0, object, None)


@pytest.mark.parametrize(
    ("object", "said"),
    [
        ("qk", "the logits have a row-dependent mask"),
        ("logits", "the logits have a row-dependent mask"),
        ("matrix", "a row-dependent mask gives zeros"),
    ],
)
def test_profile_refuses_a_causal_head_by_name(run: Run, object: str, said: str) -> None:
    asked = ("profile", "causal.safetensors", *HEAD, "--eps", "1/4", "--object", object)
    code, out, err = run(*asked)
    assert (code, out) == (2, "")
    assert said in err
    assert "--prefix" in err
    code, out, err = run(*asked, "--prefix", "2")
    assert code == 0
    assert f"{QUERIES - 2} x 2" in out
    assert "layer 1, head 1, first 2 keys" in out
    assert "4 queries against the first 2 keys, which keep between" in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "is a capture; accepted: with --layer and --head"),
        (("--layer", "1"), "is a capture; accepted: with --layer and --head"),
        ((*HEAD, "--scale", "2"), "--scale is 2; accepted: not with a capture"),
        ((*HEAD, "--over-sqrt", "3"), "--over-sqrt is 3; accepted: not with a capture"),
        ((*HEAD, "--key", "layers.1.weights"), "--key is layers.1.weights; accepted: --layer and"),
        (("--layer", "1", "--head", "2"), "head 2 is not within 0 to 1"),
        ((*HEAD, "--prefix", "6"), "prefix 6 leaves no block"),
    ],
)
@pytest.mark.parametrize("verb", [("profile",), ("certify", "--upper", "X.npy,Y.npy")])
def test_a_mistake_with_a_capture_is_told(
    run: Run, verb: tuple[str, ...], options: tuple[str, ...], said: str
) -> None:
    code, out, err = run(*verb, "heads.safetensors", "--eps", "1/4", *options)
    assert (code, out) == (2, "")
    assert said in err


# --- audit --against ---------------------------------------------------------------------------


@pytest.fixture(params=["qk", "logits", "matrix"])
def certified(run: Run, request: pytest.FixtureRequest) -> str:
    """Certificates of the object about a head, and about a block of a causal one."""
    np.save("I.npy", np.eye(QUERIES))
    head = load_capture("heads.safetensors").head(1, 1)
    np.save("A.npy", head.matrix)
    shared = ("--eps", "1/4", "--object", request.param, "--upper")
    for file, factors, options in (
        ("heads", "I.npy,A.npy", ()),
        ("causal", "X.npy,Y.npy", ("--prefix", "2")),
    ):
        block = load_capture(f"{file}.safetensors").head(1, 1)
        if options:
            np.save("X.npy", block.common_support(2).matrix)
            np.save("Y.npy", np.eye(2))
        name = f"{file}.softrank.safetensors"
        made = run("certify", f"{file}.safetensors", *HEAD, *options, *shared, factors, "-o", name)
        assert made[0] == 0, made
    return str(request.param)


def against(run: Run, capture: str, *options: str, name: str = "heads") -> tuple[int, str]:
    file = f"{name}.softrank.safetensors"
    code, out, _ = run("audit", file, "--against", capture, *options)
    return code, out.splitlines()[-1]


ROLES = {"qk": "Q, K and scale", "logits": "logits", "matrix": "matrix"}


def test_a_certificate_is_about_its_head_and_no_other(run: Run, certified: str) -> None:
    role = ROLES[certified]
    code, said = against(run, "heads.safetensors", *HEAD)
    assert (code, said) == (
        0,
        f"yes: heads.safetensors: layer 1, head 1 is the certified {role}, exactly",
    )
    code, said = against(run, "heads.safetensors", "--layer", "1", "--head", "0")
    assert code == 1
    first = {"qk": "Q", "logits": "H", "matrix": "A"}[certified]
    assert said.startswith(
        f"no: heads.safetensors: layer 1, head 0 is not the certified {role}: {first}[0, 0] is "
    )


def test_a_certificate_is_about_its_block(run: Run, certified: str) -> None:
    block = ("causal.safetensors", *HEAD, "--prefix", "2")
    assert against(run, *block, name="causal")[0] == 0
    code, said = against(run, "causal.safetensors", *HEAD, name="causal")
    assert code == 1
    assert f"is {QUERIES} x " in said or "bias is present, unlike in the certificate" in said


def test_one_bit_of_one_tensor_is_named(run: Run, certified: str) -> None:
    tensor, name, place = {
        "qk": ("layers.1.key", "K", "[4, 2]"),
        "logits": ("layers.1.query", "H", "[3, 0]"),
        "matrix": ("layers.1.weights", "A", "[3, 1]"),
    }[certified]
    stored = np.array(read_tensors(Path("heads.safetensors"))[tensor])
    where = (0, 0, 4, 2) if certified == "qk" else (0, 1, 3, int(place[-2]))
    before = stored[where]
    stored[where] = before * 2 if certified == "logits" else np.nextafter(before, 9)
    write_capture(Path("other.safetensors"), {tensor: stored})
    code, said = against(run, "other.safetensors", *HEAD)
    assert code == 1
    assert f": {name}{place} is " in said
    if certified != "logits":
        size = KEYS * WIDTH if certified == "qk" else QUERIES * KEYS
        assert f"is {stored[where]}, certified is {before} (1 of {size} entries differ)" in said


def test_the_scale_is_part_of_a_certificate(run: Run) -> None:
    head = load_capture("heads.safetensors").head(1, 1)
    np.savez("qk.npz", Q=head.query, K=head.key)
    np.save("I.npy", np.eye(QUERIES))
    np.save("A.npy", head.matrix)
    shared = ("certify", "qk.npz", "--object", "qk", "--eps", "1/4", "--upper", "I.npy,A.npy")
    save = ("-o", "heads.softrank.safetensors")
    assert run(*shared, "--scale", str(head.scale), *save)[0] == 0
    assert against(run, "heads.safetensors", *HEAD)[0] == 0
    # 1/sqrt(3) itself is not the float that the model used.
    assert run(*shared, "--over-sqrt", "3", *save)[0] == 0
    code, said = against(run, "heads.safetensors", *HEAD)
    assert code == 1
    assert f"scale is {head.scale}, certified is 1 / sqrt(3)" in said
    # The same real number, told in another way.
    assert run(*shared, "--scale", str(head.scale * 2), "--over-sqrt", "4", *save)[0] == 0
    assert load_certificate("heads.softrank.safetensors").declared.over_sqrt == 4
    assert against(run, "heads.safetensors", *HEAD)[0] == 0


def test_a_head_without_queries_cannot_be_compared_with_them(run: Run) -> None:
    np.save("I.npy", np.eye(QUERIES))
    np.save("A.npy", load_capture("heads.safetensors").head(1, 1).matrix)
    made = ("certify", "heads.safetensors", *HEAD, "--eps", "1/4", "--object", "qk")
    assert run(*made, "--upper", "I.npy,A.npy", "-o", "heads.softrank.safetensors")[0] == 0
    bare: dict[str, Any] = {"layers.1.query": None, "layers.1.key": None}
    write_capture(Path("bare.safetensors"), bare)
    code, _, err = run(
        "audit", "heads.softrank.safetensors", "--against", "bare.safetensors", *HEAD
    )
    assert code == 2
    assert "layer 1 was captured without queries and keys" in err
