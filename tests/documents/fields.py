"""Tables of what is no argument: keys of results, of a connection's extra, of Airflow's configuration."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import attrs

from tests.documents.row import Row, row, type_of
from tony_provider.configuration import OPTIONS
from tony_provider.hooks.fields import CONNECTION_FIELDS

_TYPES = {"string": "text", "integer": "whole number", "boolean": "truth value", "object": "object"}
_NAMED = re.compile(r"\bTONY_\w+|\"\w+\"|\bcheckpoint\.\w+|\bapplication_\d\w+")


def of_attrs(kind: type) -> Iterator[Row]:
    """The meaning of a field is the comment on its line. Raises ValueError for one that has none."""
    source = inspect.getsource(kind)
    for field in attrs.fields(kind):
        line = re.search(rf"^    {field.name}: (?P<type>.+?)(?: = .*?)?  # (?P<text>.+)$", source, re.MULTILINE)
        if line is None:
            raise ValueError(f"{kind.__name__}.{field.name} has no comment on its line")
        annotation = line["type"]
        if annotation.startswith("dict[str, float"):
            annotation = "dict[str, float]"  # its texts are "NaN" and the like
        yield row(field.name, type_of(annotation), _NAMED.sub(r"``\g<0>``", line["text"]).replace("None", "null"))


def of_connection() -> Iterator[Row]:
    for name, field in CONNECTION_FIELDS.items():
        schema = field["schema"]
        kind = " or ".join(f"`{value}`" for value in schema["enum"]) if "enum" in schema else _TYPES[schema["type"][0]]
        yield row(name, kind, field["description"])


def of_configuration() -> Iterator[Row]:
    for option in OPTIONS:
        yield row(option.name, "number above 0", option.description, f"{option.default:g}")
