"""TonyTrainOperator in a real Airflow (dag.test), on a real YARN."""

from __future__ import annotations

import os
import signal
from datetime import timedelta

import pytest

from tests.operators.jobs import Marker, ended, job, train
from tony_provider.cluster.base import ApplicationState
from tony_provider.exceptions import TonyJobRejected, TonyQueueTimeout, TonyTaskKilled
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.verdict import killed_by_airflow
from tony_provider.runtime.protocol.status import FinalStatus


@pytest.mark.parametrize("deferrable", [False, True])
def test_queue_timeout_says_what_was_missing_and_ends_the_application(
    yarn: TonyHook, marker: Marker, deferrable: bool
) -> None:
    spec = job(marker.forever)
    spec["tasks"]["worker"] |= {"instances": 3, "memory": "2500MiB"}  # one fits on each of two nodes
    done = train(spec, queue_timeout=timedelta(seconds=20), deferrable=deferrable)
    error = done.errors["train"]
    assert isinstance(error, TonyQueueTimeout)
    assert "1 of 3" in str(error)
    assert not marker.path.exists()
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


def test_unknown_queue_is_no_matter_for_a_retry(yarn: TonyHook) -> None:
    error = train(job("true"), yarn_queue="nowhere", retries=3).errors["train"]
    assert isinstance(error, TonyJobRejected)
    assert "nowhere" in str(error)
