"""What the log of a failed task says: each error once, and where a wrong template is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseOperator
from jinja2 import Environment, FileSystemLoader, TemplateNotFound, UndefinedError
from structlog.tracebacks import Stack, extract

from tests.operators.jobs import job, train
from tests.operators.trainings import Training
from tony_provider.arguments import with_readable_errors
from tony_provider.cluster.errors import ClusterUnreachable
from tony_provider.exceptions import TonyJobRejected, TonySpecError
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.sensors.tony import TonyJobSensor

OPENED = "{{ params.day }"
TYPO = "{{ params.dya }}"


def stacks(error: BaseException) -> list[Stack]:
    """As Airflow writes them: the exception, and every one that led to it."""
    return extract(type(error), error, error.__traceback__).stacks


def ours(stack: Stack) -> list[str]:
    """Functions of this provider that the traceback shows."""
    return [frame.name for frame in stack.frames if "tony_provider" in Path(frame.filename).parts]


def test_a_wrong_specification_is_told_once(local: TonyHook) -> None:
    error = train(job("true", framwork="typo")).errors["train"]
    assert isinstance(error, TonySpecError)
    [stack] = stacks(error)
    assert ours(stack) == ["call"]


def test_a_missing_connection_is_told_once(airflow_db: None) -> None:
    error = train(job("true"), tony_conn_id="tony_nowhere").errors["train"]
    assert isinstance(error, TonyJobRejected)
    [stack] = stacks(error)
    assert ours(stack) == ["call"]


class Task(BaseOperator):
    @with_readable_errors
    def execute(self, context: Any) -> Any:
        try:
            context["what a library looks for"]
        except KeyError as error:
            raise context["raises"] from error


def test_what_may_be_a_mistake_of_this_provider_keeps_its_causes_and_frames() -> None:
    task = Task(task_id="fails")
    with pytest.raises(ClusterUnreachable) as known:
        task.execute.__wrapped__(task, {"raises": ClusterUnreachable("nobody answers")})  # type: ignore[attr-defined]
    assert len(stacks(known.value)) == 1
    with pytest.raises(RuntimeError) as unknown:
        task.execute.__wrapped__(task, {"raises": RuntimeError("a bug")})  # type: ignore[attr-defined]
    assert len(stacks(unknown.value)) == 2
    assert stacks(unknown.value)[0].frames[-1].name == "execute"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"spec": job(OPENED)}, f"job: unexpected '}}', in '{OPENED}'"),
        (
            {"spec": job("train {{ ds")},
            "job: unexpected end of template, expected 'end of print statement', in 'train {{ ds'",
        ),
        ({"spec": f"framework: standalone\nname: {OPENED}\n"}, f"job: unexpected '}}', in 'name: {OPENED}' (line 2)"),
        ({"spec": job("true"), "env_vars": {"DAY": OPENED}}, f"env_vars: unexpected '}}', in '{OPENED}'"),
        ({"spec": job("true"), "name": "{% if %}"}, "name: Expected an expression, got 'end of statement block'"),
        ({"spec": job("true"), "secrets": {"KEY": OPENED}}, f"secrets: unexpected '}}', in '{OPENED}'"),
    ],
)
def test_a_template_that_jinja_cannot_read_is_told_with_its_field(
    local: TonyHook, arguments: dict[str, Any], expected: str
) -> None:
    error = train(**arguments, retries=3).errors["train"]
    assert isinstance(error, TonySpecError), "no retry mends it"
    assert str(error).startswith(expected)
    assert len(stacks(error)) == 1


@pytest.mark.parametrize("spec", ["wrong.tony.yaml", {"name": "{% include 'wrong.tony.yaml' %}"}])
def test_a_template_in_a_file_is_told_with_the_file_and_the_line(tmp_path: Path, spec: Any) -> None:
    (tmp_path / "wrong.tony.yaml").write_text(f"framework: standalone\nname: {OPENED}\n")
    task = TonyTrainOperator(task_id="train", job=spec)
    with pytest.raises(TonySpecError) as raised:
        task.render_template(task.job, {}, Environment(loader=FileSystemLoader(tmp_path)))
    assert str(raised.value) == f"job: unexpected '}}', in 'name: {OPENED}' (line 2 of wrong.tony.yaml)"


@pytest.mark.parametrize(("name", "kind"), [(TYPO, UndefinedError), ("{% include 'no.txt' %}", TemplateNotFound)])
def test_other_errors_of_templates_name_the_field_too(local: TonyHook, name: str, kind: type[Exception]) -> None:
    error = train(job("true"), name=name).errors["train"]
    assert isinstance(error, kind)
    assert str(error).startswith("name: ")
    assert len(stacks(error)) == 1


def test_sensors_name_the_field_too(local: TonyHook) -> None:
    sensor = TonyJobSensor(task_id="watch", application_id=OPENED)
    with pytest.raises(TonySpecError) as raised:
        sensor.render_template_fields({})
    assert str(raised.value) == f"application_id: unexpected '}}', in '{OPENED}'"


def test_a_secret_that_is_too_short_is_told_by_its_name(training: Training) -> None:
    training.again(job("true", framwork="typo"), secrets={"PIN": "123", "NONE": "", "KEY": "long-enough"})
    assert training.log.count("masked") == 1
    assert training.said("secrets.PIN is not masked in logs: it has fewer than 5 characters")
