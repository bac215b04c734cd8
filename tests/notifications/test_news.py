"""The news of a training, for each kind of callback: what is known, what is not, and how it is written."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import structlog
from airflow.providers.common.compat.sdk import BaseNotifier, mask_secret
from airflow.sdk import DAG
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.execution_time.callback_supervisor import execute_callback
from airflow.triggers.callback import CallbackTrigger
from hypothesis import given
from hypothesis import strategies as st

from tests.notifications.recording import RecordingNotifier
from tests.operators.statuses import status, worker
from tests.owners import open_after, own
from tony_provider.cluster.training.checkpoint_chains import CheckpointChains, new_chain
from tony_provider.exceptions import TonyJobFailed, TonyJobRejected, TonySpecError
from tony_provider.hooks.tony import TonyHook
from tony_provider.notifications import message
from tony_provider.notifications.message import TrainingMessage, last_lines, line
from tony_provider.notifications.tony import TonyNotifier
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.protocol.status import Failure, FailureKind, JobStatus
from tony_provider.runtime.storage.errors import StorageUnreachable
from tony_provider.runtime.storage.local import LocalStorage

ID = "application_1700000000000_0001"
RUN = "scheduled__2026-01-05T00:00:00+00:00"
BEFORE = "scheduled__2026-01-04T00:00:00+00:00"
FAILURE = Failure(
    FailureKind.USER,
    "worker:1 on node7 ended with exit code 3\nTraceback (most recent call last):\nValueError: \x1b[31mno\x1b[0m data",
    task="worker:1",
    exit_code=3,
    cause="ValueError: no data",
)
CAUSE = "ValueError: no data; worker:1 on node7 ended with exit code 3"
FAILED = status("FAILED", step=120, total_steps=900, metrics={"loss": 0.25}, failure=FAILURE)


@attrs.frozen
class Left:
    """What trainings have left on the store of the local backend."""

    hook: TonyHook

    def leave(self, what: JobStatus, run_id: str = RUN, task_id: str = "train") -> str:
        """The directory of the application."""
        identity = self.hook.identity(dag_id="clicks", run_id=run_id, task_id=task_id)
        chains = CheckpointChains(self.hook.storage(), self.hook.layout, identity)
        own(chains, open_after(chains, None, new_chain()), ID)
        directory = self.hook.job(ID, identity).directory
        self.hook.storage().write(f"{directory}/result.json", dump_json(what))
        return directory


@pytest.fixture
def left(local: TonyHook) -> Left:
    return Left(local)


@pytest.fixture
def dag() -> DAG:
    with DAG("clicks", schedule=None) as dag:
        for task_id in ("prepare", "train", "evaluate"):
            TonyTrainOperator(task_id=task_id, job={})
    return dag


def ti(**more: Any) -> SimpleNamespace:
    """As much of a task instance as callbacks have, in the worker and elsewhere."""
    which = {"dag_id": "clicks", "run_id": RUN, "task_id": "train", "map_index": -1, "try_number": 2, "max_tries": 2}
    before = SimpleNamespace(run_id=BEFORE)
    asked = {"get_previous_ti": lambda **_: before, "get_previous_dagrun": lambda **_: before}
    return SimpleNamespace(**{**which, "log_url": "http://airflow/log", "state": "failed", **asked, **more})


def of_task(dag: DAG, error: BaseException | None = None, **more: Any) -> dict[str, Any]:
    run = SimpleNamespace(logical_date="2026-01-05T00:00:00+00:00")
    task = {"ti": ti(**more), "task": dag.get_task("train"), "dag": dag, "run_id": RUN, "dag_run": run}
    return {**task, "exception": error} if error is not None else task


def told(context: Any, **options: Any) -> TrainingMessage:
    recording = RecordingNotifier()
    TonyNotifier(recording, **options)(context)
    (news,) = recording.news
    return news


def test_of_a_task(left: Left, dag: DAG) -> None:
    left.leave(FAILED)
    left.leave(status("SUCCEEDED", step=900, metrics={"loss": 0.5}), BEFORE)
    error = TonyJobFailed("failed", application_id=ID, failure=FAILURE)
    news = told(of_task(dag, error, state="up_for_retry"))
    assert news.message.splitlines() == [
        "clicks.train of 2026-01-05 failed (try 2 of 3; will be retried)",
        "Cause: ValueError: no data; worker:1 on node7 ended with exit code 3",
        "Last lines of worker:1:",
        "    Traceback (most recent call last):",
        "    ValueError: no data",
        "Step: 120 of 900",
        f"Application: {ID}",
        "loss: 0.25, before: 0.5",
        "Task in Airflow: http://airflow/log",
    ]
    assert '<a href="http://airflow/log">Task in Airflow</a>' in news.html
    assert "<pre>Traceback (most recent call last):\nValueError: no data</pre>" in news.html
    assert told(of_task(dag, error), lines=0).cause == "worker:1 on node7 ended with exit code 3"


def test_a_mapped_task_is_named_by_its_label(left: Left, dag: DAG) -> None:
    error = TonySpecError("tasks: missing")
    labelled, unlabelled = (
        told(of_task(dag, error, map_index=3, **more)) for more in ({"rendered_map_index": "de"}, {})
    )
    assert (labelled.title.split()[0], unlabelled.title.split()[0]) == ("clicks.train[de]", "clicks.train[3]")


def test_the_metrics_of_most_interest_come_first(left: Left, dag: DAG) -> None:
    left.leave(status("FAILED", step=1, metrics={"val_loss": 0.3, "input_wait": 0.1, "loss": 0.2}))
    error = TonyJobFailed("failed", application_id=ID)
    assert list(told(of_task(dag, error)).metrics) == ["val_loss", "loss", "input_wait"]


def test_of_a_job_that_was_never_started_the_problems_are_told(left: Left, dag: DAG) -> None:
    left.leave(FAILED)  # of an earlier try
    news = told(of_task(dag, TonySpecError("tasks: missing\nframework: missing")))
    assert (news.verdict, news.cause, news.application_id) == ("failed", "TonySpecError: tasks: missing", None)
    assert news.metrics == {}
    assert news.message.splitlines()[1:3] == ["Cause: TonySpecError: tasks: missing", "framework: missing"]


@pytest.mark.parametrize("error", [TonySpecError, TonyJobRejected])
def test_no_problem_of_a_refused_job_is_cut(dag: DAG, error: type[Exception]) -> None:
    problems = [f"tasks.worker{number}.command: must be shorter (got {'x' * 900})" for number in range(100)]
    news = told(of_task(dag, error("\n".join(["the job specification has 100 problems:", *problems]))))
    assert [each for each in problems if each not in news.message or each not in news.html] == []
    assert problems[0] in told(of_task(dag, error(problems[0]))).message


def test_the_problems_of_other_errors_are_only_in_their_first_line(dag: DAG) -> None:
    assert told(of_task(dag, ValueError("first\nsecond"))).problems == ""


def test_of_a_task_that_trains_nothing(left: Left, dag: DAG) -> None:
    context = {**of_task(dag, ValueError("no such table")), "task": object()}
    context["ti"].task_id = "load"
    news = told(context)
    assert (news.title, news.cause) == ("clicks.load of 2026-01-05 failed (try 2 of 3)", "ValueError: no such table")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise KeyError("args")


def test_an_exception_that_cannot_say_what_it_is_costs_its_message_only(left: Left, dag: DAG) -> None:
    news = told(of_task(dag, Unspeakable()))
    assert news.cause == "Unspeakable: (the error has no readable message: KeyError)"
    assert news.verdict == "failed"


def test_of_a_dag_it_is_the_first_training_that_has_failed(left: Left, dag: DAG) -> None:
    for task_id in ("prepare", "evaluate"):
        left.leave(status("SUCCEEDED"), task_id=task_id)
    left.leave(FAILED)
    failed = told({**of_task(dag), "reason": "task_failure"})
    assert (failed.title, failed.task_id, failed.verdict) == ("clicks of 2026-01-05 failed", "train", "failed")
    assert failed.cause == CAUSE
    assert "Run in Airflow" in failed.links or not failed.links
    bare = told({"dag": dag, "run_id": RUN, "reason": "success"}, task_id="evaluate")  # as where its task is gone
    assert (bare.title, bare.task_id) == (f"clicks of {RUN} succeeded", "evaluate")
    assert bare.missing == ["the previous run"]
    named = told({"dag": dag, "run_id": RUN, "reason": "success"}, task_id="nothing")
    assert "nothing" in named.missing[0]


def test_of_a_deadline_from_a_triggerer(left: Left) -> None:
    left.leave(status("RUNNING", step=120, total_steps=900, tasks=[worker(0, step=120)]))
    run = {"dag_id": "clicks", "dag_run_id": RUN, "logical_date": "2026-01-05T06:30:00Z"}
    context: Any = {"dag_run": run, "deadline": {"id": "1"}}

    class Waiting(RecordingNotifier):
        async def async_notify(self, context: Any) -> None:
            await asyncio.sleep(0)
            self.notify(context)

    async def call(notifier: BaseNotifier) -> None:
        await TonyNotifier(notifier, task_id="train", context=context)

    for notifier in (Waiting(), RecordingNotifier()):  # one that can wait, and one that cannot
        asyncio.run(call(notifier))
        assert notifier.told == ["clicks of 2026-01-05T06:30 has missed a deadline; its training: running"]
        assert notifier.text == "{{ tony.title }}"


def test_of_a_deadline_as_airflow_calls_it_in_a_triggerer_and_in_a_worker(left: Left) -> None:
    left.leave(FAILED)
    path = f"{RecordingNotifier.__module__}.{RecordingNotifier.__qualname__}"
    arguments = {"notifier": path, "task_id": "train", "tony_conn_id": "tony_default", "text": "{{ tony.cause }}"}
    callback = AsyncCallback(TonyNotifier, arguments)
    run = {"dag_id": "clicks", "dag_run_id": RUN, "logical_date": "2026-01-05T00:00:00Z"}
    sent = json.loads(json.dumps({**callback.kwargs, "context": {"dag_run": run, "deadline": {"id": "1"}}}))

    async def in_triggerer() -> list[Any]:
        return [event async for event in CallbackTrigger(callback.path, dict(sent)).run()]

    RecordingNotifier.everything.clear()
    assert len(asyncio.run(in_triggerer())) == 2  # that it runs, and that it has succeeded
    assert execute_callback(callback.path, sent, Path(), None, structlog.get_logger()) == (True, None)
    assert RecordingNotifier.everything == [CAUSE] * 2


def test_its_templates_are_for_each_call_and_arguments_make_a_notifier_of_a_class(left: Left, dag: DAG) -> None:
    path = f"{RecordingNotifier.__module__}.{RecordingNotifier.__qualname__}"
    for notifier in (
        TonyNotifier(path, text="{{ tony.cause }}"),
        TonyNotifier(RecordingNotifier, text="{{ tony.cause }}"),
    ):
        recording = notifier.notifier
        assert isinstance(recording, RecordingNotifier)
        for problem in ("first", "second"):
            notifier(of_task(dag, TonySpecError(problem)))
        assert recording.told == ["TonySpecError: first", "TonySpecError: second"]
    contexts: list[Any] = []
    TonyNotifier(contexts.append)(of_task(dag, TonySpecError("third")))
    assert contexts[0]["tony"].cause == "TonySpecError: third"
    with pytest.raises(TypeError, match="text: only a notifier's class accepts further arguments"):
        TonyNotifier(contexts.append, text="x")
    with pytest.raises(TypeError, match="neither a notifier nor callable"):
        TonyNotifier(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seconds"):
        TonyNotifier(contexts.append, seconds=0)


def test_what_the_other_notifier_raises_is_raised(left: Left, dag: DAG) -> None:
    def fail(context: Any) -> None:
        raise ConnectionError("no mail today")

    with pytest.raises(ConnectionError, match="no mail today"):
        TonyNotifier(fail)(of_task(dag))


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    over = threading.Event()
    monkeypatch.setattr(LocalStorage, "list", lambda *_: over.wait(60) and [])
    yield over
    over.set()


def failing(*_: Any) -> Any:
    raise StorageUnreachable("hdfs://nn/x", "list", "it is gone")


def test_a_store_out_of_reach_costs_what_it_knows_and_not_the_message(
    left: Left, dag: DAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalStorage, "list", failing)
    error = TonyJobFailed("failed", application_id=ID, failure=FAILURE)
    news = told(of_task(dag, error))
    assert news.cause == "ValueError: no data; worker:1 on node7 ended with exit code 3"
    assert news.tail.splitlines()[-1] == "ValueError: no data"  # as the failure itself has it
    assert "it is gone" in news.message.splitlines()[-1]


def test_a_store_that_does_not_answer_is_not_waited_for(left: Left, dag: DAG, hanging: threading.Event) -> None:
    news = told(of_task(dag, TimeoutError("late")), seconds=0.2)
    assert news.cause == "TimeoutError: late"
    assert news.missing == ["the cluster and its store did not answer within 0.2 s"]


def test_a_log_is_read_only_where_its_secrets_can_be_masked(left: Left, dag: DAG) -> None:
    directory = left.leave(FAILED)
    left.hook.storage().write(f"{directory}/logs/worker-1.log", b"in the log: hush-hush\n")
    task = dag.get_task("train")
    assert isinstance(task, TonyTrainOperator)
    assert told(of_task(dag)).tail == "in the log: hush-hush"
    task.secrets = {"KEY": "hush-hush"}
    assert told(of_task(dag)).tail == "in the log: ***"
    task.secrets = {"KEY": "{{ conn.model_store.password }}"}  # which this context does not know
    assert told(of_task(dag)).tail.splitlines()[-1] == "ValueError: no data"


def test_secrets_are_masked_before_anything_is_cut(left: Left, dag: DAG) -> None:
    mask_secret("a-long-secret-in-the-middle")
    news = told(of_task(dag, ValueError("x" * (message.LONGEST_LINE - 25) + "a-long-secret-in-the-middle")))
    assert "a-long" not in news.message
    assert len(news.cause) <= message.LONGEST_LINE


HOSTILE = st.text(st.characters(codec=None), max_size=50)


@given(HOSTILE, HOSTILE, HOSTILE)
def test_texts_of_programs_are_told_as_texts(title: str, tail: str, name: str) -> None:
    news = TrainingMessage(
        title=line(title),
        verdict="failed",
        cause=line(tail),
        tail=last_lines(f"<script>\n{tail}", 5),
        metrics={line(name): "NaN"},
        links={"x": f"javascript:{line(name)}", "y": f'https://h/"{line(name)}'},
    )
    assert "\n" not in news.title + news.cause
    assert "<script" not in news.html
    assert 'href="javascript' not in news.html
    (news.html + news.message).encode()
    assert "\x1b" not in news.message


def test_lengths_are_bounded() -> None:
    many = "\n".join("x" * 5000 for _ in range(1000))
    assert len(last_lines(many, 500)) <= message.LONGEST_TAIL + message.LONGEST_LINE
    assert last_lines("\n\n  \nlast\n\n", 3) == "last"
    assert last_lines("10 %\r20 %\rdone", 1) == "done"
    assert len(line("word " * 1000)) == message.LONGEST_LINE
