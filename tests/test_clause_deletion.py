"""Every clause of the trusted base is needed: delete any one and a probe fails."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import CodeType

import pytest
import trusted_probes


def rejects(node: ast.stmt) -> bool:
    """``if ...: raise`` and ``if not ...: return``, the two shapes of a rejecting clause."""
    if not isinstance(node, ast.If):
        return False
    last = node.body[-1]
    negated = isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)
    return isinstance(last, ast.Raise) or (negated and isinstance(last, ast.Return))


class Deletion(ast.NodeTransformer):
    """Replaces clause number ``target`` by nothing; counts the clauses."""

    def __init__(self, target: int) -> None:
        self.target, self.seen, self.line = target, 0, 0

    def visit(self, node: ast.AST) -> ast.AST | list[ast.stmt]:
        if isinstance(node, ast.Raise) or (isinstance(node, ast.stmt) and rejects(node)):
            number, self.seen = self.seen, self.seen + 1
            if number == self.target:
                self.line = node.lineno
                rest = node.orelse if isinstance(node, ast.If) else []
                return rest or ast.copy_location(ast.Pass(), node)
            if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise):
                return node  # its raise is the same clause
        return self.generic_visit(node)


def compiled(module: str, target: int) -> tuple[CodeType, Deletion]:
    path = trusted_probes.source_path(module)
    deletion = Deletion(target)
    tree = ast.fix_missing_locations(deletion.visit(ast.parse(path.read_text())))
    return compile(tree, str(path), "exec"), deletion


INTACT = {module: compiled(module, -1)[0] for module in trusted_probes.MODULES}


def clauses() -> Iterator[tuple[str, int, int]]:
    for module in trusted_probes.MODULES:
        for number in range(compiled(module, -1)[1].seen):
            yield module, number, compiled(module, number)[1].line


def test_the_intact_base_passes_every_probe() -> None:
    assert list(trusted_probes.failures(trusted_probes.load(INTACT))) == []


def test_there_are_clauses_to_delete() -> None:
    assert len(list(clauses())) > 60


@pytest.mark.parametrize(("module", "number", "line"), list(clauses()))
def test_a_deleted_clause_is_missed(module: str, number: int, line: int) -> None:
    damaged = trusted_probes.load({**INTACT, module: compiled(module, number)[0]})
    missed = next(trusted_probes.failures(damaged), None)
    assert missed is not None, f"{module}, line {line}: no probe needs this clause"
