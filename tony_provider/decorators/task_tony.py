"""``@task.tony``: sends a function of a DAG file to YARN, and runs it there as a training.

The job gets a command, two files with the call, and a permanent exit code. The keys of the returned value are checked.

Also checks the keys of the returned value.

``TrainingFunction`` extracts the function's source, and checks that it needs no other names of the DAG file.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import re
import symtable
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import attrs
from airflow.providers.common.compat.sdk import DecoratedOperator, XComArg, task_decorator_factory

from tony_provider.compat import KNOWN_CONTEXT_KEYS
from tony_provider.exceptions import TonyResultRefused, TonySpecError
from tony_provider.links.job_links import LINKS
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.frameworks.base import has_default_command
from tony_provider.runtime.jobspec.model import Resource
from tony_provider.runtime.jobspec.problems import shown
from tony_provider.runtime.sdk import tony_call
from tony_provider.runtime.sdk.tony_call import FUNCTION_FILE

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, TaskDecorator

    from tony_provider.runtime.jobspec.model import JobSpec


def function_command_patch(whole: Mapping[str, Any], function: str) -> Mapping[str, Any]:
    """Return the keys to merge over a job so that each type without a command calls the function.

    A type also has a command if the framework supplies one. ``whole`` is the job with all its layers. Raises
    TonySpecError if every type has a command.
    """
    tasks = whole.get("tasks")
    if not isinstance(tasks, Mapping):
        return {}  # the parser of the job reports the problem
    types = [
        name
        for name, task in tasks.items()
        if isinstance(task, Mapping)
        and not task.get("command")
        and not has_default_command(whole.get("framework"), str(name), task.get("role"))
    ]
    if tasks and not types and all(isinstance(task, Mapping) for task in tasks.values()):
        raise TonySpecError(
            f"tasks: every type has a command ({', '.join(map(str, tasks))}), so that none would call {function}(); "
            "leave it out where the function is to run"
        )
    patch: dict[str, Any] = {"tasks": {name: {"command": tony_call.COMMAND} for name in types}}
    restart = whole.get("restart") or {}
    codes = (restart.get("permanent_exit_codes") or []) if isinstance(restart, Mapping) else None
    if isinstance(codes, Sequence) and not isinstance(codes, str):
        patch["restart"] = {"permanent_exit_codes": [*codes, tony_call.REFUSED]}
    return patch


def encode_call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Return the call as JSON, independent of how the arguments are passed.

    Raises TonySpecError for arguments that JSON cannot represent.
    """
    name = function.__code__.co_name  # its name in the source; ``__name__`` may differ
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise TonySpecError(f"@task.tony: {name}() cannot be called so: {error}") from error
    problems = []
    for parameter, value in bound.arguments.items():
        try:
            bound.arguments[parameter] = tony_call.plain(value, parameter)
        except tony_call.NotJsonError as error:
            problems.append(str(error))
    if problems:
        raise TonySpecError(f"@task.tony: arguments of {name}() are JSON: {'; '.join(problems)}")
    call = {"function": name, "args": list(bound.args), "kwargs": bound.kwargs}
    return json.dumps(call).encode()


def write_function_files(folder: Path, text: str, call: bytes) -> list[Resource]:
    """Write the function and its call to ``folder``. Return them as files of a job, with fixed names for all tries."""
    (folder / tony_call.FUNCTION_FILE).write_text(text, encoding="utf-8")
    (folder / tony_call.ARGUMENTS_FILE).write_bytes(call)
    return [Resource(str(folder / name), name) for name in (tony_call.FUNCTION_FILE, tony_call.ARGUMENTS_FILE)]


_PART = r"(?!\.{1,2}(?:/|\Z))[\w .,:=@+()-]+"
_KEY = re.compile(rf"{_PART}(?:/{_PART})*")


def check_result_keys(keys: Iterable[object], taken: Collection[str]) -> None:
    """Check that each key can be an XCom of the task, and is not a key of the provider's own XComs.

    :param taken: the keys of the provider's own XComs.

    Raises TonyResultRefused.
    """
    for key in keys:
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            rule = "letters, digits, blanks and _ . , : = @ + ( ) -, with / between two parts"
            raise TonyResultRefused(f"@task.tony: the returned key {shown(key)} cannot be an XCom; a key has {rule}")
        if key in taken:
            raise TonyResultRefused(
                f"@task.tony: the returned key {shown(key)} is the key of an XCom that the task has itself; return "
                "another key, or leave multiple_outputs out"
            )


_OF_EVERY_MODULE = frozenset({"__name__", "__file__", "__doc__", "__builtins__"})


def global_names(source: str, *, known: Collection[str]) -> list[str]:
    """Return the global names that the function in ``source`` uses, without built-in names.

    Annotations do not count, because they are not evaluated. ``known`` are names that are redefined where the function
    is defined, so they do not count as built-in.
    """
    stripped = _WithoutAnnotations().visit(ast.parse(source))
    used: set[str] = set()
    made: set[str] = set()
    _collect(symtable.symtable(ast.unparse(stripped), "<function>", "exec"), True, used, made)
    built_in = set(dir(builtins)) - set(known)
    return sorted(used - made - built_in - _OF_EVERY_MODULE)


def _collect(table: symtable.SymbolTable, is_top: bool, used: set[str], made: set[str]) -> None:
    for symbol in table.get_symbols():
        if is_top or symbol.is_global():
            if symbol.is_assigned() or symbol.is_imported():
                made.add(symbol.get_name())
            if symbol.is_referenced():
                used.add(symbol.get_name())
    for child in table.get_children():
        _collect(child, False, used, made)


class _WithoutAnnotations(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(value=None)
        return self.generic_visit(node)


_KINDS = inspect.Parameter


@attrs.frozen
class TrainingFunction:
    """A function of a DAG file as a separate file, without its decorators and the rest of the DAG file."""

    name: str  # its name in the source; ``__name__`` may differ
    text: str
    file: str  # the DAG file's name
    offset: int  # line n of ``text`` is line n + offset of the DAG file

    @classmethod
    def of(cls, function: Callable[..., Any]) -> TrainingFunction:
        """Return the file for ``function``.

        Raises TonySpecError with all reasons why it cannot run without the DAG file.
        """
        if problem := _kind_problem(function):
            raise TonySpecError(f"@task.tony: {problem}")
        assert isinstance(function, FunctionType)  # noqa: S101 - everything else is a problem
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
        # Independent of other lines of the DAG file, because a changed text means a changed training.
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
    """Return the function's source without decorators, and its first line number in the DAG file.

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
    """Return a line to put above an indented function. Removing the indentation would change multi-line strings."""
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


RESULT_KEY = "tony"  # key of the XCom with the result of TonyTrainOperator
OWN_KEYS = frozenset({RESULT_KEY, *(link.xcom_key for link in LINKS)})  # keys of XComs that the task pushes itself


class _TonyDecoratedOperator(DecoratedOperator, TonyTrainOperator):
    """Sends the function's source and arguments with the job, and returns the function's return value."""

    template_fields: Sequence[str] = (*TonyTrainOperator.template_fields, *DecoratedOperator.template_fields)
    template_fields_renderers = {  # noqa: RUF012 - Airflow's form
        **TonyTrainOperator.template_fields_renderers,
        **DecoratedOperator.template_fields_renderers,
    }
    custom_operator_name = "@task.tony"

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        function = TrainingFunction.of(python_callable)
        super().__init__(python_callable=python_callable, op_args=op_args, op_kwargs=op_kwargs, **kwargs)
        self._function = function

    def execute(self, context: Context) -> Any:
        function = self._function
        self.log.info("Line n of %s is line n%+d of %s", FUNCTION_FILE, function.offset, function.file)
        return super().execute(context)

    def completed(self, job: Mapping[str, Any]) -> Mapping[str, Any]:

        return function_command_patch(job, self._function.name)

    @contextmanager
    def sent(self, job: JobSpec) -> Iterator[JobSpec]:
        """Add the function and its arguments. In a dry run, templates replace values that other tasks will return."""

        args, kwargs = [*map(_named, self.op_args)], {name: _named(value) for name, value in self.op_kwargs.items()}
        call = encode_call(self.python_callable, args, kwargs)
        with tempfile.TemporaryDirectory(prefix="tony-") as folder:
            yield attrs.evolve(job, files=[*job.files, *write_function_files(Path(folder), self._function.text, call)])

    def answer(self, context: Context, result: dict[str, Any]) -> Any:
        if self.do_xcom_push:
            context["ti"].xcom_push(RESULT_KEY, {key: value for key, value in result.items() if key != "returned"})
        if self.multiple_outputs and isinstance(result["returned"], Mapping):
            check_result_keys(result["returned"], OWN_KEYS)
        return result["returned"]


def _named(argument: Any) -> Any:
    """Return the template of another task's return value. After rendering, there is none."""
    return str(argument) if isinstance(argument, XComArg) else argument


def tony_task(
    python_callable: Callable[..., Any] | None = None,
    multiple_outputs: bool | None = None,
    **kwargs: Any,
) -> TaskDecorator:
    """Run a function as a training on YARN, or on this machine: ``@task.tony(job={…})``.

    The source of the function is sent with the job, without decorators and the rest of the DAG file. The function runs
    in every task type of ``job`` that has no ``command``. The task returns the function's return value in the chief, or
    rank 0: JSON of at most 1 MiB. See docs/decorator.md.

    :param multiple_outputs: whether to push each key of the returned mapping as a separate XCom; default: according to
        the function's return annotation, like with ``@task``.
    :param kwargs: the arguments of ``TonyTrainOperator``; ``job`` is required.

    Raises TonySpecError at the parse of the DAG file if the function cannot run without the file.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        TrainingFunction.of(function)  # here as well: a mapped task creates no operator before it runs
        return task_decorator_factory(
            python_callable=function,
            multiple_outputs=multiple_outputs,
            decorated_operator_class=_TonyDecoratedOperator,
            **kwargs,
        )

    return decorate if python_callable is None else decorate(python_callable)  # type: ignore[return-value]
