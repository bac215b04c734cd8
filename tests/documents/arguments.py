"""The arguments of a class: its signature says names, types and defaults, its docstring what they mean."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from tests.documents.row import Row, row, type_of

_PARAM = re.compile(r"^:param (?P<name>\w+): (?P<text>.+?)(?=^:|^$|\Z)", re.MULTILINE | re.DOTALL)
# Rendered by the operator itself: Airflow would keep their values.
_RENDERED_LATE = {"secrets"}


def of(kind: type) -> Iterator[Row]:
    """Raises ValueError where docstring and signature do not agree on what there is, or on what is templated."""
    described = descriptions(kind)
    parameters = own_parameters(kind)
    templated = {*getattr(kind, "template_fields", ()), *_RENDERED_LATE}
    for parameter in parameters:
        if parameter.name not in described:
            raise ValueError(f"{kind.__name__}: the docstring has no :param {parameter.name}:")
        text = described[parameter.name]
        if hasattr(kind, "template_fields") and ("Templated" in text) != (parameter.name in templated):
            raise ValueError(f"{kind.__name__}: whether {parameter.name} is templated, the docstring says wrongly")
        optional = parameter.annotation.removesuffix(" | None")
        yield row(parameter.name, type_of(optional), text, _default(parameter))
    if unknown := described.keys() - {parameter.name for parameter in parameters}:
        raise ValueError(f"{kind.__name__}: the docstring has a :param for what there is not: {unknown}")


def descriptions(kind: type) -> dict[str, str]:
    return {found["name"]: found["text"] for found in _PARAM.finditer(inspect.getdoc(kind) or "")}


def own_parameters(kind: type) -> list[inspect.Parameter]:
    parameters = inspect.signature(vars(kind)["__init__"]).parameters.values()
    return [each for each in parameters if each.name != "self" and each.kind is not each.VAR_KEYWORD]


def _default(parameter: inspect.Parameter) -> str | None:
    """None where the docstring says it: for what is found out, or configured."""
    value: Any = parameter.default
    if value is parameter.empty:
        return "needed"
    if value is None or parameter.name == "deferrable":
        return None
    if isinstance(value, str):
        return f"`{value}`"
    if isinstance(value, (list, tuple)):
        return ", ".join(f"`{each}`" for each in value)
    if isinstance(value, timedelta):
        return f"{value.total_seconds() / 60:g} minutes"
    return f"{value:g}" if isinstance(value, float) else f"`{value}`"
