"""Imports run one way (docs/trust.md), and the exact part works where torch is not installed."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("softrank_exact", "oracles", "proofs_checks", "float_bridge")
MAY_IMPORT = {
    "softrank_exact": set(),
    "oracles": {"softrank_exact"},
    "proofs_checks": {"softrank_exact", "oracles"},
    "float_bridge": {"softrank_exact"},
}
# What softrank_exact stands on: at run time for everybody, and in some modules only.
EVERYWHERE = {"numpy"}
SOME = {
    "flint": {"intake", "interaction"},
    "mpmath": {"interaction"},
    "sympy": {"interaction"},
    "threadpoolctl": {"doctor"},
    "matplotlib": {"interaction"},
    "rich": {"display", "commands", "interaction"},
    "typer": {"cli", "commands", "interaction", "options"},
}
WITHOUT_TORCH = (
    "import sys\n"
    "for name in ('torch', 'transformers', 'safetensors'):\n"
    "    sys.modules[name] = None\n"
)


def imported(tree: ast.AST) -> Iterator[str]:
    """The names of the packages that a module imports, at any depth; "" for its own."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from (alias.name.partition(".")[0] for alias in node.names)
            case ast.ImportFrom(level=0, module=str() as module):
                yield module.partition(".")[0]
            case (
                ast.Call(func=ast.Attribute(attr="import_module"))
                | ast.Call(func=ast.Name(id="import_module" | "__import__"))
            ):
                yield "a computed name"


def wrong_direction(package: str, tree: ast.AST) -> set[str]:
    """The sister packages that a module of this package must not import, but does."""
    return set(imported(tree)) & (set(PACKAGES) - MAY_IMPORT[package] - {package})


def not_allowed(part: str, tree: ast.AST) -> set[str]:
    """What a module of softrank_exact (in this folder, or of this name) must not import."""
    allowed = EVERYWHERE | {name for name, parts in SOME.items() if part in parts}
    return set(imported(tree)) - set(sys.stdlib_module_names) - {"softrank_exact"} - allowed


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def part(path: Path) -> str:
    """The folder within softrank_exact, or the module's own name."""
    return path.relative_to(ROOT / "softrank_exact").parts[0].removesuffix(".py")


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_run_one_way(package: str) -> None:
    found = {
        path.name: wrong
        for path in modules(package)
        if (wrong := wrong_direction(package, ast.parse(path.read_text())))
    }
    assert found == {}


def test_the_exact_part_imports_what_is_on_the_list() -> None:
    found = {
        path.name: wrong
        for path in modules("softrank_exact")
        if (wrong := not_allowed(part(path), ast.parse(path.read_text())))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("package", "code"),
    [
        ("softrank_exact", "import float_bridge"),
        ("softrank_exact", "def f():\n    from oracles.game import solve"),
        ("oracles", "from proofs_checks import lemma"),
        ("oracles", "import float_bridge.capture as capture"),
        ("proofs_checks", "from float_bridge import bracket"),
        ("float_bridge", "import oracles"),
    ],
)
def test_the_direction_bites(package: str, code: str) -> None:
    assert wrong_direction(package, ast.parse(code))


@pytest.mark.parametrize(
    ("part", "code"),
    [
        ("kernel", "import torch"),
        ("commands", "def f():\n    import torch.cuda"),
        ("inputs", "importlib.import_module('torch')"),
        ("inputs", "__import__('torch')"),
        ("kernel", "from flint import arb"),
        ("certificate", "from rich.table import Table"),
        ("targets", "import scipy"),
    ],
)
def test_the_allow_list_bites(part: str, code: str) -> None:
    assert not_allowed(part, ast.parse(code))


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + code, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "80"},
    )


def test_every_exact_module_imports_without_torch() -> None:
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in modules("softrank_exact")
        if path.name != "__init__.py"
    ]
    done = python(
        "import importlib\nfor name in sys.argv[1:]: importlib.import_module(name)", *names
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_block_bites() -> None:
    assert "ModuleNotFoundError" in python("import torch").stderr


def test_importing_the_package_imports_no_torch() -> None:
    code = "import sys, softrank_exact.cli, softrank_exact.commands; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("verb", ["bracket", "capture", "recheck"])
def test_a_verb_that_needs_torch_says_what_to_install(verb: str) -> None:
    done = python(
        "from softrank_exact.cli import main\nsys.exit(main(sys.argv[1:]))", verb, "A.npy"
    )
    assert done.returncode == 2
    assert f"no command '{verb}' here" in done.stderr
    assert "pip install '.[bridge]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("verb", ["certify", "audit", "explain", "doctor", "oracles"])
def test_the_other_verbs_work_without_torch(verb: str) -> None:
    done = python(
        "from softrank_exact.cli import main\nsys.exit(main(sys.argv[1:]))", verb, "--help"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"softrank {verb}" in done.stdout


EXACT_TESTS = ("captures", "certify", "inputs", "limbs", "targets")


def test_the_exact_tests_pass_without_torch() -> None:
    files = [str(ROOT / "tests" / f"test_{name}.py") for name in EXACT_TESTS]
    options = ("-q", "-p", "no:cacheprovider", "-m", "not slow")
    done = python("import pytest\nsys.exit(pytest.main(sys.argv[1:]))", *options, *files)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.mark.slow
def test_all_other_tests_pass_or_are_skipped_without_torch() -> None:
    options = ("-q", "-p", "no:cacheprovider", "-m", "not slow", "--ignore", __file__)
    done = python(
        "import pytest\nsys.exit(pytest.main(sys.argv[1:]))", *options, str(ROOT / "tests")
    )
    assert done.returncode == 0, done.stdout
