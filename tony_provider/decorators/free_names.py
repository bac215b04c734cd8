"""Which names a function takes from around it, as Python's own compiler sees it."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Collection

_OF_EVERY_MODULE = frozenset({"__name__", "__file__", "__doc__", "__builtins__"})


def global_names(source: str, *, known: Collection[str]) -> list[str]:
    """The names that the one statement of ``source``, a function, needs from around it; built-in ones left out.

    Annotations do not count: they are not evaluated. ``known``: names that mean something else than what is built in,
    where the function stands.
    """
    stripped = _WithoutAnnotations().visit(ast.parse(source))
    used: set[str] = set()
    made: set[str] = set()
    _collect(symtable.symtable(ast.unparse(stripped), "<function>", "exec"), True, used, made)
    built_in = set(dir(builtins)) - set(known)
    return sorted(used - made - built_in - _OF_EVERY_MODULE)


def _collect(table: symtable.SymbolTable, is_top: bool, used: set[str], made: set[str]) -> None:
    for symbol in table.get_symbols():
        if is_top or symbol.is_global():
            if symbol.is_assigned() or symbol.is_imported():
                made.add(symbol.get_name())
            if symbol.is_referenced():
                used.add(symbol.get_name())
    for child in table.get_children():
        _collect(child, False, used, made)


class _WithoutAnnotations(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(value=None)
        return self.generic_visit(node)
