"""A retry policy for training tasks: decides by the cause of a failure whether and when to retry."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import attrs

from tony_provider.cluster.errors import ClusterError
from tony_provider.compat import RetryDecision, RetryPolicy
from tony_provider.exceptions import TonyJobFailed, TonyKilledExternally, TonyQueueTimeout, TonyTaskKilled
from tony_provider.runtime.protocol.status import FailureKind
from tony_provider.runtime.storage.errors import StorageError

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

_AT_ONCE = timedelta(0)

# Caused by the cluster: the next application resumes from the newest checkpoint, on other nodes.
_OF_THE_CLUSTER = (FailureKind.CONTAINER_LOST, FailureKind.NODE, FailureKind.PREEMPTED, FailureKind.FENCED)
# Temporary failures of a node, the network or the store.
_PASSING = (
    FailureKind.LAUNCH,
    FailureKind.REGISTRATION_TIMEOUT,
    FailureKind.CHECKPOINT,
    FailureKind.UPLOAD,
    FailureKind.INTERNAL,
)


@attrs.frozen
class TonyRetryPolicy(RetryPolicy):
    """A retry policy by the cause of a failure: ``TonyTrainOperator(..., retries=5, retry_policy=TonyRetryPolicy())``.

    Airflow retries immediately if the cluster took containers away, if the application master died, or if the worker
    shut down. Airflow retries after a delay if the queue was full, if the cluster or its store was unreachable, or if
    containers could not start. Airflow does not retry after an exit code that the job declares as permanent, if a
    command is missing, or if a user or the cluster ended the application.

    After any other failure, such as a training that failed after all its own restarts, Airflow retries after the task's
    ``retry_delay``. The task's ``retries`` limits the number of all retries. Airflow does not call a policy for errors
    that no retry can fix, such as an invalid job.

    :param queue_delay: delay before the retry if the job did not receive its containers within the queue timeout.
    :param outage_delay: delay before the retry if the cluster or its store was unreachable, or after another temporary
        failure.
    :param killed_delay: delay before the retry if a user or the cluster ended the application; default: no retry.
    """

    queue_delay: timedelta = timedelta(minutes=10)
    outage_delay: timedelta = timedelta(minutes=2)
    killed_delay: timedelta | None = None

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        if isinstance(exception, TonyJobFailed):
            return self._of_job(exception)
        if isinstance(exception, TonyTaskKilled):
            return RetryDecision.retry(_AT_ONCE, "the worker went down")
        if isinstance(exception, (ClusterError, StorageError)):
            return RetryDecision.retry(self.outage_delay, "the cluster or its store was unreachable")
        return RetryDecision.default()

    def _of_job(self, error: TonyJobFailed) -> RetryDecision:
        kind = error.failure.kind if error.failure is not None else None
        if error.permanent:
            return RetryDecision.fail("the same job would fail again")
        if isinstance(error, TonyQueueTimeout):
            return RetryDecision.retry(self.queue_delay, "the queue was full")
        if isinstance(error, TonyKilledExternally):
            if self.killed_delay is None:
                return RetryDecision.fail("a user or the cluster ended the application")
            return RetryDecision.retry(self.killed_delay, "a user or the cluster ended the application")
        if kind is None or kind in _OF_THE_CLUSTER:
            return RetryDecision.retry(_AT_ONCE, "the cluster removed containers, or the application master died")
        if kind in _PASSING:
            return RetryDecision.retry(self.outage_delay, f"{kind.value} may be temporary")
        return RetryDecision.default()

    def serialize(self) -> dict[str, Any]:
        return {name: None if span is None else span.total_seconds() for name, span in attrs.asdict(self).items()}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> TonyRetryPolicy:
        killed = data["killed_delay"]
        return cls(
            queue_delay=timedelta(seconds=data["queue_delay"]),
            outage_delay=timedelta(seconds=data["outage_delay"]),
            killed_delay=None if killed is None else timedelta(seconds=killed),
        )
