"""The sections of docs/reference/python.md, generated from signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

from tony_provider import macros, publishing
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.sdk import tony_sdk

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGE = FOLDER / "python.md"
STABLE = FOLDER / "stable.md"

OWNERS: dict[str, type | ModuleType] = {
    "TonyHook": TonyHook,
    "TonyJob": TonyJob,
    "tony_sdk": tony_sdk,
    "tony_provider.publishing": publishing,
    "macros.tony": macros,
}


def sections(name: str) -> str:
    """Return a section for each public function of a module, or each stable method of a class."""
    owner = OWNERS[name]
    return "\n".join(_section(f"{name}.{member}", getattr(owner, member)) for member in members(owner))


def members(owner: type | ModuleType) -> Iterator[str]:
    """Names of the functions of a module, and of those methods of a class that stable.md lists."""
    if isinstance(owner, ModuleType):
        mine = [name for name, each in vars(owner).items() if getattr(each, "__module__", "") == owner.__name__]
        yield from (name for name in mine if inspect.isfunction(getattr(owner, name)) and not name.startswith("_"))
    else:
        yield from (name for name in stable_members(owner) if hasattr(owner, name) and not _is_field(owner, name))


def stable_members(owner: type) -> list[str]:
    """Names of the members of a class in the table of stable.md."""
    rows = [row for row in STABLE.read_text().splitlines() if f".{owner.__name__}`" in row]
    (row,) = rows
    return re.findall(r"`(\w+)`", row.partition(f".{owner.__name__}`")[2].partition(" | ")[0])


def markdown(docstring: str) -> str:
    """Return a docstring in reStructuredText as Markdown: one line for each paragraph, and a list of parameters."""
    paragraphs = []
    for paragraph in re.split(r"\n\s*\n|\n(?=:)", docstring):
        if paragraph.startswith("    "):
            paragraphs.append(f"```python\n{dedent(paragraph)}\n```")
            continue
        line = re.sub(r"``(.+?)``", r"`\1`", " ".join(paragraph.split()))
        paragraphs.append(re.sub(r"^:param (\w+): ", r"- `\1`: ", re.sub(r"::$", ":", line)))
    return re.sub(r"(?<=\n)(- .*\n)\n(?=- )", r"\1", "\n\n".join(paragraphs))


def _is_field(owner: type, name: str) -> bool:
    return inspect.ismemberdescriptor(getattr(owner, name))


def _section(name: str, member: Any) -> str:
    function = member.fget if isinstance(member, property) else member
    assert callable(function)
    signature = inspect.signature(function)
    parameters = [
        each.replace(default=...) if callable(each.default) and each.default is not each.empty else each
        for each in signature.parameters.values()
        if each.name not in ("self", "context")  # Jinja passes the context
    ]
    call = str(signature.replace(parameters=parameters)).replace("'", "").replace("Ellipsis", "...")
    if isinstance(member, property):
        call = call.removeprefix("()")
    return (
        f"### {name}\n\n```text\n{name.rpartition('.')[2]}{call}\n```\n\n{markdown(inspect.getdoc(function) or '')}\n"
    )
