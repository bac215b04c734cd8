"""What hands summaries to Airflow, with stand-ins for a cluster and for Airflow's store that fail or say nothing."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest

from tests.operators.statuses import application, status
from tests.operators.test_deferral import Kept
from tony_provider.cluster.errors import ClusterUnreachable
from tony_provider.cluster.interface import Pages
from tony_provider.cluster.records.history import JobHistory
from tony_provider.cluster.records.summary import DETAILS_KEY, JOB_KEY, JOBS_KEY, JobSummary
from tony_provider.operators import job_summaries
from tony_provider.operators.job_summaries import KEPT, Summaries
from tony_provider.operators.try_state import StateStore, TaskInstanceInfo
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.storage.errors import StorageUnreachable

LOG = logging.getLogger(__name__)
RUN = TaskInstanceInfo("clicks", "today", "train", try_number=3)
ID, OTHER = "application_1700000000000_0001", "application_1700000000000_0002"


class Cluster:
    """Stands for a TonyHook. An attribute that is an exception is raised, one that is an event is waited for."""

    application: Any = application("FINISHED", user="alice")
    history: Any = JobHistory(application_id=ID, status=status("SUCCEEDED"))
    chain: Any = None
    tony_conn_id = "c"
    proxy_user = None
    left: tuple[str, ...] = ()  # the ids of the training's applications that have a directory

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if name not in ("application", "history", "chain"):
            return found
        return lambda *_: self.answer(found)

    def answer(self, found: Any) -> Any:
        if isinstance(found, Exception):
            raise found
        if isinstance(found, threading.Event):
            found.wait()
        return found

    def application_ids(self, *_: Any) -> tuple[str, ...]:
        return self.left

    def job(self, application_id: str, _: Any = None) -> Job:
        return Job(self, application_id)


@attrs.frozen
class Job:
    """Stands for a TonyJob."""

    hook: Cluster
    application_id: str
    directory: str = "hdfs://n/x"
    training: Any = None

    def application(self) -> Any:
        return self.hook.application()

    def history(self) -> Any:
        return self.hook.history()

    def owned_chain(self) -> Any:
        return self.hook.chain()

    def pages(self) -> Pages:
        return Pages(files="http://files/")

    def labels(self) -> dict[str, str]:
        return {"try_number": "2"}


@attrs.frozen
class ById:
    """The summaries of a task, with ids in place of jobs."""

    task: Any
    summaries: Summaries

    def begin(self, application_id: str) -> None:
        self.summaries.begin(self.task.hook.job(application_id))

    def end(self, application_id: str, *how: Any) -> JobSummary | None:
        return self.summaries.end(self.task.hook.job(application_id), *how)

    def leave(self, application_id: str) -> None:
        self.summaries.record_exit(self.task.hook.job(application_id))


class Silent(Kept):
    """A store that takes nothing and says nothing, until the test is over."""

    def __init__(self, over: threading.Event) -> None:
        self.over = over

    def set(self, key: str, value: Any, **_: Any) -> None:
        self.over.wait()


@pytest.fixture
def over(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    for module in (job_summaries, job_summaries):
        for name in ("READ_SECONDS", "KEEP_SECONDS"):
            monkeypatch.setattr(module, name, 0.2)
    event = threading.Event()
    yield event
    event.set()


def task(**answers: Any) -> Any:
    hook = Cluster()
    for name, answer in answers.items():
        setattr(hook, name, answer)
    return SimpleNamespace(
        hook=hook,
        log=LOG,
        checkpoint_key=None,
        secrets=None,
        wait_for_completion=True,
    )


def specification() -> JobSpec:
    command = "torchrun train.py --lr 0.1 --hub-token hunter2 --epochs=3"
    return parse_job({"framework": "pytorch", "tasks": {"worker": {"command": command}}})


def keeper(kept: Kept, **answers: Any) -> ById:
    store = StateStore(cast(Any, {"task_state_store": kept}), cast(Any, LOG))
    return by_id(store, **answers)


def by_id(store: StateStore | None, **answers: Any) -> ById:
    own = task(**answers)
    context = {"params": {"epochs": 5, "optimizer": {"name": "adam", "decay": None}, "password": "hunter2"}}
    return ById(own, Summaries(own, cast(Any, context), RUN, specification, store))


def test_it_is_listed_before_it_has_ended() -> None:
    kept = Kept()
    keeper(kept, application=application(user="alice")).begin(ID)
    assert kept[JOBS_KEY] == [ID]
    first = kept[JOB_KEY + ID]
    assert (first["verdict"], first["user"], first["framework"], first["try_number"]) == (None, "alice", "pytorch", 3)
    assert kept[DETAILS_KEY + ID]["links"] == {"files": "http://files/"}


def test_parameters_of_the_run_and_of_the_command_are_known_from_the_beginning() -> None:
    kept = Kept()
    keeper(kept).begin(ID)
    assert kept[JOB_KEY + ID]["parameters"] == {
        "lr": "0.1",
        "hub_token": "***",
        "epochs": "3",
        "optimizer.name": "adam",
        "password": "***",
    }
    sources = kept[DETAILS_KEY + ID]["parameter_sources"]
    assert (sources["epochs"], sources["optimizer.name"]) == ("command", "run")
    done = attrs.evolve(status("SUCCEEDED"), parameters={"lr": "0.2"})
    keeper(kept).end(ID, None, done, JobHistory(application_id=ID, status=done))
    assert (kept[JOB_KEY + ID]["parameters"]["lr"], kept[JOB_KEY + ID]["parameters"]["epochs"]) == ("0.2", "3")
    assert kept[DETAILS_KEY + ID]["parameter_sources"]["lr"] == "program"


def test_the_newest_are_kept() -> None:
    kept = Kept()
    for number in range(KEPT + 3):
        keeper(kept).begin(f"application_{number}")
    assert len(kept) == 2 * KEPT + 1
    assert JOB_KEY + "application_2" not in kept
    assert JOB_KEY + "application_3" in kept


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"history": StorageUnreachable("hdfs://n/x", "read", "silent")}, "has no curves: cannot read"),
        ({"chain": ClusterUnreachable("gone")}, ""),
    ],
)
def test_an_end_is_kept_with_what_is_known_of_it(
    caplog: pytest.LogCaptureFixture, answers: dict[str, Any], said: str
) -> None:
    kept = Kept()
    keeper(kept, **answers).end(ID, None, status("FAILED"))
    assert kept[JOB_KEY + ID]["verdict"] == "FAILED"
    assert re.search(said, caplog.text) if said else not caplog.records


def test_a_store_of_the_jobs_that_says_nothing_is_not_waited_for(
    over: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept()
    keeper(kept, history=over).end(ID, application("FINISHED"), status("SUCCEEDED"))
    assert kept[JOB_KEY + ID]["verdict"] == "SUCCEEDED"
    assert "cannot be read completely: the cluster or its store has not answered within" in caplog.text


def test_an_airflow_that_says_nothing_is_not_waited_for(
    over: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    keeper(Silent(over)).end(ID, None, status("SUCCEEDED"))
    assert "cannot be stored: Airflow has not answered within" in caplog.text


def test_a_try_that_ends_looks_at_an_application_whose_end_nobody_has_seen() -> None:
    kept = Kept()
    ends = keeper(kept)
    ends.leave(ID)
    assert kept[JOB_KEY + ID]["verdict"] == "SUCCEEDED"
    ends.end(ID, None, status("FAILED"))
    ends.leave(ID)
    assert kept[JOB_KEY + ID]["verdict"] == "FAILED"


def test_what_was_never_submitted_has_no_summary() -> None:
    kept = Kept()
    keeper(kept, application=None, history=JobHistory(application_id=ID)).leave(ID)
    assert not kept


@pytest.mark.parametrize(
    ("before", "verdict", "number"),
    [
        ({"verdict": None, "try_number": 1}, "SUCCEEDED", 1),
        ({"verdict": "KILLED", "try_number": 1}, "KILLED", 1),
        (None, "SUCCEEDED", 2),
    ],
)
def test_an_earlier_try_that_said_no_end_is_mended(before: Any, verdict: str, number: int) -> None:
    kept = Kept({JOB_KEY + ID: before} if before else {})
    keeper(kept, left=(ID, OTHER)).begin(OTHER)
    assert kept[JOBS_KEY][-1] == OTHER
    assert (kept[JOB_KEY + ID]["verdict"], kept[JOB_KEY + ID]["try_number"]) == (verdict, number)


def test_nothing_that_goes_wrong_costs_the_task(caplog: pytest.LogCaptureFixture) -> None:
    broken: JobStatus = cast(Any, SimpleNamespace())
    keeper(Kept()).end(ID, None, broken)
    assert "The summary of the job cannot be stored" in caplog.text


def test_where_nobody_keeps_them_others_are_told_of_an_end_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    """As before Airflow 3.3; what asks the cluster here for anything but the end is in the log."""
    away = ClusterUnreachable("nobody needs to know")
    unkept = by_id(None, application=away, history=away)
    unkept.begin(ID)
    unkept.leave(ID)
    assert not caplog.records
    told = by_id(None).end(ID, None, status("FAILED"))
    assert told is not None
    assert (told.application_id, told.verdict, told.try_number) == (ID, "FAILED", 3)
