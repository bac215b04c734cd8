"""Limits for the size of the product and for how it is cut into files. Lower them when the code gets smaller."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Mapping

import attrs

from tests.structure.source import Module, imports, modules

PRODUCT = "tony_provider"
_SMALL = 60  # lines
_PARAMETERS = 6


@attrs.frozen
class Size:
    """Measurements of a package. Its fields are also the limits."""

    files: int  # without `__init__.py` of imports and docstrings alone
    nodes: int  # statements and expressions, which formatting does not change
    small_files: int  # under 60 lines of statements, imported by one other file
    wide_constructors: int  # with more than 6 parameters
    shared_names: int  # of files, in several folders


LIMIT = Size(files=320, nodes=363_500, small_files=6, wide_constructors=4, shared_names=6)


def measure(found: Mapping[str, Module]) -> Size:
    """Measure modules by name."""
    found = {name: module for name, module in found.items() if _lines(module) or module.path.stem != "__init__"}
    importers: dict[str, set[str]] = defaultdict(set)
    for name, imported in imports(found).items():
        for each in imported - {name}:
            importers[each].add(name)
    names = Counter(module.path.name for module in found.values() if not module.path.name.startswith("__"))
    nodes = [node for module in found.values() for node in ast.walk(module.tree)]
    return Size(
        files=len(found),
        nodes=sum(isinstance(node, (ast.stmt, ast.expr)) for node in nodes),
        small_files=sum(len(importers[name]) == 1 and _lines(module) < _SMALL for name, module in found.items()),
        wide_constructors=sum(_is_wide(node) for node in nodes),
        shared_names=sum(count > 1 for count in names.values()),
    )


def size() -> list[str]:
    """The product stays within its limits."""
    found = attrs.asdict(measure(modules(PRODUCT)))
    limits = attrs.asdict(LIMIT)
    return [f"{PRODUCT}: {name} is {found[name]}, over {limits[name]}" for name in found if found[name] > limits[name]]


def _lines(module: Module) -> int:
    """Count lines of statements, without imports and docstrings."""
    lines: set[int] = set()
    for node in ast.walk(module.tree):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.stmt) and not is_text and not isinstance(node, (ast.Import, ast.ImportFrom)):
            has_body = hasattr(node, "body")
            lines.update(range(node.lineno, node.lineno + 1 if has_body else (node.end_lineno or node.lineno) + 1))
    return len(lines)


def _is_wide(node: ast.AST) -> bool:
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.name != "__init__":
        return False
    return len(node.args.args) + len(node.args.kwonlyargs) - 1 > _PARAMETERS
