"""``@task.tony``: a function of the DAG file is the training code."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from airflow.providers.common.compat.sdk import DecoratedOperator, XComArg, task_decorator_factory

from tony_provider.decorators.function import TrainingFunction
from tony_provider.links.tony import LINKS
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.sdk.tony_call import FUNCTION_FILE

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, TaskDecorator

    from tony_provider.runtime.spec.model import JobSpec

RESULT_KEY = "tony"  # of the XCom that holds what TonyTrainOperator would have returned
OWN_KEYS = frozenset({RESULT_KEY, *(link.xcom_key for link in LINKS)})  # of the XComs that the task pushes itself


class _TonyDecoratedOperator(DecoratedOperator, TonyTrainOperator):
    """Sends the function's source and arguments along with the job, and returns what the function returned."""

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
        from tony_provider.decorators.sending import calling

        return calling(job, self._function.name)

    @contextmanager
    def sent(self, job: JobSpec) -> Iterator[JobSpec]:
        """With the function and its arguments. In a dry run, those that are yet to be returned stand for themselves."""
        from tony_provider.decorators.sending import call_of, written

        args, kwargs = [*map(_named, self.op_args)], {name: _named(value) for name, value in self.op_kwargs.items()}
        call = call_of(self.python_callable, args, kwargs)
        with tempfile.TemporaryDirectory(prefix="tony-") as folder:
            yield attrs.evolve(job, files=[*job.files, *written(Path(folder), self._function.text, call)])

    def answer(self, context: Context, result: dict[str, Any]) -> Any:
        if self.do_xcom_push:
            context["ti"].xcom_push(RESULT_KEY, {key: value for key, value in result.items() if key != "returned"})
        if self.multiple_outputs and isinstance(result["returned"], Mapping):
            from tony_provider.decorators.returned_keys import expect_own_keys  # here: DAG files load this module

            expect_own_keys(result["returned"], OWN_KEYS)
        return result["returned"]


def _named(argument: Any) -> Any:
    """Of what another task returns, the template that it is; once rendered there is none."""
    return str(argument) if isinstance(argument, XComArg) else argument


def tony_task(
    python_callable: Callable[..., Any] | None = None,
    multiple_outputs: bool | None = None,
    **kwargs: Any,
) -> TaskDecorator:
    """Have a function train on YARN, or on this machine: ``@task.tony(job={…})``.

    Its source travels, without decorators and without anything else of the DAG file, and runs in every task type of
    ``job`` that has no ``command``. What it returns in the chief, or rank 0, is what the task returns: JSON of at most
    1 MiB. See docs/decorator.md.

    :param multiple_outputs: push each key of the returned mapping as an XCom of its own; default: as the function's
        return annotation says, as with ``@task``.
    :param kwargs: the arguments of ``TonyTrainOperator``; ``job`` is needed.

    Raises TonySpecError, when the DAG file is parsed, for a function that cannot run without it.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        TrainingFunction.of(function)  # here too: no operator is made of a mapped task before it runs
        return task_decorator_factory(
            python_callable=function,
            multiple_outputs=multiple_outputs,
            decorated_operator_class=_TonyDecoratedOperator,
            **kwargs,
        )

    return decorate if python_callable is None else decorate(python_callable)  # type: ignore[return-value]
