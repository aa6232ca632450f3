"""The verbs bracket, capture and recheck, as a user types them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from float_bridge.capture import capture  # noqa: E402
from float_bridge.readers import read_pt  # noqa: E402
from softrank_exact.captures import load_capture  # noqa: E402
from softrank_exact.certificate import SUFFIX, audit_file, load_certificate  # noqa: E402
from softrank_exact.cli import main  # noqa: E402
from softrank_exact.errors import UserError  # noqa: E402

pytestmark = pytest.mark.bridge
IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    """A tiny causal model saved to disk, and a capture of it."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=8,
    )
    path = tmp_path_factory.mktemp("model")
    model = transformers.AutoModel.from_config(config)
    with torch.no_grad():
        for layer in model.layers:
            layer.self_attn.q_proj.weight.mul_(40)
            layer.self_attn.k_proj.weight.mul_(40)
    model.save_pretrained(path / "model")
    (path / "ids.json").write_text(json.dumps({"ids": IDS}))
    capture(path / "model", IDS, path / "heads.safetensors", prefix=4)
    return path


def run(capsys: Any, *arguments: object) -> tuple[int, str, str]:
    code = main([str(a) for a in arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


def test_capture_writes_the_heads_of_a_folder(folder: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "c.safetensors"
    code, said, _ = run(
        capsys, "capture", folder / "model", "--ids", folder / "ids.json", "-o", out, "--prefix", 4
    )
    assert code == 0
    assert said.startswith("8 heads in 2 layers of model (float64) written to")
    mine, theirs = (
        load_capture(out).head(1, 2),
        load_capture(folder / "heads.safetensors").head(1, 2),
    )
    np.testing.assert_array_equal(mine.matrix, theirs.matrix)
    assert load_capture(out).info["prefix"] == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "one of --text"),
        (["--text", "a", "--ids", "x"], "one of --text"),
        (["--text", ""], "--text is empty"),
        (["--ids", "{folder}/none.json"], "cannot be read"),
        (["--text", "hello"], "has no tokenizer"),
        (["--ids", "{folder}/ids.json", "--dtype", "int8"], "accepted|not one of"),
        (["--ids", "{folder}/ids.json", "--tokens", "0"], "no tokens"),
    ],
)
def test_capture_names_a_mistake(
    folder: Path, tmp_path: Path, capsys: Any, arguments: list[str], said: str
) -> None:
    given = [a.format(folder=folder) for a in arguments]
    code, out, err = run(
        capsys, "capture", folder / "model", *given, "-o", tmp_path / "c.safetensors"
    )
    assert (code, out) == (2, "")
    assert re.search(said, err)


@pytest.mark.parametrize("object", ["qk", "logits", "matrix"])
def test_bracket_of_a_captured_head(folder: Path, tmp_path: Path, capsys: Any, object: str) -> None:
    out = tmp_path / f"head{SUFFIX}"
    code, said, _ = run(
        capsys,
        "bracket",
        folder / "heads.safetensors",
        *("--layer", 1, "--head", 2, "--eps", "1/4", "--object", object, "-o", out),
    )
    assert code == 0
    audit = audit_file(out)
    assert audit.document.target.object == object
    assert f"{audit.lower} <= r_eps <= {audit.upper}" in said


def test_bracket_of_a_common_support_block(folder: Path, capsys: Any) -> None:
    code, said, err = run(
        capsys,
        "bracket",
        folder / "heads.safetensors",
        *("--layer", 0, "--head", 0, "--eps", "1/4", "--object", "qk", "--prefix", 4, "--json"),
    )
    assert code == 0
    assert json.loads(said)["shape"] == [6, 4]
    assert "6 queries against the first 4 keys" in err


def test_bracket_of_several_tolerances_and_a_warm_start(tmp_path: Path, capsys: Any) -> None:
    path, out = tmp_path / "A.npy", tmp_path / f"A{SUFFIX}"
    np.save(path, np.eye(4))
    code, said, _ = run(capsys, "bracket", path, "--eps", "1/2,1/4", "-o", out, "--json")
    assert code == 0
    brackets = json.loads(said)
    assert [(b["lower"], b["upper"], b["exact"]) for b in brackets] == [(4, 4, True)] * 2
    assert [b["epsilon"] for b in brackets] == ["1/2", "1/4"]
    saved = [Path(b["certificate"]) for b in brackets]
    assert [load_certificate(s).lower for s in saved] == [4, 4]
    code, said, _ = run(capsys, "bracket", path, "--eps", "1/4", "--warm", saved[1])
    assert code == 0
    assert "4 <= r_eps <= 4" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--eps", "-1"], "eps is '-1'"),
        (["--eps", "1/4", "--object", "tensor"], "accepted: matrix, logits, qk"),
        (["--eps", "1/4", "--prefix", "3"], "needs a capture"),
        (["--eps", "1/4", "-o", "name"], "ends in"),
        (["--eps", "1/4", "--scale", "2"], "--scale is 2; accepted: only with --object qk"),
        (["--eps", "1/4", "--device", "nowhere"], "cannot be used"),
    ],
)
def test_bracket_names_a_mistake(
    tmp_path: Path, capsys: Any, arguments: list[str], said: str
) -> None:
    np.save(tmp_path / "A.npy", np.eye(2))
    code, out, err = run(capsys, "bracket", tmp_path / "A.npy", *arguments)
    assert (code, out) == (2, "")
    assert said in err


def test_a_capture_needs_layer_and_head(folder: Path, capsys: Any) -> None:
    code, _, err = run(capsys, "bracket", folder / "heads.safetensors", "--eps", "1/4")
    assert code == 2
    assert "--layer and --head" in err


@pytest.mark.parametrize("option", [("--scale", "2"), ("--over-sqrt", "4"), ("--key", "Q")])
def test_a_capture_refuses_what_it_knows(
    folder: Path, capsys: Any, option: tuple[str, str]
) -> None:
    head = ("--layer", 0, "--head", 0, "--eps", "1/4", "--object", "qk")
    code, out, err = run(capsys, "bracket", folder / "heads.safetensors", *head, *option)
    assert (code, out) == (2, "")
    assert f"{option[0]} is {option[1]}; accepted: " in err


def test_a_decimal_comma_is_pointed_out(tmp_path: Path, capsys: Any) -> None:
    np.save(tmp_path / "A.npy", np.eye(2))
    code, _, err = run(capsys, "bracket", tmp_path / "A.npy", "--eps", "0,25")
    assert code == 0
    assert "a comma separates tolerances" in err
    assert "comma" not in run(capsys, "bracket", tmp_path / "A.npy", "--eps", "1/2,1/4")[2]


def test_a_capture_has_its_suffix(folder: Path, capsys: Any) -> None:
    given = ("--ids", folder / "ids.json", "-o", folder / "c.npz")
    code, _, err = run(capsys, "capture", folder / "model", *given)
    assert code == 2
    assert "ends in .safetensors" in err


@pytest.fixture
def results(tmp_path: Path) -> Path:
    A = torch.softmax(2 * torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(1)), dim=-1)
    path = tmp_path / "results.pt"
    upper = torch.tensor([8, 8, 1])
    torch.save({"attention": A, "B": A, "upper": upper, "lower": torch.tensor([1, 0, 0])}, path)
    return path


def test_recheck_prints_verdicts_ledger_and_paranoia(
    results: Path, tmp_path: Path, capsys: Any
) -> None:
    folder = tmp_path / "certificates"
    code, said, err = run(
        capsys, "recheck", results, "--eps", "1/4", "--paranoid", "-o", folder, "--effort", "none"
    )
    assert code == 1
    assert said == "3 cells on cpu: 4 verified, 2 rejected\n"
    assert "ledger, largest of all cells: rounding to integers over den:" in err
    assert "products verified modulo random primes" in err
    assert len(list(folder.glob(f"*{SUFFIX}"))) == 3


def test_recheck_table_is_whole_at_80_columns(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    logits = 3 * torch.randn(2, 3, 16, 20, generator=torch.Generator().manual_seed(1))
    A = torch.softmax(logits, dim=-1)
    upper = torch.tensor([[16, 16, 10], [16, 3, 16]])
    torch.save({"attention": A, "B": A, "upper": upper}, tmp_path / "r.pt")
    arguments = ("--eps", "1/4", "--lower", 1, "--effort", "none")
    code, _, err = run(capsys, "recheck", tmp_path / "r.pt", *arguments)
    assert code == 1
    lines = err.splitlines()
    rows = [line for line in lines if line.lstrip().startswith("[")]
    assert len(rows) == 12
    row = r"\[\d, \d\] +r_eps [<>]= \d+ +(verified|rejected|refuted)( +[-+.\de]+){3}"
    assert all(re.fullmatch(row, line.strip()) for line in rows), err
    assert {"verified", "rejected"} <= set(err.split())
    assert "\u2026" not in err
    assert max(map(len, rows)) <= 80


@pytest.mark.parametrize(
    ("tensors", "options", "said"),
    [
        ({"attention": torch.full((2, 2), torch.nan)}, ["--lower", "1"], "{file}: attention[0, 0]"),
        ({"attention": torch.eye(2)}, ["--lower", "30"], "--lower is 30; accepted: integers from"),
        ({"attention": torch.eye(2), "upper": torch.tensor(3)}, [], "{file}: upper is 3"),
        ({"foo": torch.eye(2)}, ["--lower", "1"], "{file}: 'foo' is not known"),
        ({"attention": torch.eye(2)}, ["--lower", "1", "--scale", "x"], "scale is 'x'; accepted"),
        ([1, 2], ["--lower", "1"], "{file} is a list"),
    ],
)
def test_recheck_names_the_file_or_the_option(
    tmp_path: Path, capsys: Any, tensors: Any, options: list[str], said: str
) -> None:
    file = tmp_path / "r.pt"
    torch.save(tensors, file)
    code, out, err = run(capsys, "recheck", file, "--eps", "1/4", *options)
    assert (code, out) == (2, "")
    assert said.format(file=file) in err


def test_recheck_json(results: Path, capsys: Any) -> None:
    code, said, _ = run(capsys, "recheck", results, "--eps", "1/4", "--fast", "--json")
    assert code == 1
    cells = json.loads(said)
    assert [cell["index"] for cell in cells] == [[0], [1], [2]]
    for cell in cells:
        assert {claim["side"] for claim in cell["claims"]} == {"lower", "upper"}
        assert set(cell["claims"][0]) >= {"verdict", "needed", "found", "margin", "method"}
    assert [c["claims"][-1]["verdict"] for c in cells][:2] == ["verified"] * 2


def test_recheck_of_one_matrix_with_claims_on_the_command_line(tmp_path: Path, capsys: Any) -> None:
    np.save(tmp_path / "A.npy", np.eye(5))
    code, said, _ = run(
        capsys, "recheck", tmp_path / "A.npy", "--eps", "1/4", "--lower", 5, "--upper", 5
    )
    assert (code, said) == (0, "1 cells on cpu: 2 verified\n")


def test_pt_files_hold_tensors_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    torch.save({"a": torch.tensor([[1.5]], dtype=torch.bfloat16)}, path)
    assert read_pt(path)["a"].tolist() == [[1.5]]
    torch.save(torch.eye(2, requires_grad=True), path)
    assert read_pt(path)[""].shape == (2, 2)
    torch.save({"a": "text"}, path)
    with pytest.raises(UserError, match="not a dense tensor"):
        read_pt(path)
    torch.save(Path("x"), path)
    with pytest.raises(UserError, match="not a file of tensors"):
        read_pt(path)
    path.write_bytes(b"nothing")
    with pytest.raises(UserError, match="not a file of tensors"):
        read_pt(path)


@pytest.mark.parametrize(
    "junk", [b"", b"junk", b"\x80\x02.", b"\x80\x02q\x05.", b"(lp0\n.", b"0" * 99]
)
def test_a_junk_pt_file_is_a_mistake_of_the_user(tmp_path: Path, capsys: Any, junk: bytes) -> None:
    path = tmp_path / "A.pt"
    path.write_bytes(junk)
    code, out, err = run(capsys, "bracket", path, "--eps", "1/4")
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    assert f"{path} is not a file of tensors alone" in err
    assert "accepted: a tensor or a dict of tensors" in err
