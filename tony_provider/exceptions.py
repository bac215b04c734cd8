"""The exceptions with which a training task fails in Airflow. Those that no retry can mend fail the task at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from tony_provider.runtime.protocol.status import Failure


class TonySpecError(AirflowFailException):
    """The job specification is wrong. Nothing was started; the message lists every problem."""


class TonyJobRejected(AirflowFailException):
    """The job was not started: a person must change the job, the connection, the cluster or a file on the store first.

    Nothing was started by this try.
    """


class TonyJobFailed(AirflowException):
    """The application ended without success.

    ``failure`` says which task failed and how; it is None when the application master died before it could say so.
    ``resumed_step`` is the step that its tasks had gone on from at last, None when they had begun at the beginning, or
    nothing says a step.
    ``permanent`` says that the same job would fail again, as its application master has decided: its program's exit
    code was declared to mean that, or its command cannot be run.
    """

    def __init__(
        self,
        message: str,
        *,
        application_id: str,
        failure: Failure | None = None,
        resumed_step: int | None = None,
    ) -> None:
        super().__init__(message)
        self.application_id = application_id
        self.failure = failure
        self.resumed_step = resumed_step
        self.permanent = failure is not None and failure.permanent


class TonyQueueTimeout(TonyJobFailed):
    """The cluster had no room for all containers of the job in time. The application was ended."""


class TonyKilledExternally(TonyJobFailed):
    """Someone else ended the application: a user, an administrator, or the cluster."""


class TonyResultRefused(AirflowFailException):
    """The job succeeded, and what it returned cannot be handed to other tasks key by key."""


class TonyTaskKilled(AirflowException):
    """This try of the task was asked to end, by a user's action or because its worker goes down."""


class TonyJobMissed(AirflowFailException):
    """What a sensor waits for can never come any more: the job ended otherwise, or there will be none."""


class TonyJobStale(AirflowFailException):
    """A job runs on, but its tasks are not heard of or are too slow; the message names each."""
