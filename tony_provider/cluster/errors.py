"""Errors of clusters and of submissions. Each message includes the remedy."""

# ruff: noqa: N818 - named for what is wrong

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from tony_provider.runtime.jobspec.problems import first_problems
from tony_provider.runtime.storage.errors import StorageError


class ClusterError(Exception):
    """Base class of all errors of clusters and submissions.

    ``permanent`` is True if the same call cannot succeed until a person changes something, so a retry is useless.
    """

    permanent: ClassVar[bool] = False


def is_unforeseen(error: BaseException) -> bool:
    """Return whether an error is neither a ClusterError nor a StorageError. Its log line then needs a traceback.

    Code that reads answers of a cluster or files of an application may raise any error, because this data is untrusted.
    """
    return not isinstance(error, ClusterError | StorageError)


@contextmanager
def logging_errors(log: Callable[..., object], message: str, *arguments: object) -> Iterator[None]:
    """Context manager that logs any exception of its block with ``log``, such as ``logger.warning``.

    ``arguments`` are the values of the placeholders in ``message``. The text of the exception follows the message.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - it is logged
        log(f"{message}: %s", *arguments, error, exc_info=is_unforeseen(error))


class ClusterUnreachable(ClusterError):
    """No ResourceManager answered before the deadline, or none of them is active."""


class ClusterAuthError(ClusterError):
    """The cluster rejects the user's identity, or does not allow the user this action."""


class ConfigurationHidden(ClusterAuthError):
    """The ResourceManager shows its configuration only to administrators, so the connection must have the setting."""


class ConnectionProblem(ClusterError):
    """The Airflow connection is missing or has an unusable setting."""

    permanent = True


class JobRejected(ClusterError):
    """The job cannot run on this cluster as specified; raised before anything is staged or submitted."""

    permanent = True
    heading = "the job cannot run on this cluster"

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(first_problems(self.problems)))

    def __str__(self) -> str:
        lines = first_problems(self.problems)
        return f"{self.heading}: {lines[0]}" if len(lines) == 1 else "\n  - ".join([f"{self.heading}:", *lines])


class JobNotAllowed(JobRejected):
    """The job requests something that the connection's policy does not allow."""

    heading = "the connection does not allow this job"


class JobTooLarge(JobRejected):
    """The job is too large for the cluster's present nodes, or for the queue's share of them, even if they are idle."""

    permanent = False  # lost nodes may register again

    def __str__(self) -> str:
        return (
            f"{super().__str__()}\nIt would wait forever. Make it smaller, set min_instances, let independent tasks "
            "start as their containers arrive (start: first-come), or, if the cluster adds nodes when jobs wait for "
            "them, set `autoscaling` in the tony connection"
        )


class SubmissionRefused(ClusterError):
    """The cluster refused the submission. The message includes the cluster's reason."""

    permanent = True


class RestSubmissionDisabled(SubmissionRefused):
    """The cluster does not accept applications over REST; its administrator can enable that."""

    def __init__(self) -> None:
        super().__init__(
            "this cluster accepts no applications over REST: yarn.webapp.enable-rest-app-submissions is false. "
            "Ask its administrator to set it to true in the ResourceManager's yarn-site.xml"
        )


class MasterOutOfReach(ClusterError):
    """The application master does not answer: it has not started yet, has ended, or hangs."""


class UnexpectedAnswer(ClusterError):
    """A ResourceManager or an application master sent an answer that its protocol does not define."""


class SourceMissing(ClusterError):
    """Files, archives or an environment that the job names do not exist."""

    permanent = True


class Unconfirmed(ClusterError):
    """The record of a job names objects that a person must confirm before they are used."""

    permanent = True


class RecordUnreadable(ClusterError):
    """A file with the state of a training cannot be read: it was changed, or a newer version wrote it."""

    permanent = True

    def __init__(self, uri: str, problem: str, without: str) -> None:
        self.uri = uri
        super().__init__(
            f"cannot read {uri}: {problem}. It was changed, or a newer tony-provider wrote it: restore the file or "
            f"update tony-provider; or remove the file: then {without}"
        )


class StagingFailed(ClusterError):
    """The job's files could not be staged on the store. Nothing was submitted, and no file of the job is left."""


@contextmanager
def staging_errors() -> Iterator[None]:
    """Convert StorageErrors of a submission to StagingFailed. Use it as a context manager or decorator."""
    try:
        yield
    except StorageError as error:
        raise StagingFailed(f"the job could not be staged: {error}") from error


class TunnelEnded(ClusterError):
    """A tunnel has ended and cannot be reopened; the message gives the reason."""


class TunnelLost(ClusterError):
    """The application master no longer knows a tunnel; another one can be opened."""
