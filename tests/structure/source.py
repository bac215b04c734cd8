"""Python source as it is read, not run: the modules of a folder, what they define and what they import."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]
_GENERATED = ("_pb2", "_pb2_grpc")


@attrs.frozen
class Module:
    """One file of Python source."""

    name: str  # as it is imported
    path: Path  # from the root of the project
    tree: ast.Module = attrs.field(eq=False, repr=False)

    @property
    def public_classes(self) -> Iterator[ast.ClassDef]:
        """Those at the top level that have no leading underscore."""
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node

    @property
    def imported(self) -> Iterator[str]:
        """Modules, and what is taken from them, wherever that is: for type checkers and within functions, too."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def modules(folder: str) -> Mapping[str, Module]:
    """By name, those of a folder and the folders in it, without generated ones."""
    found: dict[str, Module] = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        if not path.stem.endswith(_GENERATED):
            relative = path.relative_to(ROOT)
            parts = relative.parent.parts if path.stem == "__init__" else relative.with_suffix("").parts
            name = ".".join(parts)
            found[name] = Module(name, relative, ast.parse(path.read_text()))
    return found


def imports(known: Mapping[str, Module]) -> dict[str, set[str]]:
    """By name, which of the ``known`` modules each of them imports."""
    return {
        name: {each for text in module.imported if (each := _module(text, known))} for name, module in known.items()
    }


def _module(imported: str, known: Mapping[str, Module]) -> str | None:
    """The module that a module is, or that something is taken from."""
    candidates = (imported, imported.rpartition(".")[0])
    return next((name for name in candidates if name in known), None)
