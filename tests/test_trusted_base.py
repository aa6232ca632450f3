"""The trusted base stays tiny: line budgets, import allow-lists, no float that decides."""

from __future__ import annotations

import ast
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
import trusted_probes

KERNEL = sorted((trusted_probes.PACKAGE / "kernel").glob("*.py"))
INTAKE = sorted((trusted_probes.PACKAGE / "intake").glob("*.py"))
MINICHECK = trusted_probes.PACKAGE / "minicheck.py"
COMMON = {"__future__", "collections.abc", "dataclasses", "fractions", "math", "numpy", "typing"}
ALLOWED = {
    "kernel": COMMON | {"numpy.typing", "limbs"},
    "intake": COMMON
    | {"flint", "hashlib", "json", "numpy.typing", "re", "kernel.check", "kernel.limbs"}
    | {path.stem for path in INTAKE},
}


def code_lines(path: Path) -> int:
    """Lines that are neither blank, nor comment, nor docstring."""
    lines = set()
    with path.open("rb") as stream:
        for token in tokenize.tokenize(stream.readline):
            if token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING):
                lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def offences(tree: ast.AST) -> Iterator[str]:
    """What trusted code may not contain."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=float() | complex()):
                yield f"line {node.lineno}: a float literal"
            case ast.Assert():
                yield f"line {node.lineno}: an assert, which python -O drops"
            case ast.ExceptHandler(type=None):
                yield f"line {node.lineno}: a bare except"
            case ast.ExceptHandler(type=ast.Name(id="Exception" | "BaseException")):
                yield f"line {node.lineno}: a broad except"
            case ast.Name(id="eval" | "exec" | "open" | "print" | "input" | "global"):
                yield f"line {node.lineno}: {node.id}"
            case ast.Name(id="cache" | "lru_cache" | "cached_property"):
                yield f"line {node.lineno}: caching"
            case ast.Attribute(attr="allclose" | "isclose"):
                yield f"line {node.lineno}: a tolerance"


@pytest.mark.parametrize(("files", "budget"), [(KERNEL, 500), (INTAKE, 500)])
def test_line_budgets(files: list[Path], budget: int) -> None:
    used = {path.name: code_lines(path) for path in files}
    assert 0 < sum(used.values()) < budget, used


def test_code_lines_counts_code_only(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text('"""A\ndocstring."""\n\n# comment\nx = [\n    1,\n]\n')
    assert code_lines(path) == 3


@pytest.mark.parametrize("path", KERNEL + INTAKE, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_imports_are_on_the_list(path: Path) -> None:
    foreign = set(imports(ast.parse(path.read_text()))) - ALLOWED[path.parent.name]
    assert not foreign


@pytest.mark.parametrize("path", KERNEL + INTAKE, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_nothing_forbidden(path: Path) -> None:
    assert list(offences(ast.parse(path.read_text()))) == []


@pytest.mark.parametrize(
    "code",
    [
        "x = 0.5",
        "assert x",
        "try:\n    pass\nexcept:\n    pass",
        "try:\n    pass\nexcept Exception:\n    pass",
        "@cache\ndef f(): pass",
        "np.allclose(a, b)",
        "eval(x)",
    ],
)
def test_the_ban_bites(code: str) -> None:
    assert list(offences(ast.parse(code)))


def test_the_import_list_bites() -> None:
    assert set(imports(ast.parse("import torch\nfrom scipy.linalg import eigh"))) == {
        "torch",
        "scipy.linalg",
    }


def test_minicheck_imports_the_standard_library_only() -> None:
    names = {name.split(".")[0] for name in imports(ast.parse(MINICHECK.read_text()))}
    assert names <= set(sys.stdlib_module_names) | {"__future__"}


def test_probes_pass_without_asserts() -> None:
    """``python -O`` changes nothing."""
    code = (
        "import trusted_probes as t\n"
        "codes = {m: compile(t.source_path(m).read_text(), m, 'exec') for m in t.MODULES}\n"
        "failed = list(t.failures(t.load(codes)))\n"
        "raise SystemExit('; '.join(failed) if failed else 0)\n"
    )
    result = subprocess.run(
        [sys.executable, "-O", "-c", code],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
