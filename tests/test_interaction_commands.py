"""The verb ``profile``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from softrank_exact.certificate import audit_file
from softrank_exact.cli import main


@pytest.fixture
def logits(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    X, Y = rng.uniform(-1, 1, (12, 2)), rng.uniform(-1, 1, (14, 2))
    np.save(tmp_path / "logits.npy", X @ Y.T + 1e-3 * rng.standard_normal((12, 14)))
    return tmp_path / "logits.npy"


@pytest.fixture
def factors(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    path = tmp_path / "qk.npz"
    np.savez(path, Q=rng.standard_normal((10, 3)), K=rng.standard_normal((12, 3)))
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["profile", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_example_of_the_page_runs() -> None:
    page = Path(__file__).parents[1] / "docs" / "interaction.md"
    lines = page.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("    from fractions"))
    stop = next(i for i in range(start, len(lines)) if lines[i].startswith("#"))
    H = np.random.default_rng(0).standard_normal((12, 14))
    names: dict[str, object] = {"H": H}
    exec("\n".join(line[4:] for line in lines[start:stop]), names)
    assert names["point"].rank == 8  # type: ignore[attr-defined]


def test_the_table(capsys: pytest.CaptureFixture[str], logits: Path) -> None:
    code, out, err = run(capsys, logits, "--object", "logits", "--eps", "1/4")
    assert code == 0
    assert err == ""
    assert "visible rank 11, softmax of logits 12 x 14, eps = 1/4" in out
    for legend in ("explicit: a proven bound", "tau: proven", "not bounds on", "diagnostic"):
        assert legend in out
    assert max(map(len, out.splitlines()[1:])) <= 80
    assert "explicit factor witness, verified by the kernel" in out


def test_json_has_every_point(capsys: pytest.CaptureFixture[str], logits: Path) -> None:
    code, out, _ = run(capsys, logits, "--object", "logits", "--eps", "1/4", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["visible_rank"]["lower"] == found["visible_rank"]["upper"] == 11
    assert [point["r"] for point in found["points"]] == list(range(12))
    for point in found["points"]:
        assert point["q"][0] <= point["q"][1]
        assert point["kappa"][0] <= point["kappa"][1]
        assert point["shape_score"] is None or point["shape_score"]["is_a_bound"] is False
    assert found["points"][2]["explicit_bound"] == 3
    assert found["explicit_witness"] <= 3
    assert found["native"] is None


def test_factors_bring_native_quantities(capsys: pytest.CaptureFixture[str], factors: Path) -> None:
    options = (factors, "--object", "qk", "--over-sqrt", "3", "--eps", "1/4")
    code, out, _ = run(capsys, *options, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["visible_rank"]["lower"] == found["visible_rank"]["upper"] == 3
    assert len(found["native"]["points"]) == 4
    assert found["points"][-1]["kappa"][0] <= found["native"]["gamma"][1]
    assert "r_int^SVD(eps/3)" in run(capsys, *options)[1]


def test_the_certificate_is_verified(
    capsys: pytest.CaptureFixture[str], logits: Path, tmp_path: Path
) -> None:
    path = tmp_path / "out.softrank.safetensors"
    code, _, _ = run(capsys, logits, "--object", "logits", "--eps", "1/4", "-o", path)
    assert code == 0
    audit = audit_file(path)
    assert audit.upper is not None
    assert audit.upper <= 3
    assert all(verdict.verdict == "verified" for verdict in audit.verdicts)


def test_a_certificate_of_trivial_claims_is_called_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path, output = tmp_path / "H.npy", tmp_path / "out.softrank.safetensors"
    np.save(path, 9 * np.eye(3))
    code, out, err = run(capsys, path, "--object", "logits", "--eps", "1/1000", "-o", output)
    assert code == 0
    assert "no explicit factor witness" in out
    assert "only trivial claims written" in err
    assert audit_file(output).upper == 3


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_the_plot(
    capsys: pytest.CaptureFixture[str], logits: Path, tmp_path: Path, suffix: str
) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"profile{suffix}"
    code, _, err = run(capsys, logits, "--object", "logits", "--eps", "1/4", "--plot", path)
    assert (code, err) == (0, "")
    start = path.read_bytes()[:60]
    assert start.startswith(b"<?xml" if suffix == ".svg" else b"\x89PNG")


def test_the_plot_of_a_single_point_has_whole_ranks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = pytest.importorskip("matplotlib.figure")
    np.save(tmp_path / "flat.npy", np.zeros((3, 4)))
    drawn = []
    monkeypatch.setattr(figure.Figure, "savefig", lambda self, *_, **__: drawn.append(self))
    asked = ("--object", "logits", "--eps", "1/4", "--plot", tmp_path / "flat.svg")
    assert run(capsys, tmp_path / "flat.npy", *asked)[0] == 0
    for axes in drawn[0].axes:
        low, high = axes.get_xlim()
        assert [tick for tick in axes.get_xticks() if low <= tick <= high] == [0]


def test_a_plot_without_matplotlib_says_what_to_install(
    capsys: pytest.CaptureFixture[str],
    logits: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    plot = tmp_path / "p.svg"
    code, _, err = run(capsys, logits, "--object", "logits", "--eps", "1/4", "--plot", plot)
    assert code == 2
    assert "pip install '.[report]'" in err


@pytest.mark.parametrize(
    ("array", "object", "options", "words"),
    [
        (np.where(np.tri(4, dtype=bool), 0.0, -np.inf), "logits", [], "row-dependent mask"),
        (np.tri(4) / np.arange(1, 5)[:, None], "matrix", [], "has no logarithm"),
        (np.ones((2, 2)) / 2, "tensor", [], "accepted: matrix, logits, qk"),
        (np.ones((2, 2)) / 2, "matrix", ["--plot", "p.gif"], "accepted: a file name in .svg"),
        (np.ones((2, 2)) / 2, "matrix", ["-o", "p.npz"], "a name that ends in .softrank."),
    ],
)
def test_mistakes_are_one_sentence(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    array: np.ndarray,
    object: str,
    options: list[str],
    words: str,
) -> None:
    np.save(tmp_path / "A.npy", array)
    code, out, err = run(capsys, tmp_path / "A.npy", "--object", object, "--eps", "1/4", *options)
    assert (code, out) == (2, "")
    assert words in " ".join(err.split())
    assert "Traceback" not in err
