"""Rules of the house that no linter knows. Each check returns what breaks its rule, a line for each place.

Who may import whom is checked by import-linter, whose contracts are in ``pyproject.toml``.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator

from tests.structure.budget import PRODUCT, size
from tests.structure.language import language
from tests.structure.source import Module, modules

HADOOP = "tests/hadoop"
SESSION = "tony_provider.runtime.am.session"
LIFECYCLE = f"{SESSION}.state_transitions"
_STATES = ("state", "phase")  # of a task or container, and of the job
_ALL_OF_IT = "SessionState"  # the session's, whose attribute has the same name


def class_names() -> list[str]:
    """One name, one thing."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules(PRODUCT).values():
        for each in module.public_classes:
            places[each.name].append(_place(module, each))
    return [f"{name} is the name of two classes: {', '.join(at)}" for name, at in sorted(places.items()) if len(at) > 1]


def class_docstrings() -> list[str]:
    """A reader learns what a class is from the class."""
    return [
        f"{_place(module, each)}: {each.name} has no docstring"
        for module in modules(PRODUCT).values()
        for each in module.public_classes
        if ast.get_docstring(each) is None
    ]


def state_writers() -> list[str]:
    """The states of tasks, containers and the job change in one place, by tables of what can follow what."""
    return [
        f"{_place(module, target)}: assigns .{target.attr}, which is for {LIFECYCLE}"
        for name, module in modules(PRODUCT).items()
        if name.startswith(f"{SESSION}.") and name != LIFECYCLE
        for target in _assigned(module.tree)
        if target.attr in _STATES
    ]


def hadoop_imports() -> list[str]:
    """A Hadoop for tests can be started by any Python: of others' packages only pytest, and that for its fixtures."""
    return [
        f"{module.path}: imports {text}"
        for name, module in modules(HADOOP).items()
        for text in module.imported
        if text.partition(".")[0] not in sys.stdlib_module_names
        and not text.startswith("tests.hadoop.")
        and not (name.endswith(".fixtures") and text == "pytest")
    ]


CHECKS = (class_names, class_docstrings, state_writers, hadoop_imports, size, language)


def _place(module: Module, node: ast.stmt | ast.expr) -> str:
    return f"{module.path}:{node.lineno}"


def _assigned(tree: ast.Module) -> Iterator[ast.Attribute]:
    """Attributes of whatever object that statements give a value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and not _is_all_of_it(node.value):
            for target in node.targets:
                yield from _attributes(target)
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            yield from _attributes(node.target)


def _attributes(target: ast.expr) -> Iterator[ast.Attribute]:
    if isinstance(target, ast.Attribute):
        yield target
    elif isinstance(target, (ast.Tuple, ast.List)):
        for each in target.elts:
            yield from _attributes(each)


def _is_all_of_it(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == _ALL_OF_IT
