"""Every example of the README runs, in the order in which a reader meets it."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from softrank_exact.cli import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
EXTRAS = re.search(r"optional-dependencies\](.*?)\n\[", (ROOT / "pyproject.toml").read_text(), re.S)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def shell_lines() -> Iterator[list[str]]:
    for block in blocks("sh"):
        for line in block.splitlines():
            yield shlex.split(line, comments=True)


PYTHON = blocks("python")


def test_there_is_one_example_without_torch_and_one_with_it() -> None:
    assert ["torch" in block for block in PYTHON] == [False, True]
    assert len(re.findall(r"```", README)) == 2 * (len(PYTHON) + len(blocks("sh")))


def test_the_exact_example_has_about_ten_lines() -> None:
    lines = [line for line in PYTHON[0].splitlines() if line]
    assert len(lines) <= 12


def test_the_example_without_torch_and_the_verbs_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(PYTHON[0], "README.md", "exec"), {})
    assert re.fullmatch(r"\d+ <= r_eps <= \d+\n", capsys.readouterr().out)
    verbs = [words[1:] for words in shell_lines() if words[:1] == ["softrank"]]
    assert [words[0] for words in verbs] == ["audit", "explain"]
    for words in verbs:
        assert main(words) == 0
        assert capsys.readouterr().out.startswith("verified: ")


@pytest.mark.bridge
def test_the_example_with_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    try:
        exec(compile(PYTHON[1], "README.md", "exec"), {})
    finally:
        torch.set_num_threads(before)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["0", "1"]
    assert main(["audit", "."]) == 0


def test_the_commands_around_it_exist() -> None:
    others = [words for words in shell_lines() if words[:1] != ["softrank"]]
    for words in others:
        if words[0] == "make":
            rule = subprocess.run(
                ["make", "-n", "-C", str(ROOT), words[1]], capture_output=True, text=True
            )
            assert rule.returncode == 0, rule.stderr
        else:
            assert words[:2] == ["pip", "install"]
            assert EXTRAS is not None
            for extra in re.findall(r"\[(\w+)\]", words[-1]):
                assert f"\n{extra} = " in EXTRAS[1]
    assert [words[1] for words in others if words[0] == "make"] == ["demo", "test"]


def test_continuous_integration_calls_the_test_command_and_nothing_else() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    commands = [line for line in script.splitlines() if line and not line.startswith("#")]
    assert commands == ["set -eu", 'cd "$(dirname "$0")/.."', "exec make test"]
