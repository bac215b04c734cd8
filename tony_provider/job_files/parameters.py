"""The section ``parameters`` of a job file, which defines values that users set for each run.

A parameter has the JSON Schema keys of Airflow's ``Param``, so a DAG's trigger form has the same constraints.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from tony_provider.runtime.jobspec.problems import NOT_GIVEN, Problem, SpecError, child, item, suggestion
from tony_provider.runtime.jobspec.units import UnitError, parse_boolean, parse_integer

SECTION = "parameters"
TEMPLATES = "templates"  # key of a job file; with `templates: false`, Jinja renders no text of the job

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TEXTS = ("title", "description", "section", "format", "pattern")
_OF_ITS_TYPE = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_LENGTHS = ("minLength", "maxLength")
_LISTS = ("enum", "examples")
_KEYS = ("type", "default", *_TEXTS, *_OF_ITS_TYPE, *_LENGTHS, *_LISTS)


class Misread(ValueError):  # noqa: N818 - named for what is wrong
    """A value does not have the type of its parameter. The message states the expected type."""


@attrs.frozen
class Parameter:
    """One parameter of a job file."""

    type: str  # string, integer, number or boolean
    default: Any = NOT_GIVEN  # NOT_GIVEN for a required parameter
    schema: Mapping[str, Any] = attrs.field(factory=dict)  # all other keys of the definition, in JSON Schema

    @property
    def is_required(self) -> bool:
        return self.default is NOT_GIVEN

    def wrong_with(self, value: Any) -> str:
        """Return why a value is not allowed, or "" if it is allowed."""
        from jsonschema import FormatChecker
        from jsonschema.validators import Draft202012Validator

        schema = {"type": self.type, **self.schema}
        found = Draft202012Validator(schema, format_checker=FormatChecker()).iter_errors(value)
        return "; ".join(str(each.message) for each in found)


def has_templates(plain: Mapping[str, Any]) -> bool:
    """Return whether Jinja renders the texts of a job file. The key ``templates: false`` turns this off.

    Raises SpecError.
    """
    given = plain.get(TEMPLATES)
    try:
        found = given is None or parse_boolean(given)
    except UnitError as error:
        raise SpecError([Problem(TEMPLATES, given, str(error))]) from error
    if not found and plain.get(SECTION):
        message = f"is false, so no template would use the section `{SECTION}`; remove one of the two keys"
        raise SpecError([Problem(TEMPLATES, given, message)])
    return found


def split_parameters(plain: Mapping[str, Any]) -> tuple[dict[str, Parameter], dict[str, Any]]:
    """Separate the parameters of a job file from its job.

    Raises SpecError with all problems.
    """
    job = {name: value for name, value in plain.items() if name not in (SECTION, TEMPLATES)}
    has_templates(plain)
    section = plain.get(SECTION)
    if section is None:
        return {}, job
    if not isinstance(section, Mapping):
        raise SpecError([Problem(SECTION, section, "must be a mapping of names to definitions: {type: integer, …}")])
    problems: list[Problem] = []
    found = {name: _parameter(child(SECTION, name), name, about, problems) for name, about in section.items()}
    if problems:
        raise SpecError(problems)
    return {name: each for name, each in found.items() if each is not None}, job


def read_value(kind: str, value: Any) -> Any:
    """Convert a value to the type ``kind``. Values from YAML or a command line may be text. Raises Misread."""
    try:
        return _READERS[kind](value)
    except (UnitError, ValueError) as error:
        raise Misread(str(error)) from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Misread("must be text")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise Misread("must be a number")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise Misread("must be a number") from None
    if not math.isfinite(number):
        raise Misread("must be a finite number")
    return int(number) if number.is_integer() and "." not in str(value) and "e" not in str(value).lower() else number


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "string": _text,
    "integer": parse_integer,
    "number": _number,
    "boolean": parse_boolean,
}


def _parameter(path: str, name: object, about: object, problems: list[Problem]) -> Parameter | None:
    before = len(problems)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        problems.append(Problem(path, name, "a parameter's name has letters, digits and _, and no leading digit"))
    if not isinstance(about, Mapping):
        problems.append(Problem(path, about, "must be a mapping, such as {type: integer, default: 2, minimum: 1}"))
        return None
    for key in about:
        if key not in _KEYS:
            hint = suggestion(str(key), list(_KEYS)) or f"; allowed: {', '.join(_KEYS)}"
            problems.append(Problem(child(path, key), about[key], f"unknown key{hint}"))
    kind = about.get("type")
    if kind not in _READERS:
        value = NOT_GIVEN if kind is None else kind
        problems.append(Problem(child(path, "type"), value, f"must be one of {', '.join(_READERS)}"))
        return None
    schema = _schema(path, str(kind), about, problems)
    default = about.get("default", NOT_GIVEN)
    if default is not NOT_GIVEN:
        default = _read(child(path, "default"), str(kind), default, problems)
    if len(problems) > before:
        return None
    parameter = Parameter(str(kind), default, schema)
    if not parameter.is_required and (wrong := parameter.wrong_with(default)):
        problems.append(Problem(child(path, "default"), default, wrong))
    return parameter


def _schema(path: str, kind: str, about: Mapping[str, Any], problems: list[Problem]) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for key in (each for each in _KEYS if each in about and each not in ("type", "default")):
        below = child(path, key)
        if key in _LISTS:
            if isinstance(about[key], Sequence) and not isinstance(about[key], str) and about[key]:
                schema[key] = [_read(item(below, n), kind, each, problems) for n, each in enumerate(about[key])]
            else:
                problems.append(Problem(below, about[key], "must be a list of values"))
        elif key in _OF_ITS_TYPE and kind not in ("integer", "number"):
            problems.append(Problem(below, about[key], f"applies only to numbers, but the parameter is of type {kind}"))
        elif key in _LENGTHS and kind != "string":
            problems.append(Problem(below, about[key], f"applies only to text, but the parameter is of type {kind}"))
        else:
            of = "integer" if key in _LENGTHS else "string" if key in _TEXTS else kind
            schema[key] = _read(below, of, about[key], problems)
    if isinstance(schema.get("pattern"), str):
        try:
            re.compile(schema["pattern"])
        except re.error as error:
            problems.append(Problem(child(path, "pattern"), schema["pattern"], f"is not a regular expression: {error}"))
    return schema


def _read(path: str, kind: str, value: Any, problems: list[Problem]) -> Any:
    try:
        return read_value(kind, value)
    except Misread as error:
        problems.append(Problem(path, value, str(error)))
        return None
