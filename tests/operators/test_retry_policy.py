from __future__ import annotations

import json
from datetime import timedelta

import pytest
from airflow.providers.common.compat.sdk import RetryAction

from tests.operators.statuses import ID
from tests.operators.trainings import Training
from tony_provider.cluster.errors import ClusterUnreachable
from tony_provider.exceptions import TonyJobFailed, TonyKilledExternally, TonyQueueTimeout, TonyTaskKilled
from tony_provider.retry_policy import TonyRetryPolicy
from tony_provider.runtime.protocol.status import Failure, FailureKind
from tony_provider.runtime.storage.errors import StorageUnreachable

AT_ONCE, SOON, LATER = timedelta(0), timedelta(minutes=2), timedelta(minutes=10)
RETRY, FAIL, DEFAULT = RetryAction.RETRY, RetryAction.FAIL, RetryAction.DEFAULT


def failed(kind: FailureKind | None, *, permanent: bool = False) -> TonyJobFailed:
    failure = Failure(kind, "it failed", permanent=permanent) if kind else None
    return TonyJobFailed("failed", application_id=ID, failure=failure)


@pytest.mark.parametrize(
    ("error", "action", "delay"),
    [
        (failed(FailureKind.USER), DEFAULT, None),
        (failed(FailureKind.USER, permanent=True), FAIL, None),
        (failed(FailureKind.OUT_OF_MEMORY), DEFAULT, None),
        (failed(FailureKind.STALLED), DEFAULT, None),
        (failed(FailureKind.CONTAINER_LOST), RETRY, AT_ONCE),
        (failed(FailureKind.PREEMPTED), RETRY, AT_ONCE),
        (failed(FailureKind.FENCED), RETRY, AT_ONCE),
        (failed(None), RETRY, AT_ONCE),  # its master died
        (failed(FailureKind.LAUNCH), RETRY, SOON),
        (failed(FailureKind.LAUNCH, permanent=True), FAIL, None),
        (failed(FailureKind.UPLOAD), RETRY, SOON),
        (failed(FailureKind.CHECKPOINT), RETRY, SOON),
        (TonyQueueTimeout("full", application_id=ID), RETRY, LATER),
        (TonyKilledExternally("killed", application_id=ID), FAIL, None),
        (TonyTaskKilled("the worker goes down"), RETRY, AT_ONCE),
        (ClusterUnreachable("gone"), RETRY, SOON),
        (StorageUnreachable("hdfs://x", "read", "gone"), RETRY, SOON),
        (ValueError("what is this?"), DEFAULT, None),
    ],
)
def test_what_is_tried_again_and_when(error: Exception, action: RetryAction, delay: timedelta | None) -> None:
    decision = TonyRetryPolicy().evaluate(error, 1, 3)
    assert (decision.action, decision.retry_delay) == (action, delay)
    assert (decision.reason is None) is (action is DEFAULT)


@pytest.mark.parametrize("kind", list(FailureKind))
def test_every_kind_of_failure_is_decided(kind: FailureKind) -> None:
    assert TonyRetryPolicy().evaluate(failed(kind), 1, 3).action in (RETRY, DEFAULT)


def test_a_killed_training_may_be_started_again() -> None:
    policy = TonyRetryPolicy(killed_delay=timedelta(hours=1))
    decision = policy.evaluate(TonyKilledExternally("killed", application_id=ID), 1, 3)
    assert (decision.action, decision.retry_delay) == (RETRY, timedelta(hours=1))
    assert TonyRetryPolicy.deserialize(json.loads(json.dumps(policy.serialize()))) == policy
    assert TonyRetryPolicy.deserialize(TonyRetryPolicy().serialize()) == TonyRetryPolicy()


def test_airflow_follows_it(training: Training) -> None:
    tries: list[int] = []
    policy = TonyRetryPolicy()
    spec = training.spec(restart={"budget": 0, "permanent_exit_codes": [3]})
    done = training.retried(lambda: tries.append(1), spec, retry_policy=policy)
    assert done.state == "failed"
    assert (len(training.applications), tries) == (1, [])
