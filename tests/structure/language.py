"""Count sentences of docstrings and comments that are hard to read, by rules of thumb.

A sentence that breaks a rule deserves a second look; one that breaks none is not always good.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from tests.structure.budget import PRODUCT
from tests.structure.source import ROOT, Module, modules

RULES = {
    "a clause as subject": r"^(What|Whoever|Whatever|Whom|Whose|Which of|That which|Where (it|they|one))\b(?!.*\?$)",
    "no head noun": r"^(None:|(Of|Those|Such|Nobody|Nothing|Neither|One (that|of)|The same|(As|So) (many|much)|How)\b)",
    "an actor without a name": r"(?i)\b(somebody|nobody|whoever|anybody|those who|whom)\b",
    "speech of programs": r"(?i)\b(is|are|was|were|be|been) (told|said|heard|spoken)\b"
    r"|\btells? (of|about|what|how|when|that|it)\b",
    "dialect": r"(?i)\b(anew|in vain|to be had|likewise|as ever|comes by|at its leisure|once more|for good|goes? on"
    r"|went on|none that|as one|all that|mend(s|ed)?)\b",
}
LONGEST = 32  # words
MOST_FLAGGED = 2.0  # of 100 sentences
MOST_LONG = 1.0
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


def texts(module: Module) -> Iterator[str]:
    """Return the docstrings and comments of a module. Comment lines that follow one another are one text."""
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ast.get_docstring(node) or ""
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


def language() -> list[str]:
    """Docstrings and comments can be read once."""
    found = [
        (module, each) for module in modules(PRODUCT).values() for text in texts(module) for each in sentences(text)
    ]
    flagged = [f"{module.path}: {', '.join(said)}: {each}" for module, each in found if (said := faults(each))]
    long = [f"{module.path}: too long: {each}" for module, each in found if len(each.split()) > LONGEST]
    broken = flagged if len(flagged) > MOST_FLAGGED / 100 * len(found) else []
    return broken + (long if len(long) > MOST_LONG / 100 * len(found) else [])
