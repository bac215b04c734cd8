"""A job file with its parameters' values filled in, as Airflow fills in those of a DAG."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from jinja2 import StrictUndefined, TemplateError, nodes
from jinja2.sandbox import SandboxedEnvironment

from tony_provider.job_files.parameters import SECTION, Misread, Parameter, read_value
from tony_provider.runtime.spec.problems import NOT_GIVEN, Problem, SpecError, child, item
from tony_provider.runtime.spec.reader import suggestion

_TEMPLATE = ("{{", "{%")
_MARKS = (*_TEMPLATE, "{#")  # a comment: also the length of a variable in bash, ${#name}
_PARAMS = "params"


def values_of(parameters: Mapping[str, Parameter], given: Sequence[str]) -> dict[str, Any]:
    """What each parameter is: as ``given`` (``workers=4``), else its default. Raises SpecError with all problems."""
    problems: list[Problem] = []
    texts: dict[str, str] = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not equals:
            problems.append(Problem(f"--param {each}", NOT_GIVEN, "should be NAME=VALUE, such as workers=4"))
        elif name not in parameters:
            known = ", ".join(parameters) or "none; its section `parameters` names them"
            hint = suggestion(name, list(parameters)) or f"; it has {known}"
            problems.append(Problem(f"--param {name}", text, f"is no parameter of the job{hint}"))
        else:
            texts[name] = text
    values = {name: _value(name, each, texts, problems) for name, each in parameters.items()}
    if problems:
        raise SpecError(problems)
    return values


def _value(name: str, parameter: Parameter, texts: Mapping[str, str], problems: list[Problem]) -> Any:
    if name not in texts:
        if parameter.is_required:
            message = f"has no default; give it: --param {name}=VALUE"
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


def filled(job: Mapping[str, Any], values: Mapping[str, Any], quote: Callable[[object], str]) -> dict[str, Any]:
    """The job with the values in place of its templates, in each text by itself: a value never becomes a key.

    Templates may use ``params``, and ``macros.tony.quote``: ``quote``. Raises SpecError for what else they hold.
    """
    environment = SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)
    context = {_PARAMS: values, "macros": SimpleNamespace(tony=SimpleNamespace(quote=quote))}
    problems: list[Problem] = []

    def fill(value: Any, path: str) -> Any:
        if isinstance(value, Mapping):
            return {key: fill(each, child(path, key)) for key, each in value.items()}
        if isinstance(value, list):
            return [fill(each, item(path, index)) for index, each in enumerate(value)]
        if not has_template(value):
            return value
        try:
            return environment.from_string(value).render(context)
        except (TemplateError, TypeError, ValueError, ArithmeticError) as error:
            problems.append(Problem(path, value, f"cannot be filled in: {error}{_more(error)}"))
            return value

    whole = {key: fill(each, child("", key)) for key, each in job.items()}
    if problems:
        raise SpecError(problems)
    return whole


def _more(error: Exception) -> str:
    if "undefined" in str(error) or "has no attribute" in str(error):
        return "; what belongs to a run, only a DAG fills in: outside of one there are params and macros.tony.quote"
    return ""


def check_names(job: Mapping[str, Any], parameters: Mapping[str, Parameter]) -> None:
    """Check that the job uses its parameters, and no others. Raises SpecError."""
    used = dict(_used(job, ""))
    problems = []
    for name, path in used.items():
        if name not in parameters:
            known = ", ".join(parameters) or "none"
            hint = suggestion(name, list(parameters)) or f"; `{SECTION}` has {known}"
            problems.append(Problem(path, NOT_GIVEN, f"params.{name} is no parameter of the job{hint}"))
    unused = [name for name in parameters if name not in used]
    problems += [
        Problem(child(SECTION, name), NOT_GIVEN, f'is used nowhere: write "{{{{ params.{name} }}}}" where it belongs')
        for name in unused
    ]
    if problems:
        raise SpecError(problems)


def _used(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """The parameters that templates name, and where."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _used(each, child(path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _used(each, item(path, index))
    elif has_template(value):
        try:
            tree = SandboxedEnvironment().parse(value)
        except TemplateError as error:
            raise SpecError([Problem(path, value, f"is no template that Jinja reads: {error}")]) from error
        for node in tree.find_all(nodes.Getattr):
            if _is_params(node.node):
                yield node.attr, path
        for item_of in tree.find_all(nodes.Getitem):
            if _is_params(item_of.node) and isinstance(item_of.arg, nodes.Const) and isinstance(item_of.arg.value, str):
                yield item_of.arg.value, path


def _is_params(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Name) and node.name == _PARAMS


def has_template(value: object) -> bool:
    """Whether a value is a text in which Jinja finds something."""
    return isinstance(value, str) and any(mark in value for mark in _MARKS)


def templates_in(value: Any) -> bool:
    """Whether something is to be filled in anywhere in a job."""
    if isinstance(value, Mapping):
        return any(map(templates_in, value.values()))
    if isinstance(value, list):
        return any(map(templates_in, value))
    return isinstance(value, str) and any(mark in value for mark in _TEMPLATE)


def as_it_is(value: Any) -> Any:
    """A job's value, or a whole job, as one of a DAG, of which Jinja changes nothing."""
    if isinstance(value, Mapping):
        return {key: as_it_is(each) for key, each in value.items()}
    if isinstance(value, list):
        return [as_it_is(each) for each in value]
    return f"{{% raw %}}{value}{{% endraw %}}" if has_template(value) else value
