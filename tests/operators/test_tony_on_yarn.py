"""TonyTrainOperator in a real Airflow (dag.test), on a real YARN."""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import timedelta
from typing import Any

import attrs
import pytest
import requests

from tests.airflow_dags import run
from tests.operators.jobs import DEADLINE, Marker, dag_of, ended, job, train
from tests.waiting import until
from tony_provider.cli.wait_for_job import JobEndedBadly, wait_for_job
from tony_provider.cluster.interface import ApplicationState, Pages
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.exceptions import TonyJobRejected, TonyQueueTimeout, TonyTaskKilled
from tony_provider.hooks.tony import TonyHook
from tony_provider.links.job_links import (
    LINKS,
    FilesLink,
    JobPageLink,
    TensorBoardLink,
    TrainingJobLink,
    YarnApplicationLink,
    push_links,
)
from tony_provider.operators import training_try
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.protocol.status import FinalStatus
from tony_provider.watching.job_watch import WatchLimits
from tony_provider.watching.termination import killed_by_airflow


@pytest.fixture
def opened_links(marker: Marker, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What every link has answered, opened as soon as the job runs; then it is killed."""
    answers: dict[str, int] = {}

    def push_and_open(ti: Any, application_id: str, pages: Pages, **more: Any) -> None:
        push_links(ti, application_id, pages, **more)
        until(marker.path.exists, "the user process", DEADLINE)
        for address in (pages.application, pages.job):
            assert address is not None
            answers[address] = requests.get(address, timeout=DEADLINE).status_code
        TonyHook().kill(marker.path.read_text().strip(), "seen enough")

    monkeypatch.setattr(training_try, "push_links", push_and_open)
    return answers


@pytest.fixture
def too_large(marker: Marker, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A job that waits for its containers for ever."""
    connection = json.loads(os.environ["AIRFLOW_CONN_TONY_DEFAULT"])
    connection["extra"]["autoscaling"] = True  # or it would be refused
    monkeypatch.setenv("AIRFLOW_CONN_TONY_DEFAULT", json.dumps(connection))
    spec = job(marker.forever)
    spec["tasks"]["worker"] |= {"instances": 3, "memory": "2500MiB"}  # one fits on each of two nodes
    return spec


@pytest.mark.parametrize("deferrable", [False, True])
@pytest.mark.long
def test_queue_timeout_says_what_was_missing_and_ends_the_application(
    yarn: TonyHook, marker: Marker, too_large: dict[str, Any], deferrable: bool
) -> None:
    done = train(too_large, queue_timeout=timedelta(seconds=20), deferrable=deferrable)
    error = done.errors["train"]
    assert isinstance(error, TonyQueueTimeout)
    assert "1 of 3" in str(error)
    assert not marker.path.exists()
    assert ended(yarn)


@pytest.mark.long
def test_a_command_that_waits_for_the_job_ends_it_after_its_queue_timeout(
    yarn: TonyHook, too_large: dict[str, Any]
) -> None:
    with TonyHook() as hook:
        identity = hook.identity(dag_id="cli", run_id="queue", task_id="train")
        application_id = hook.submit(SubmissionRequest(parse_job(too_large), identity)).application_id
        until(lambda: hook.job_status(identity, application_id), "the job's master", DEADLINE)
        with pytest.raises(JobEndedBadly, match=r"did not get its containers within timeouts\.queue.*waiting for"):
            wait_for_job(hook.job(application_id, identity), WatchLimits(queue=time.time()))
    assert ended(yarn)


def test_sigterm_ends_the_application_and_leaves_nothing(yarn: TonyHook, marker: Marker) -> None:
    with marker.then(lambda _: os.kill(os.getpid(), signal.SIGTERM)):
        error = train(job(marker.forever)).errors["train"]
    assert isinstance(error, TonyTaskKilled)
    application = yarn.application(marker.path.read_text().strip())
    assert application is not None
    # It has ended by itself, in the grace that it was given.
    assert (application.state, application.final_status) == (ApplicationState.FINISHED, FinalStatus.KILLED)
    assert killed_by_airflow(application)
    assert ended(yarn)


@pytest.mark.parametrize("deferrable", [pytest.param(False, marks=pytest.mark.long), True])
def test_links_lead_to_the_application_while_it_runs(
    yarn: TonyHook, marker: Marker, opened_links: dict[str, int], deferrable: bool
) -> None:
    with dag_of(job(marker.forever), deferrable=deferrable) as dag:
        done = run(dag)
    assert done.state == "failed"  # it was killed
    links = {
        key: done.task_instances["train"].xcom_pull(task_ids="train", key=link.xcom_key)
        for key, link in ((type(link), link) for link in LINKS)
    }
    application_id = marker.path.read_text().strip()
    assert all(application_id in links[link] for link in (TrainingJobLink, YarnApplicationLink, FilesLink))
    # The NameNode's pages are not in the jars that the test cluster is made of.
    assert [opened_links.pop(links[YarnApplicationLink]), *opened_links.values()] == [200, 200]
    # Its master served these.
    assert (links[JobPageLink], links[TensorBoardLink]) == ("", "")


def test_a_dry_run_is_the_request_that_is_sent(yarn: TonyHook) -> None:
    spec = parse_job(job("true", secrets=["API_KEY"], tags=["nightly"]))
    which = yarn.identity(dag_id="preview", run_id="today", task_id="train")
    found = yarn.preview(SubmissionRequest(spec, which, secrets={"API_KEY": "pa55word"}))
    assert "pa55word" not in json.dumps(attrs.asdict(found))
    request = found.request
    assert request["am-container-spec"]["credentials"]["secrets"]["tony.user.API_KEY"] == "***"
    application = yarn.submit(SubmissionRequest(spec, which, secrets={"API_KEY": "pa55word"})).application()
    assert application is not None
    assert request["application-name"] == application.name
    assert sorted(request["application-tags"]["tag"]) == sorted(application.tags)
    until(lambda: ended(yarn), "its end", DEADLINE)


def test_unknown_queue_is_no_matter_for_a_retry(yarn: TonyHook) -> None:
    error = train(job("true"), yarn_queue="nowhere", retries=3).errors["train"]
    assert isinstance(error, TonyJobRejected)
    assert "nowhere" in str(error)
