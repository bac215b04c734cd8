"""@task.tony in a real Airflow (dag.test), on the real embedded local cluster and on a real YARN."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.sdk import DAG, task, task_group

from tests.airflow_dags import Run, run
from tests.operators.jobs import applications
from tests.operators.trainings import DATES, ONCE
from tests.shared_runtime import is_untouched
from tony_provider.cluster.errors import JobNotAllowed
from tony_provider.decorators.task_tony import RESULT_KEY, _TonyDecoratedOperator
from tony_provider.exceptions import TonyJobFailed, TonySpecError
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.sdk import tony_call

WORKER = {"memory": "256MiB"}
JOB = {"framework": "standalone", "am": {"memory": "256MiB"}, "tasks": {"worker": WORKER}, **ONCE}
TWO = {**JOB, "tasks": {"worker": {**WORKER, "instances": 2}}}


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The task's log, where pytest captures it; Airflow's own goes to where standard output was at its import."""
    log = property(lambda _: logging.getLogger("tony_provider.operators"))
    monkeypatch.setattr(_TonyDecoratedOperator, "log", log)
    return caplog


def one(function: Callable[..., Any], *args: Any, dates: dict[str, Any] | None = None, **arguments: Any) -> Run:
    """Run a DAG of one task."""
    with DAG("decorated", schedule=None) as dag:
        task.tony(**{"job": JOB, "poll_interval": 0.5, **arguments})(function)(*args)
    return run(dag, **(dates or {}))


def train(rate: float, words: Any = None) -> dict[str, Any]:
    import os

    return {"loss": rate / 2, "rank": os.environ["TONY_RANK"], "words": words}


@pytest.mark.parametrize("deferrable", [False, True])
def test_two_workers_run_the_function_and_the_first_returns(local: TonyHook, deferrable: bool) -> None:
    done = one(train, 0.5, ["é", {"big": "x" * 100_000}], job=TWO, deferrable=deferrable)
    assert done.state == "success"
    returned = {"loss": 0.25, "rank": "0", "words": ["é", {"big": "x" * 100_000}]}
    assert done.results["train"] == returned
    instance = done.task_instances["train"]
    assert instance.xcom_pull(task_ids="train", key="loss") == 0.25  # as the annotation says
    whole = instance.xcom_pull(task_ids="train", key=RESULT_KEY)
    assert (whole["final_status"], whole["generation"]) == ("SUCCEEDED", 1)
    assert "returned" not in whole


def test_a_dry_run_shows_the_function_and_its_arguments(
    local: TonyHook, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with DAG("decorated", schedule=None) as dag:

        @task
        def rates() -> float:
            return 0.5

        task.tony(job=JOB)(train)(rates(), words=["a"])  # type: ignore[arg-type]  # what it returns
    operator = dag.task_dict["train"]
    assert isinstance(operator, _TonyDecoratedOperator)
    operator.dry_run()
    told = yaml.safe_load(capsys.readouterr().out)
    names = {resource["name"] for resource in told["description"]["resources"]}
    assert names == {tony_call.FUNCTION_FILE, tony_call.ARGUMENTS_FILE}
    assert names == {Path(file).name for file in told["staged"]}  # the runtime lies where it is taken from
    assert is_untouched(tmp_path / "tony")


def test_where_the_functions_own_files_are_made_no_connection_says(
    local: TonyHook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").write_text("x")
    connection = json.loads(os.environ["AIRFLOW_CONN_TONY_DEFAULT"])
    connection["extra"]["file_roots"] = str(tmp_path / "dags")
    monkeypatch.setenv("AIRFLOW_CONN_TONY_DEFAULT", json.dumps(connection))
    with DAG("decorated", schedule=None) as dag:
        task.tony(job=JOB)(train)(0.5, words=["a"])
        task.tony(task_id="with_data", job={**JOB, "files": [str(tmp_path / "data")]})(train)(0.5, words=["a"])
    operator, another = dag.task_dict["train"], dag.task_dict["with_data"]
    assert isinstance(operator, _TonyDecoratedOperator)
    assert isinstance(another, _TonyDecoratedOperator)
    operator.dry_run()
    assert tony_call.FUNCTION_FILE in capsys.readouterr().out
    with pytest.raises(JobNotAllowed) as raised:
        another.dry_run()
    (problem,) = raised.value.problems
    assert f"{tmp_path}/data is not allowed by the connection 'tony_default'" in problem


def test_sizes_in_overrides_do_not_make_another_type_call_the_function(local: TonyHook) -> None:
    done = one(train, 0.5, ["a"], job=JOB, overrides={"tasks": {"prepare": {"instances": 1}}})
    assert "tasks.prepare: may not be overridden" in str(done.errors["train"])


def test_as_other_decorators_of_airflow(local: TonyHook) -> None:
    with DAG("decorated", schedule=None, params={"rate": 4}) as dag:

        @task.tony(job=JOB, poll_interval=0.5)
        def train(rate: Any, day: str = "", factor: int = 1) -> Any:
            """Doubles."""
            return None if day == "none" else [float(rate) * factor, day]

        @task
        def rates() -> list[float]:
            return [1.0, 2.0]

        @task
        def collect(found: Any, mapped: Any) -> list[Any]:
            return [found, list(mapped)]

        @task_group
        def group() -> Any:
            return train.override(task_id="other", job=TWO)("{{ params.rate }}", day="{{ dag_run.run_after | ds }}")

        mapped = train.partial(factor=10).expand(rate=rates())
        collect(group(), mapped)
        train.override(task_id="nothing")(1, "none")
    done = run(dag, **DATES)
    assert done.state == "success"
    assert done.results["collect"] == [[4.0, "2026-01-05"], [[10.0, ""], [20.0, ""]]]
    assert done.results["nothing"] is None
    assert dag.get_task("group.other").doc_md == "Doubles."


def test_a_failure_shows_the_functions_traceback(local: TonyHook, said: pytest.LogCaptureFixture) -> None:
    def train(rate: float) -> None:
        def inner(value: float) -> None:
            raise ArithmeticError(f"the loss is {value}")

        inner(rate * 2)

    done = one(train, 0.25)
    error = done.errors["train"]
    assert isinstance(error, TonyJobFailed)
    assert "ArithmeticError: the loss is 0.5" in str(error)
    for words in (
        "Traceback (most recent call last):",
        'tony_function.py", line 9, in train\n',
        "inner(rate * 2)",
        'tony_function.py", line 7, in inner\n',
        "ArithmeticError: the loss is 0.5",
    ):
        assert words in said.text
    assert "tony_call" not in said.text
    line = train.__code__.co_firstlineno - 5
    assert f"Line n of tony_function.py is line n{line:+} of test_tony.py" in said.text


def test_what_cannot_be_returned_is_no_matter_for_a_restart(local: TonyHook) -> None:
    def train() -> object:
        return {"model": object()}

    error = one(train, job={**JOB, "restart": {}}).errors["train"]
    assert isinstance(error, TonyJobFailed)
    assert error.permanent
    assert error.failure is not None
    assert error.failure.exit_code == tony_call.REFUSED
    assert "train() cannot return this: returned['model'] is of type object, which JSON does not support" in str(error)
    assert len(applications(local)) == 1


def saving(rate: float) -> int:
    from pathlib import Path

    import tony_sdk  # type: ignore[import-not-found]

    if tony_sdk.resume_from() is None:
        weights = Path(tony_sdk.checkpoint_dir(), "weights")
        weights.write_text(str(rate))
        tony_sdk.commit_checkpoint(5, str(weights))
        raise RuntimeError("after its first checkpoint")
    return int(tony_sdk.resume_step())


@pytest.mark.long
def test_a_retry_resumes_unless_the_arguments_changed(local: TonyHook, said: pytest.LogCaptureFixture) -> None:
    assert one(saving, 0.2, dates=DATES).state == "failed"
    done = one(saving, 0.1, dates=DATES, retries=1, retry_delay=timedelta(0))
    assert done.state == "success"
    assert done.results["saving"] == 5
    assert "because files.tony_arguments.json changed" in said.text
    assert re.search(r"from snapshot \d+ \(step 5\b", said.text)
    assert len(applications(local)) == 3


@pytest.mark.parametrize(
    ("arguments", "job", "words"),
    [
        ([{"a": {1, 2}}], JOB, "rate['a'] is of type set"),
        ([0.5], {**JOB, "tasks": {"worker": {**WORKER, "command": "true"}}}, "every type has a command"),
        ([0.5], {**JOB, "tasks": {"worker": {"memry": 3}}}, "tasks.worker.memry"),
    ],
)
def test_what_is_wrong_is_found_before_anything_is_started(
    local: TonyHook, tmp_path: Path, arguments: list[Any], job: dict[str, Any], words: str
) -> None:
    error = one(train, *arguments, job=job, retries=3).errors["train"]
    assert isinstance(error, TonySpecError)
    assert words in str(error)
    assert is_untouched(tmp_path / "tony")


def test_what_is_sent_is_not_left_here(local: TonyHook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    done = one(train, 0.5, wait_for_completion=False)
    assert (done.state, done.results["train"]) == ("success", None)
    assert list(folder.glob("tony-*")) == []
    started = done.task_instances["train"].xcom_pull(task_ids="train", key=RESULT_KEY)["application_id"]
    local.kill(started, "enough")


@pytest.mark.long
def test_on_yarn(yarn: TonyHook) -> None:
    done = one(train, 3.0, {"a": None}, job=TWO)
    assert done.state == "success"
    assert done.results["train"] == {"loss": 1.5, "rank": "0", "words": {"a": None}}
    assert len(applications(yarn)) == 1
