"""Values in Python source, read and never executed: constants, what is made of them, and names that have one value."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import attrs

_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_LARGEST = 1 << 62
_DEEPEST = 50
_LONGEST = 100_000  # characters of a text


class Computed(ValueError):  # noqa: N818 - named for what is wrong
    """A value that only running the program would tell."""


@attrs.frozen
class PythonSource:
    """A program's text, as a tree."""

    tree: ast.Module
    name: str  # of its file
    _known: dict[ast.expr, Any] = attrs.field(factory=dict, repr=False)  # what was looked at already
    _values: Mapping[str, Sequence[ast.expr | None]] = attrs.field(init=False, repr=False)  # None: not told by itself
    _modules: Mapping[str, str] = attrs.field(init=False, repr=False)  # by the names that imports give them

    @_values.default
    def _values_of_names(self) -> Mapping[str, Sequence[ast.expr | None]]:
        """All that each name is given anywhere, also by a loop or as an argument."""
        alone = {
            id(to): node.value
            for node in ast.walk(self.tree)
            if isinstance(node, (ast.Assign, ast.AnnAssign))
            for to in (node.targets if isinstance(node, ast.Assign) else [node.target])
        }
        found: dict[str, list[ast.expr | None]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.setdefault(node.id, []).append(alone.get(id(node)))
            elif isinstance(node, ast.arg):
                found.setdefault(node.arg, []).append(None)
        return found

    @_modules.default
    def _modules_of_names(self) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                above = f"{node.module}." if isinstance(node, ast.ImportFrom) and node.module else ""
                for alias in node.names:
                    found.setdefault(alias.asname or alias.name, f"{above}{alias.name}")
        return found

    @classmethod
    def parse(cls, text: str, name: str) -> PythonSource:
        """Raises ValueError for what is no Python."""
        try:
            return cls(ast.parse(text), PurePath(name).name)
        except (SyntaxError, RecursionError, MemoryError) as error:
            raise ValueError(f"{name}: is no Python ({error})") from error

    def calls(self, name: str) -> Iterator[ast.Call]:
        """The calls of a function, whatever it is taken from."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and called(node) == name:
                yield node

    def imports(self) -> Iterator[str]:
        """The modules that it imports, or takes something from."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """What an expression is. Raises Computed."""
        if depth > _DEEPEST:
            raise Computed(ast.unparse(node))
        if node not in self._known:
            self._known[node] = self._value(node, depth)
        return self._known[node]

    def _value(self, node: ast.expr, depth: int) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._number(-self._number(self.value(operand, depth + 1), node), node)
            case ast.BinOp(left=left, op=op, right=right):
                return self._calculated(node, op, self.value(left, depth + 1), self.value(right, depth + 1))
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
                return [self.value(each, depth + 1) for each in elements]
            case ast.Name(id="__file__"):
                return self.name
            case ast.Name(id=name):
                return self.value(self._assigned(name, node), depth + 1)
            case ast.Attribute(value=ast.Name(id=module), attr="__file__"):
                return f"{self._modules.get(module, module).replace('.', '/')}.py"
            case ast.Call(args=[argument]) if ast.unparse(node.func) in (
                "os.path.basename",
                "path.basename",
                "basename",
            ):
                return PurePath(str(self.value(argument, depth + 1))).name
        raise Computed(ast.unparse(node))

    def pairs(self, node: ast.expr) -> Iterator[tuple[ast.expr | None, ast.expr]]:
        """The keys and values of a mapping, written as one or under a name; no key: another mapping in it."""
        if isinstance(node, ast.Name):
            node = self._assigned(node.id, node)
        if not isinstance(node, ast.Dict):
            raise Computed(ast.unparse(node))
        yield from zip(node.keys, node.values, strict=True)

    def _assigned(self, name: str, node: ast.expr) -> ast.expr:
        """The one value that a name is given anywhere."""
        found = self._values.get(name, ())
        if len(found) != 1 or found[0] is None:
            raise Computed(ast.unparse(node))
        return found[0]

    def _calculated(self, node: ast.expr, op: ast.operator, left: Any, right: Any) -> Any:
        if isinstance(left, str) and isinstance(right, str) and isinstance(op, ast.Add):
            if len(left) + len(right) > _LONGEST:
                raise Computed(ast.unparse(node))
            return left + right
        if isinstance(op, ast.Pow):
            base, power = self._number(left, node), self._number(right, node)
            if not 0 <= power <= 62 or abs(base) > 10:
                raise Computed(ast.unparse(node))
            return self._number(base**power, node)
        if (calculate := _ARITHMETIC.get(type(op))) is None or (right == 0 and isinstance(op, ast.FloorDiv)):
            raise Computed(ast.unparse(node))
        return self._number(calculate(self._number(left, node), self._number(right, node)), node)

    @staticmethod
    def _number(value: Any, node: ast.expr) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > _LARGEST:
            raise Computed(ast.unparse(node))
        return value


def called(node: ast.expr) -> str:
    """The last name of what a call calls; empty for anything else."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
