"""Parse job text that holds templates before Jinja renders them.

So a rendered value cannot leave the value that its template stands in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tony_provider.job_files.parameters import has_templates
from tony_provider.runtime.spec.problems import NOT_GIVEN, Problem, SpecError, child
from tony_provider.runtime.spec.source import load_source

MARKS = ("{{", "{%", "{#")  # the beginnings of Jinja's templates, statements and comments
_STATEMENT = "{%"
_RULE = (
    "the text is parsed before its templates are rendered. Write a template as a value, or as a part of one, in quotes "
    'and without tojson: "{{ params.workers }}". A statement such as {% if %} must begin and end within one value. '
    "Build a job in Python if its keys depend on a run. `templates: false` at the top turns templates off"
)


def load_templated(text: str, path: str = "") -> Mapping[str, Any]:
    """Return the mapping that job text holds in YAML or JSON, with its templates as they are.

    ``path`` is a prefix for the path of each problem. Raises SpecError, with a remedy, for text that would be a job
    only after rendering.
    """
    try:
        plain = load_source(text, path)
    except SpecError as error:
        if not any(mark in text for mark in MARKS[:2]):
            raise
        raise SpecError([*error.problems, Problem(path, NOT_GIVEN, _RULE)]) from error
    if has_templates(plain):
        _check(plain, text, path)
    return plain


def _check(plain: Mapping[str, Any], text: str, path: str) -> None:
    problems = []
    statements = 0
    for is_key, each in _texts(plain, set()):
        statements += each.count(_STATEMENT)
        if is_key and any(mark in each for mark in MARKS[:2]):
            problems.append(Problem(child(path, each), NOT_GIVEN, f"a key must not be a template: {_RULE}"))
    if statements < text.count(_STATEMENT):
        problems.append(Problem(path, NOT_GIVEN, f"a Jinja statement stands outside of the values: {_RULE}"))
    if problems:
        raise SpecError(problems)


def _texts(plain: Any, seen: set[int]) -> Iterator[tuple[bool, str]]:
    """Yield each text, and whether it is a key. Yield a text that YAML aliases repeat only once."""
    if isinstance(plain, str):
        yield False, plain
    if not isinstance(plain, (Mapping, list)) or id(plain) in seen:
        return
    seen.add(id(plain))
    for key in plain if isinstance(plain, Mapping) else ():
        yield True, str(key)
    for each in plain.values() if isinstance(plain, Mapping) else plain:
        yield from _texts(each, seen)
