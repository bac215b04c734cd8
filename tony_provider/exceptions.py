"""Exceptions of a training task or a sensor in Airflow.

Subclasses of AirflowFailException fail the task immediately, because no retry can succeed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from tony_provider.runtime.protocol.status import Failure


class TonySpecError(AirflowFailException):
    """The job specification is invalid. No application was started; the message lists every problem."""


class TonyJobRejected(AirflowFailException):
    """The job was not started. The job, the connection, the cluster or a file on the store must be changed first.

    This try started no application.
    """


REFUSALS = (TonySpecError, TonyJobRejected)


class TonyJobFailed(AirflowException):
    """The application ended without success.

    ``failure`` names the failed task and the reason. It is None if the application master died before it could report
    them. ``resumed_step`` is the step from which the tasks last resumed. It is None if they started at the beginning,
    or if the step is unknown.

    ``permanent`` is True if the application master reports that the same job would fail again: the job declares the
    program's exit code as permanent, or two nodes, or the only node, lack a command or a Python module.
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


class TonyPermanentFailure(TonyJobFailed, AirflowFailException):
    """The same job would fail again, so Airflow does not retry the task. ``permanent`` is True."""


class TonyQueueTimeout(TonyJobFailed):
    """The cluster had no room for all containers of the job in time. The application was ended."""


class TonyKilledExternally(TonyJobFailed):
    """A user, an administrator or the cluster ended the application."""


class TonyResultRefused(AirflowFailException):
    """The job succeeded, but its return value cannot be pushed as one XCom per key."""


class TonyTaskKilled(AirflowException):
    """This try of the task must end, because of a user's action or because its worker shuts down."""


class TonyJobMissed(AirflowFailException):
    """The condition of a sensor can no longer be met: the job ended in another state, or no job will start."""


class TonyJobStale(AirflowFailException):
    """A job runs, but some tasks are silent or too slow; the message names these tasks."""
