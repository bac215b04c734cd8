"""``@task.tony``: sends a function of a DAG file to YARN, and runs it there as a training.

``TrainingFunction`` extracts the function's source, and checks that it needs no other names of the DAG file.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import symtable
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import attrs
from airflow.providers.common.compat.sdk import DecoratedOperator, XComArg, task_decorator_factory

from tony_provider.compat import KNOWN_CONTEXT_KEYS
from tony_provider.exceptions import TonySpecError
from tony_provider.links.job_links import LINKS
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.sdk.tony_call import FUNCTION_FILE

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, TaskDecorator

    from tony_provider.runtime.jobspec.model import JobSpec

_OF_EVERY_MODULE = frozenset({"__name__", "__file__", "__doc__", "__builtins__"})


def global_names(source: str, *, known: Collection[str]) -> list[str]:
    """Return the global names that the function in ``source`` uses, without built-in names.

    Names in annotations are left out, because annotations are not evaluated. ``known`` are names that the DAG file
    defines. Such a name is included even if a built-in has the same name.
    """
    tree = ast.parse(source)
    _remove_annotations(tree)
    used: set[str] = set()
    made: set[str] = set()
    _collect(symtable.symtable(ast.unparse(tree), "<function>", "exec"), True, used, made)
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


def _remove_annotations(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(value=None)


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

        Raises TonySpecError with all reasons why the function cannot run without the DAG file.
        """
        if problem := _kind_problem(function):
            raise TonySpecError(f"@task.tony: {problem}")
        assert isinstance(function, FunctionType)  # noqa: S101 - ensured by ``_kind_problem``
        code = function.__code__
        file = Path(code.co_filename).name
        where = f"{code.co_name} ({file}, line {code.co_firstlineno})"
        try:
            source, first = _definition(function)
        except (OSError, SyntaxError, ValueError) as error:
            raise TonySpecError(
                f"@task.tony: {where}: cannot read the function's source, which the job would run: {error}"
            ) from None
        if problems := [*_parameter_problems(function), *_name_problems(function, source)]:
            listed = "".join(f"\n  - {problem}" for problem in problems)
            raise TonySpecError(f"@task.tony: {where} cannot run without its DAG file:{listed}")
        # The text must not change with other lines of the DAG file, because a changed text means a changed training.
        head = (
            f"# The function {code.co_name} of {file}, as @task.tony has sent it. Tracebacks count the lines of this "
            f"file.\nfrom __future__ import annotations\n\n{_block(source)}"
        )
        return cls(code.co_name, head + source, file, first - head.count("\n") - 1)


def _kind_problem(function: Callable[..., Any]) -> str:
    if not isinstance(function, FunctionType):
        return f"{function!r} is a {type(function).__name__}; decorate a plain function, written with def"
    name = function.__code__.co_name
    if name == "<lambda>":
        return "a lambda has no source of its own; write a function with def"
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return f"{name} is asynchronous; write a plain function, which may call asyncio.run()"
    if inspect.isgeneratorfunction(function):
        return f"{name} is a generator; write a function that returns its result"
    if hasattr(function, "__wrapped__"):
        return f"{name} has another decorator below @task.tony, which is not sent to the nodes; call it inside"
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
            yield f"**{parameter.name}: Airflow's context is not sent to the nodes; name the arguments"
        elif parameter.name in KNOWN_CONTEXT_KEYS:
            yield (
                f"Airflow fills the parameter {parameter.name} from its context, which is not sent to the nodes; "
                "rename it, and pass the needed value as an argument (templates are rendered)"
            )


def _name_problems(function: FunctionType, source: str) -> Iterator[str]:
    closure = set(function.__code__.co_freevars)
    for name in global_names(_block(source) + source, known=function.__globals__.keys() | closure):
        if name in closure:
            yield f"{name} belongs to the function that contains {function.__code__.co_name}; make it an argument"
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
        from tony_provider.decorators.function_call import function_command_patch

        return function_command_patch(job, self._function.name)

    @contextmanager
    def sent(self, job: JobSpec) -> Iterator[JobSpec]:
        """Add the function and its arguments. In a dry run, templates replace values that other tasks will return."""
        from tony_provider.decorators.function_call import encode_call, write_function_files

        args, kwargs = [*map(_named, self.op_args)], {name: _named(value) for name, value in self.op_kwargs.items()}
        call = encode_call(self.python_callable, args, kwargs)
        with tempfile.TemporaryDirectory(prefix="tony-") as folder:
            yield attrs.evolve(job, files=[*job.files, *write_function_files(Path(folder), self._function.text, call)])

    def answer(self, context: Context, result: dict[str, Any]) -> Any:
        if self.do_xcom_push:
            context["ti"].xcom_push(RESULT_KEY, {key: value for key, value in result.items() if key != "returned"})
        if self.multiple_outputs and isinstance(result["returned"], Mapping):
            from tony_provider.decorators.function_call import check_result_keys  # here: DAG files load this module

            check_result_keys(result["returned"], OWN_KEYS)
        return result["returned"]


def _named(argument: Any) -> Any:
    """Return an XCom argument, which exists only before rendering, as its template. Return other values unchanged."""
    return str(argument) if isinstance(argument, XComArg) else argument


def tony_task(
    python_callable: Callable[..., Any] | None = None,
    multiple_outputs: bool | None = None,
    **kwargs: Any,
) -> TaskDecorator:
    """Run a function as a training on YARN, or on this machine: ``@task.tony(job={…})``.

    The job receives the source of the function, without decorators and without the rest of the DAG file. The function
    runs in every task type of ``job`` that has no ``command``. The Airflow task returns the value that the function
    returns in the chief or rank 0. This value must be JSON of at most 1 MiB. See the guide "Write the training in the
    DAG file with @task.tony".

    :param multiple_outputs: whether each key of the returned mapping is a separate XCom; default: according to the
        function's return annotation, as with ``@task``.
    :param kwargs: arguments of ``TonyTrainOperator``. The argument ``job`` is required.

    Raises TonySpecError when Airflow parses the DAG file, if the function cannot run without the DAG file.
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
