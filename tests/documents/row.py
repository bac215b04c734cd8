"""One line of a table, and the wording that all tables share."""

from __future__ import annotations

import ast
import os
import re

import attrs

from tests.documents.pages import PAGES, ROOT

# ". Default: x." or "; default: x." at the end of a sentence.
_DEFAULT = re.compile(r"(?:;|\.) default: (?P<what>.+?)(?=\. |\.$|$)\.?", re.IGNORECASE | re.DOTALL)
_UNIT = re.compile(r"\b(?:(\w+) (?:per|a) second|(seconds)|(MiB)|(steps?))\b", re.IGNORECASE)
_NAMES = {
    "str": "text",
    "bool": "truth value",
    "int": "whole number",
    "float": "number",
    "timedelta": "timedelta",
    "Any": "JSON",
    "None": "null",
    "Context": "mapping",
    "Notifier": "notifier, function, class or text",
}


# Links of a reference page, by the titles of the pages.
_TITLES = {
    title: f"[{title}]({os.path.relpath(page, ROOT / 'docs' / 'reference')})"
    for page in PAGES
    for title in [page.read_text().partition("\n")[0].removeprefix("# ")]
}


@attrs.frozen
class Row:
    name: str
    type: str
    default: str
    unit: str
    meaning: str


def row(name: str, kind: str, text: str, default: str | None = None) -> Row:
    """``default`` is that of the code; None: what the text says, if it says one. ``text`` is in reStructuredText."""
    text = " ".join(text.split())
    said = _DEFAULT.search(text)
    if default is None and said is not None:
        default = said["what"]
        text = text[: said.start()] + ". " + text[said.end() :]
    return Row(name, kind, _markdown(default or "none"), unit(name, kind, text), _sentence(text))


def unit(name: str, kind: str, text: str) -> str:
    """Of a number: the first one that its description holds, or else its name."""
    if not re.search(r"\bnumber\b", kind):
        return ""
    found = _UNIT.search(text) or _UNIT.search(name.replace("_", " "))
    if found is None:
        return ""
    if found[1]:
        return f"{found[1].lower()} per second"
    return "seconds" if found[2] else "MiB" if found[3] else "steps"


def _sentence(text: str) -> str:
    return _markdown(re.sub(r"\s+", " ", text).strip().removesuffix("."))


def _markdown(text: str) -> str:
    text = re.sub(r"``(.+?)``", r"`\1`", text)
    text = re.sub(r"`[^`]*`|<", lambda found: "&lt;" if found[0] == "<" else found[0], text)  # "<" begins a tag
    return re.sub(r'"([^"]+)"', lambda found: _TITLES.get(found[1], found[0]), text).replace("->", "→")


def type_of(annotation: str) -> str:
    """An annotation, as it is written in the code, in words. KeyError: one that has none yet."""
    return _words(ast.parse(annotation, mode="eval").body)


def _words(node: ast.expr) -> str:
    match node:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            names = [_words(side) for side in (left, right)]
            return " or ".join(name for name in names if name)
        case ast.Constant(value=None):
            return "null"
        case ast.Name(id=name):
            return _NAMES[name]
        case ast.Subscript(value=ast.Name(id="Literal"), slice=choices):
            return " or ".join(f"`{ast.literal_eval(choice)}`" for choice in _elements(choices))
        case ast.Subscript(value=ast.Name(id="Mapping" | "dict"), slice=inner):
            of = _words(_elements(inner)[1])
            return "mapping" if of == "JSON" else f"mapping of {of}{'s' * (of == 'number')}"
        case ast.Subscript(value=ast.Name(id="Sequence" | "Iterable" | "list"), slice=inner):
            return f"list of {_words(inner)}"
    raise KeyError(ast.unparse(node))


def _elements(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]
