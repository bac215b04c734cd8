"""Parse and render the templates in job text.

The text is parsed before Jinja renders its templates, so a rendered value cannot change the structure of the job. The
module also checks that a job file uses only the permitted template expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import attrs
from jinja2 import StrictUndefined, TemplateError, meta, nodes
from jinja2.sandbox import SandboxedEnvironment

from tony_provider.job_files.parameters import SECTION, Misread, Parameter, has_templates, read_value
from tony_provider.runtime.jobspec.problems import NOT_GIVEN, Problem, SpecError, child, leaves, map_leaves, suggestion
from tony_provider.runtime.parsing.parse import load_source

MARKS = ("{{", "{%", "{#")  # starts of Jinja's expressions, statements and comments
_TEMPLATE = MARKS[:2]  # without Jinja's comments, which look like bash's ${#name}
_STATEMENT = "{%"
_RULE = (
    "the text is parsed before its templates are rendered. Write a template as a value or part of a value, in quotes "
    'and without tojson: "{{ params.workers }}". A statement such as {% if %} must begin and end within one value. '
    "Build a job in Python if its keys depend on a run. `templates: false` at the top turns templates off"
)


def load_templated(text: str, path: str = "") -> Mapping[str, Any]:
    """Parse job text in YAML or JSON into a mapping, and leave its templates unrendered.

    ``path`` is a prefix for the path of each problem. Raises SpecError, with a remedy, for text that would be a job
    only after rendering.
    """
    try:
        plain = load_source(text, path)
    except SpecError as error:
        if not any(mark in text for mark in _TEMPLATE):
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
        if is_key and any(mark in each for mark in _TEMPLATE):
            problems.append(Problem(child(path, each), NOT_GIVEN, f"a key must not be a template: {_RULE}"))
    if statements < text.count(_STATEMENT):
        problems.append(Problem(path, NOT_GIVEN, f"a Jinja statement is outside of the values: {_RULE}"))
    if problems:
        raise SpecError(problems)


def _texts(plain: Any, seen: set[int]) -> Iterator[tuple[bool, str]]:
    """Yield keys as ``(True, text)``, other texts as ``(False, text)``. Yield parts repeated by YAML aliases once."""
    if isinstance(plain, str):
        yield False, plain
    if not isinstance(plain, (Mapping, list)) or id(plain) in seen:
        return
    seen.add(id(plain))
    for key in plain if isinstance(plain, Mapping) else ():
        yield True, str(key)
    for each in plain.values() if isinstance(plain, Mapping) else plain:
        yield from _texts(each, seen)


_PARAMS, _MACROS = "params", "macros"
_QUOTE = "macros.tony.quote"
# Templates of a job file may use only this syntax, because users may run DAGs with job files of unknown authors.
_NODES = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.Tuple, nodes.List),
    *(nodes.If, nodes.For, nodes.Assign, nodes.CondExpr, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not),
    *(nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Neg, nodes.Pos, nodes.Concat),
    *(nodes.Filter, nodes.Test, nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Call),
)
_FILTERS = {
    *("abs", "capitalize", "d", "default", "first", "float", "int", "join", "last", "length", "list", "lower", "round"),
    *("string", "title", "trim", "upper"),
}
_METHODS = {"endswith", "lower", "removeprefix", "removesuffix", "replace", "split", "startswith", "strip", "upper"}
_LOOP = {"first", "index", "index0", "last", "length"}


def values_of(parameters: Mapping[str, Parameter], given: Sequence[str]) -> dict[str, Any]:
    """Return the value of each parameter from ``given`` (``workers=4``) or its default.

    Raises SpecError with all problems.
    """
    problems: list[Problem] = []
    texts: dict[str, str] = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not equals:
            problems.append(Problem(f"--param {each}", NOT_GIVEN, "should be NAME=VALUE, such as workers=4"))
        elif name not in parameters:
            known = ", ".join(parameters) or "none; its section `parameters` defines them"
            hint = suggestion(name, list(parameters)) or f"; it has {known}"
            problems.append(Problem(f"--param {name}", text, f"is not a parameter of the job{hint}"))
        else:
            texts[name] = text
    values = {name: _value(name, each, texts, problems) for name, each in parameters.items()}
    if problems:
        raise SpecError(problems)
    return values


def _value(name: str, parameter: Parameter, texts: Mapping[str, str], problems: list[Problem]) -> Any:
    if name not in texts:
        if parameter.is_required:
            message = f"has no default; set it with --param {name}=VALUE"
            problems.append(Problem(child(SECTION, name), NOT_GIVEN, message))
        return parameter.default
    try:
        value = read_value(parameter.type, texts[name])
        wrong = parameter.wrong_with(value)
    except Misread as error:
        value, wrong = texts[name], str(error)
    if wrong:
        problems.append(Problem(f"--param {name}", texts[name], wrong))
    return value


def rendered_job(job: Mapping[str, Any], values: Mapping[str, Any], quote: Callable[[object], str]) -> dict[str, Any]:
    """Return the job with rendered templates. Each text is rendered alone, so that a value never becomes a key.

    Templates may use ``params``, and ``macros.tony.quote``, which calls ``quote``. Raises SpecError for other names.
    """
    environment = SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)
    context = {_PARAMS: values, "macros": SimpleNamespace(tony=SimpleNamespace(quote=quote))}
    problems: list[Problem] = []

    def fill(path: str, value: Any) -> Any:
        if not has_template(value):
            return value
        try:
            return environment.from_string(value).render(context)
        except (TemplateError, TypeError, ValueError, ArithmeticError) as error:
            problems.append(Problem(path, value, f"cannot be rendered: {error}{_more(error)}"))
            return value

    whole: dict[str, Any] = map_leaves(job, fill)
    if problems:
        raise SpecError(problems)
    return whole


def _more(error: Exception) -> str:
    if "undefined" in str(error) or "has no attribute" in str(error):
        return "; only a DAG renders values of a run. Outside of a DAG, use only params and macros.tony.quote"
    return ""


def check_names(job: Mapping[str, Any], parameters: Mapping[str, Parameter]) -> None:
    """Check that the templates of a job file use its parameters, ``macros.tony.quote``, and nothing else.

    Without this check, a DAG would render the templates with all of Airflow's context. Rendering with one set of values
    takes only some branches of a template; this check covers all of them. Raises SpecError.
    """
    used: dict[str, str] = {}
    problems = []
    for path, text in leaves(job):
        if not has_template(text):
            continue
        tree, others = _parsed(path, text)
        if others:
            message = f"uses {', '.join(others)}; templates of a job file may use only {_PARAMS} and {_QUOTE}"
            problems.append(Problem(path, text, message))
        used |= {name: used.get(name, path) for name in _parameters_in(tree)}
    for name, path in used.items():
        if name not in parameters:
            known = ", ".join(parameters) or "none"
            hint = suggestion(name, list(parameters)) or f"; `{SECTION}` has {known}"
            problems.append(Problem(path, NOT_GIVEN, f"params.{name} is not a parameter of the job{hint}"))
    unused = [name for name in parameters if name not in used]
    problems += [
        Problem(child(SECTION, name), NOT_GIVEN, f'is not used: write "{{{{ params.{name} }}}}" where the job needs it')
        for name in unused
    ]
    if problems:
        raise SpecError(problems)


def _parsed(path: str, text: str) -> tuple[nodes.Template, list[str]]:
    """Parse a template. Return its syntax tree, and what a job file must not use in it. Raises SpecError."""
    try:
        tree = SandboxedEnvironment().parse(text)
        names = meta.find_undeclared_variables(tree)
        files = [str(name) for name in meta.find_referenced_templates(tree)]
    except TemplateError as error:
        raise SpecError([Problem(path, text, f"is not a template that Jinja can parse: {error}")]) from error
    used = [node.name for node in tree.find_all(nodes.Name)]
    if used.count(_MACROS) == sum(map(_is_quote, tree.find_all(nodes.Getattr))):
        names.discard(_MACROS)
    if "self" in used:
        names.add("self")  # `self` gives access to the whole context
    return tree, (sorted(names - {_PARAMS}) + files) or sorted(set(_not_allowed(tree)))


def _not_allowed(tree: nodes.Template) -> Iterator[str]:
    """Yield the parts of a template that could give access to Jinja's or Airflow's own objects.

    Airflow's sandbox allows templates to read attributes with a leading underscore. Attributes of macros and loops lead
    to Jinja's environment, which compiles and runs Python.
    """
    callees = {id(call.node) for call in tree.find_all(nodes.Call)}
    for node in (tree, *tree.find_all(nodes.Node)):
        if not isinstance(node, _NODES):
            kind = type(node).__name__
            yield f"{{% {(kind.removesuffix('Block') or kind).lower()} %}}"
        elif isinstance(node, nodes.Filter) and (node.name not in _FILTERS or len(node.args) + len(node.kwargs) > 1):
            yield f"the filter {node.name}"
        elif isinstance(node, nodes.Test) and node.name in ("filter", "test"):
            yield f"the test {node.name}"
        elif isinstance(node, nodes.Call) and not _is_callable(node.node):
            yield "a call"
        elif isinstance(node, nodes.Getattr) and not (
            _is_name(node.node, _PARAMS)
            or _is_tony(node)
            or _is_quote(node)
            or (_is_name(node.node, "loop") and node.attr in _LOOP)
            or id(node) in callees
        ):
            yield f".{node.attr}"
        elif isinstance(node, nodes.Getitem) and not (
            _is_name(node.node, _PARAMS) or isinstance(node.arg, nodes.Slice) or _is_number(node.arg)
        ):
            yield "an item by its name"


def _is_callable(node: nodes.Node) -> bool:
    return _is_name(node, "range") or (isinstance(node, nodes.Getattr) and (_is_quote(node) or node.attr in _METHODS))


def _is_number(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Const) and isinstance(node.value, int)


def _is_quote(node: nodes.Getattr) -> bool:
    """Return whether the node is ``macros.tony.quote``."""
    return node.attr == "quote" and _is_tony(node.node)


def _is_tony(node: nodes.Node) -> bool:
    """Return whether the node is ``macros.tony``."""
    return isinstance(node, nodes.Getattr) and node.attr == "tony" and _is_name(node.node, _MACROS)


def _is_name(node: nodes.Node, name: str) -> bool:
    return isinstance(node, nodes.Name) and node.name == name


def _parameters_in(tree: nodes.Template) -> Iterator[str]:
    """Yield the names of the parameters that a template uses."""
    for node in tree.find_all(nodes.Getattr):
        if _is_name(node.node, _PARAMS):
            yield node.attr
    for item_of in tree.find_all(nodes.Getitem):
        key = item_of.arg
        if _is_name(item_of.node, _PARAMS) and isinstance(key, nodes.Const) and isinstance(key.value, str):
            yield key.value


def has_template(value: object) -> bool:
    """Return whether a value is text with Jinja syntax, including comments."""
    return isinstance(value, str) and any(mark in value for mark in MARKS)


def templates_in(value: Any) -> bool:
    """Return whether a job contains templates anywhere."""
    return any(isinstance(each, str) and any(mark in each for mark in _TEMPLATE) for _, each in leaves(value))


@attrs.frozen
class Literal:
    """Text that Jinja must not render, written as ``airflow.sdk.literal`` in a DAG file."""

    text: str


def as_literals(value: Any) -> Any:
    """Return a job, or a part of it, in which each text that looks like a template is a Literal."""
    return map_leaves(value, lambda _, each: Literal(each) if has_template(each) else each)


def has_literals(value: Any) -> bool:
    """Return whether a value contains a Literal at any depth."""
    return any(isinstance(each, Literal) for _, each in leaves(value))
