"""The function of a DAG file as a file of its own, or every reason why it cannot be one."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import attrs

from tony_provider.airflow_versions.context_keys import KNOWN_CONTEXT_KEYS
from tony_provider.decorators.free_names import global_names
from tony_provider.exceptions import TonySpecError

_KINDS = inspect.Parameter


@attrs.frozen
class TrainingFunction:
    """A function of a DAG file as a file that runs without it: its decorators and all else are left out."""

    name: str  # the one after ``def``, whatever ``__name__`` says
    text: str
    file: str  # the DAG file's name
    offset: int  # line n of ``text`` is line n + offset of the DAG file

    @classmethod
    def of(cls, function: Callable[..., Any]) -> TrainingFunction:
        """The file for ``function``.

        Raises TonySpecError with everything that keeps it from running without the DAG file.
        """
        if problem := _kind_problem(function):
            raise TonySpecError(f"@task.tony: {problem}")
        assert isinstance(function, FunctionType)  # noqa: S101 - all else is a problem
        code = function.__code__
        where = f"{code.co_name} ({Path(code.co_filename).name}, line {code.co_firstlineno})"
        try:
            source, first = _definition(function)
        except (OSError, SyntaxError, ValueError) as error:
            raise TonySpecError(
                f"@task.tony: {where}: its source cannot be read, and the source is what would run: {error}"
            ) from None
        problems = [*_parameter_problems(function), *_name_problems(function, source)]
        if problems:
            listed = "".join(f"\n  - {problem}" for problem in problems)
            raise TonySpecError(f"@task.tony: {where} cannot run without its DAG file:{listed}")
        return cls._of_source(code.co_name, Path(code.co_filename).name, source, first)

    @classmethod
    def _of_source(cls, name: str, file: str, source: str, first: int) -> TrainingFunction:
        # Nothing that other lines of the DAG file can change: the text tells whether the training is still the same.
        head = (
            f"# The function {name} of {file}, as @task.tony has sent it. Tracebacks count the lines of this file.\n"
            f"from __future__ import annotations\n\n{_block(source)}"
        )
        return cls(name, head + source, file, first - head.count("\n") - 1)


def _kind_problem(function: Callable[..., Any]) -> str:
    if not isinstance(function, FunctionType):
        return f"{function!r} is a {type(function).__name__}; decorate a plain function, written with def"
    name = function.__code__.co_name
    if name == "<lambda>":
        return "a lambda has no source of its own; write a function with def"
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return f"{name} is asynchronous; write a plain function, which may call asyncio.run()"
    if inspect.isgeneratorfunction(function):
        return f"{name} yields; a training returns, once"
    if hasattr(function, "__wrapped__"):
        return f"{name} has another decorator below @task.tony, which would not travel; call what it does inside"
    return ""


def _definition(function: FunctionType) -> tuple[str, int]:
    """The statement as it is written, without its decorators, and the line of the DAG file that it begins in.

    Raises OSError, SyntaxError, ValueError.
    """
    lines, first = inspect.getsourcelines(function)
    block = _block(lines[0])
    statement: ast.stmt = ast.parse(block + "".join(lines)).body[0]
    if isinstance(statement, ast.If):
        statement = statement.body[0]
    if not isinstance(statement, ast.FunctionDef) or statement.name != function.__code__.co_name:
        raise ValueError(f"there is no 'def {function.__code__.co_name}' in line {first}; was the file changed?")
    above = block.count("\n")
    begin, end = statement.lineno - above - 1, (statement.end_lineno or statement.lineno) - above
    return "".join(lines[begin:end]).rstrip() + "\n", first + begin


def _block(source: str) -> str:
    """What an indented function needs above it: moving its lines would change texts of several lines in it."""
    return "if True:\n" if source[:1].isspace() else ""


def _parameter_problems(function: FunctionType) -> Iterator[str]:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is _KINDS.VAR_KEYWORD:
            yield f"**{parameter.name}: Airflow's context does not travel; name the arguments"
        elif parameter.name in KNOWN_CONTEXT_KEYS:
            yield (
                f"the parameter {parameter.name} is one that Airflow fills from its context, which does not travel; "
                "name it otherwise, and give it what is needed (templates are rendered)"
            )


def _name_problems(function: FunctionType, source: str) -> Iterator[str]:
    closure = set(function.__code__.co_freevars)
    for name in global_names(_block(source) + source, known=function.__globals__.keys() | closure):
        if name in closure:
            yield f"{name} belongs to the function that {function.__code__.co_name} stands in; make it an argument"
        elif name not in function.__globals__:
            yield f"{name} is not defined; import or assign it inside"
        else:
            yield f"{name} is {_described(function.__globals__[name], function.__module__)}"


def _described(value: object, module: str) -> str:
    if isinstance(value, ModuleType):
        return f"the module {value.__name__}; import it inside"
    origin = getattr(value, "__module__", None)
    if isinstance(value, type) or callable(value):
        if origin == module or not isinstance(origin, str):
            return "defined in the DAG file; define it inside, or in a file of the job that is imported inside"
        return f"imported from {origin}; import it inside"
    return f"a value of the DAG file ({type(value).__name__}); make it an argument, or assign it inside"
