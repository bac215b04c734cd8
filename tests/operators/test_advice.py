"""Advice in the log of a task, kept for its later runs, and applied to them where it wants that."""

from __future__ import annotations

import logging
from typing import Any, cast
from unittest import mock

import pytest

from tests.advice.cases import run, use
from tests.operators.jobs import DAG_ID, Marker, job
from tests.operators.trainings import ONCE, Training
from tony_provider.advice.sizing import Limits
from tony_provider.cluster.errors import JobTooLarge
from tony_provider.cluster.records.summary import PreviousRuns
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.cluster.training.identity import identity_of
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.advice import QUIET_RUNS, Adviser
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.protocol.status import FinalStatus
from tony_provider.runtime.storage.base import write_atomically

IDENTITY = identity_of(namespace="tests", dag_id=DAG_ID, run_id="monday", task_id="train")
TASK = {"dag_id": DAG_ID, "task_id": "train"}
FORMER = run(7, use=[use(tasks=1, most_rss_bytes=100 << 20, memory_bytes=768 << 20, vcores=1)])
OWN = {"tasks": {"worker": {"memory": "768MiB", "command": "true"}}}


def known(training: Training) -> PreviousRuns:
    return training.hook.former_runs(TASK)


def learn(training: Training, **more: Any) -> None:
    """An earlier run of the task has used little."""
    training.hook.keep_former_runs(TASK, PreviousRuns(summaries=[FORMER], **more))


def spec(training: Training, **more: Any) -> dict[str, Any]:
    """Of a job that fails until it is mended."""
    made = training.spec(**more)
    made["tasks"]["worker"]["memory"] = "768MiB"
    return made


def memory(told: ApplicationDescription) -> int:
    return told.job.tasks["worker"].memory


def applied(training: Training) -> list[str | None]:
    """To each application, oldest first."""
    found = training.applications
    return [training.hook.job(each, training.identity).labels().get("applied_advice") for each in found]


@pytest.mark.long
def test_former_runs_say_what_the_next_one_asks_for(training: Training) -> None:
    learn(training)
    done = training.again({**job(""), **OWN}, apply_advice=True)
    assert done.state == "success", training.log
    assert memory(training.description(done)) == 512
    assert training.said(
        r"Advice is applied \(apply_advice\): worker.memory 512MiB instead of 768 MiB, based on the data of "
        r"application_1_0007 and earlier applications: Request 512 MiB of memory for each worker instead of 768 MiB"
    )
    assert [each.verdict for each in known(training).summaries] == [FinalStatus.SUCCEEDED] * 2
    newest = known(training).summaries[-1]
    assert (newest.application_id, newest.dag_id) == (done.results["train"]["application_id"], DAG_ID)


def test_it_is_taken_back_after_a_failure_and_no_checkpoint_is_lost(training: Training) -> None:
    learn(training)

    def between() -> None:
        training.save(7)
        training.mended.touch()

    done = training.retried(between, spec(training), apply_advice=True)
    assert done.state == "success", training.log
    assert applied(training) == ['{"tasks": {"worker": {"memory": "512MiB"}}}', None]
    assert memory(training.description(done)) == 768
    assert training.said(
        f"Withdrawing the advice .*: the next try, and all runs until {QUIET_RUNS} runs have succeeded"
    )
    assert training.said(r"No advice is applied, because application_\S+ failed with advice")
    assert training.chains == ["chain-0001"]
    assert training.said(r"from snapshot \d+ \(step 7\b[^)]*\)")
    assert known(training).quiet_runs == QUIET_RUNS - 1


@pytest.mark.long
def test_a_retry_keeps_it_after_a_failure_that_it_is_not_to_blame_for(training: Training, marker: Marker) -> None:
    learn(training)
    jobs = spec(training, **ONCE)
    jobs["tasks"]["worker"]["command"] = f"test -e {training.mended} || {{ {marker.forever}; }}"

    def between() -> None:
        training.hook.keep_former_runs(TASK, PreviousRuns())  # what is known by now does not count
        training.mended.touch()

    with marker.then(lambda application_id: training.hook.kill(application_id, "for the test")):
        done = training.retried(between, jobs, apply_advice=True)
    assert done.state == "success", training.log
    assert memory(training.description(done)) == 512
    assert training.said(r"worker.memory 512MiB instead of 768 MiB, as for application_\S+ of the previous try")
    assert known(training).quiet_runs == 0


@pytest.mark.long
def test_runs_that_succeed_end_the_quiet_time(training: Training) -> None:
    learn(training, quiet_runs=1, blamed="application_1_0006")
    done = training.again({**job(""), **OWN}, apply_advice=True)
    assert memory(training.description(done)) == 768
    assert training.said("application_1_0006 failed with advice. Advice is applied again after 1 successful run")
    assert (known(training).quiet_runs, known(training).blamed) == (0, None)


@pytest.mark.long
def test_nobody_who_did_not_ask_for_it_gets_it(training: Training) -> None:
    learn(training)
    done = training.again({**job(""), **OWN})
    assert memory(training.description(done)) == 768
    assert applied(training) == [None]


@pytest.mark.long
def test_a_record_that_is_damaged_costs_the_advice_alone(training: Training) -> None:
    learn(training)
    layout, storage = training.hook.layout, training.hook.storage()
    [record] = storage.list(f"{layout.root}/advice")
    write_atomically(storage, record.path, b"[")
    done = training.again({**job(""), **OWN}, apply_advice=True)
    assert memory(training.description(done)) == 768
    assert training.said(r"No advice is applied: cannot read \S+/advice/")
    assert training.said(r"There is no advice on application_\S+: cannot read")


class Cluster:
    """What advice asks of a hook."""

    def __init__(self, refuses: list[str] | None = None) -> None:
        self.runs = PreviousRuns(summaries=[FORMER])
        self.refuses = refuses
        self.known: dict[str, dict[str, str]] = {}

    def former_runs(self, _: object) -> PreviousRuns:
        return self.runs

    def keep_former_runs(self, _: object, runs: PreviousRuns) -> None:
        self.runs = runs

    def newest_application(self, _: object) -> str | None:
        return next(iter(self.known), None)

    def job(self, application_id: str, _: object = None) -> Any:
        return mock.Mock(application_id=application_id, labels=lambda: self.known[application_id])

    def check(self, _: object) -> None:
        if self.refuses:
            raise JobTooLarge(self.refuses)


def adviser(cluster: Cluster) -> Adviser:
    return Adviser(cast(TonyHook, cluster), IDENTITY, cast(Any, logging.getLogger(__name__)))


def advised(cluster: Cluster) -> SubmissionRequest:
    limits = Limits.parse(True)
    assert limits is not None
    request = SubmissionRequest(parse_job({**job(""), **OWN}), IDENTITY, labels=TASK)
    return adviser(cluster).advised(request, limits)


def test_what_the_cluster_would_refuse_is_not_applied(caplog: pytest.LogCaptureFixture) -> None:
    assert advised(Cluster()).job.tasks["worker"].memory == 512
    assert advised(Cluster(["tasks.worker.memory: too much"])).job.tasks["worker"].memory == 768
    assert "No advice is applied: " in caplog.text
    assert "tasks.worker.memory: too much" in caplog.text


def test_it_is_taken_back_when_the_time_of_the_task_was_over(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    cluster.known = {"application_1_0008": dict(advised(cluster).labels)}
    adviser(cluster).timed_out(cluster.job("application_1_0008"))
    assert (cluster.runs.quiet_runs, cluster.runs.blamed) == (QUIET_RUNS, "application_1_0008")
    assert advised(cluster).job.tasks["worker"].memory == 768
    cluster.runs, cluster.known = PreviousRuns(), {"application_1_0009": TASK}
    adviser(cluster).timed_out(cluster.job("application_1_0009"))  # nothing was applied to it
    assert cluster.runs == PreviousRuns()


def test_what_is_wrong_with_the_argument_is_said_when_the_dag_is_parsed() -> None:
    with pytest.raises(ValueError, match=r"apply_advice: 'ram' is not known"):
        TonyTrainOperator(task_id="train", job=job("true"), apply_advice={"ram": {}})
