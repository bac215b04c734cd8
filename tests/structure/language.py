"""Count sentences that are hard to read, by rules of thumb: in docstrings, comments, documents, messages and pages.

A sentence that breaks a rule deserves a second look; one that breaks none is not always good.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.structure.budget import PRODUCT
from tests.structure.source import ROOT, Module, modules

RULES = {
    "a clause as subject": r"^(What|Whoever|Whatever|Whom|Whose|Which of|That which|Where (it|they|one))\b(?!.*\?$)",
    "no head noun": r"^(None:|(Of|Those|Such|Nobody|Nothing|Neither|One (that|of)|The same|(As|So) (many|much)|How)\b)",
    "an actor without a name": r"(?i)\b(somebody|nobody|whoever|anybody|someone else's|those who|whom)\b",
    "speech of programs": r"(?i)\b(is|are|was|were|be|been) (told|said|heard|asked|spoken)\b"
    r"|\b(tell|tells|told|says) (of|about|what|how|why|when|where|that|it|so)\b",
    "dialect": r"(?i)\b(anew|in vain|to be had|dear to|beside|likewise|as ever|comes by|so be it|at its leisure"
    r"|looked at|looks at|once more|for good|whole or|goes? on|went on|none that|as one|all that|mend(s|ed)?)\b",
}
LONGEST = 32  # words
# By kind of text: the largest numbers of flagged and of too long sentences, per 100. Lower them with the texts.
LIMITS = {"code": (0.2, 0.1), "documents": (0.2, 0.1), "messages": (0.2, 0.3), "pages": (0.0, 0.0)}
_RULES = {name: re.compile(rule) for name, rule in RULES.items()}
_END = re.compile(r"(?<=[.!?;:])\s+(?=[A-Z`\"(])|\n\s*\n|\n\s*[-*] |\n\s*:param ")
_NOT_TEXT = re.compile(r"#\s*(noqa|type:|pragma|isort|ruff:|!)|# -+")


def sentences(text: str) -> list[str]:
    """Cut a text into sentences of four words or more. Code in backquotes becomes one word."""
    text = re.sub(r"``?[^`]*``?", "CODE", text)
    found = (re.sub(r"\s+", " ", each).strip() for each in _END.split(text))
    return [each for each in found if len(re.findall(r"[A-Za-z]{2,}", each)) >= 4]


def faults(sentence: str) -> list[str]:
    """Return the rules that a sentence breaks."""
    return [name for name, rule in _RULES.items() if rule.search(sentence)]


def code(module: Module) -> Iterator[str]:
    """Return the docstrings and comments of a module. Comment lines that follow one another are one text."""
    yield from _docstrings(module)
    block = ""
    for token in tokenize.generate_tokens(io.StringIO((ROOT / module.path).read_text()).readline):
        if token.type == tokenize.COMMENT and not _NOT_TEXT.match(token.string):
            text = token.string.lstrip("# ")
            if token.line.lstrip().startswith("#"):
                block += f" {text}"
            else:
                yield text
        elif token.type not in (tokenize.NL, tokenize.COMMENT):
            yield block
            block = ""


def messages(module: Module) -> Iterator[str]:
    """Return the string constants of a module, without docstrings. In f-strings, each value is one word."""
    docstrings = set(_docstrings(module))
    parts = {id(part) for node in ast.walk(module.tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else "CODE" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            is_docstring = inspect.cleandoc(node.value) in docstrings
            yield "" if is_docstring else node.value


def document(text: str) -> Iterator[str]:
    """Return the paragraphs, list items and table cells of a Markdown text, without code and generated comments."""
    text = re.sub(r"^ *```.*?^ *```|<!--.*?-->", "", text, flags=re.MULTILINE | re.DOTALL)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|]|\d+\.) ?)", text):
        if not block.lstrip().startswith("#"):
            cells = block.strip().strip("|").split("|") if block.lstrip().startswith("|") else [block]
            yield from (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell.lstrip(" -*0123456789.")) for cell in cells)


def page(text: str) -> Iterator[str]:
    """Return the texts that a page's script shows: string literals, and text between tags."""
    text = re.sub(r"(?m:^\s*//.*$)|(?s:/\*.*?\*/)", "", text)
    for literal, between in re.findall(r"\"([^\"\n]*)\"|>([^<>{}`]+)<", text):
        yield literal or between


def sources() -> Iterator[tuple[str, Path, str]]:
    """Return all texts, each with its kind and its file."""
    for module in modules(PRODUCT).values():
        yield from (("code", module.path, text) for text in code(module))
    for module in (*modules(PRODUCT).values(), *modules("dags").values()):
        yield from (("messages", module.path, text) for text in messages(module))
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        yield from (("documents", path.relative_to(ROOT), text) for text in document(path.read_text()))
    for path in (ROOT / PRODUCT).rglob("*.js"):
        if "vendor" not in path.parts:
            yield from (("pages", path.relative_to(ROOT), text) for text in page(path.read_text()))


def language() -> list[str]:
    """Texts can be read once."""
    found: dict[str, list[tuple[Path, str]]] = defaultdict(list)
    for kind, path, text in sources():
        found[kind] += [(path, each) for each in sentences(text)]
    broken = []
    for kind, texts in found.items():
        flagged = [f"{path}: {', '.join(said)}: {each}" for path, each in texts if (said := faults(each))]
        long = [f"{path}: too long: {each}" for path, each in texts if len(each.split()) > LONGEST]
        for lines, share in zip((flagged, long), LIMITS[kind], strict=True):
            broken += lines if len(lines) > share / 100 * len(texts) else []
    return broken


def _docstrings(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ast.get_docstring(node) or ""
