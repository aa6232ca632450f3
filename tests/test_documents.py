"""The documents agree with the code: links, names, kinds, codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from softrank_exact.explain import THEOREMS
from softrank_exact.intake.document import KINDS, TRIVIAL

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
FORMAT = (ROOT / "docs" / "certificate-format.md").read_text()
THEORY = (ROOT / "docs" / "theory.md").read_text()


def broken_links(document: Path) -> list[str]:
    """The relative links of a Markdown file that lead nowhere."""
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", document.read_text())
    return [target for target in targets if not (document.parent / target).exists()]


def missing_files(document: Path) -> list[str]:
    """Paths of this repository that a document names in backquotes, but that do not exist."""
    named = re.findall(
        r"`((?:softrank_exact|oracles|proofs_checks|float_bridge|tests|vectors|docs)/[\w./-]*)",
        document.read_text(),
    )
    return [path for path in named if not (ROOT / path).exists()]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    assert broken_links(document) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_named_files_exist(document: Path) -> None:
    assert missing_files(document) == []


def test_the_link_test_bites(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("[a](page.md) [b](gone.md#x) [c](https://example.org) `tests/no_such_test.py`")
    assert broken_links(page) == ["gone.md"]
    assert missing_files(page) == ["tests/no_such_test.py"]


def test_named_tests_exist() -> None:
    for document in DOCUMENTS:
        for file, name in re.findall(r"(tests/\w+\.py)::(\w+)", document.read_text()):
            assert f"def {name}(" in (ROOT / file).read_text(), f"{document.name}: {name}"


def test_named_vectors_exist() -> None:
    text = (ROOT / "docs" / "bugs-found.md").read_text()
    names = re.findall(r"`(malformed-[\w-]+)`", text)
    assert names
    for name in names:
        assert (ROOT / "vectors" / f"{name}.softrank.safetensors").exists()


def test_every_kind_is_described_and_explained() -> None:
    kinds = {TRIVIAL, *KINDS}
    assert set(THEOREMS) == kinds
    assert set(re.findall(r"^\| `([\w-]+)` \| (?:upper|lower|either)", FORMAT, re.M)) == kinds
    for theorem in THEOREMS.values():
        for number in re.findall(r"\d+\.\d+", theorem.source):
            assert re.search(rf"^{re.escape(number)} ", THEORY, re.MULTILINE), number


def test_the_spectral_kinds_are_those_with_a_basis() -> None:
    spectral = {kind for kind, theorem in THEOREMS.items() if theorem.spectral}
    assert spectral == {kind for kind, witness in KINDS.items() if "q_scale" in witness.scales}


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages - set(re.findall(r"\]\(([\w.-]+)\)", index)) == set()
