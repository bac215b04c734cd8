"""The errors between Airflow and a cluster. Each message says what to change."""

# ruff: noqa: N818 - named for what is wrong

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tony_provider.runtime.jobspec.problems import told
from tony_provider.runtime.storage.errors import StorageError


class ClusterError(Exception):
    """Base of all errors between Airflow and a cluster.

    ``permanent`` says that the same call cannot succeed until a person changes something, so that a retry is of no
    use.
    """

    permanent: ClassVar[bool] = False


def is_unforeseen(error: BaseException) -> bool:
    """Whether an error is none of a cluster or a store: where it is told, the place where it was raised belongs to it.

    What a cluster answers, and what an application has left, is foreign, and may raise anything.
    """
    return not isinstance(error, ClusterError | StorageError)


class ClusterUnreachable(ClusterError):
    """No ResourceManager, or no active one, answered until the deadline."""


class ClusterAuthError(ClusterError):
    """The cluster does not accept who we say we are, or does not let that user do this."""


class ConfigurationHidden(ClusterAuthError):
    """The ResourceManager shows its configuration to administrators only; the connection has to say what is needed."""


class ConnectionProblem(ClusterError):
    """The Airflow connection is missing, or what it says cannot be used."""

    permanent = True


class JobRejected(ClusterError):
    """The job cannot run on this cluster as it stands; found before anything was staged or submitted."""

    permanent = True

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(told(self.problems)))

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return f"the job cannot run on this cluster: {told(self.problems)[0]}"
        return "the job cannot run on this cluster:" + "".join(f"\n  - {each}" for each in told(self.problems))


class JobNotAllowed(JobRejected):
    """The job asks for what the connection does not allow."""

    def __str__(self) -> str:
        return "the connection does not allow this job:" + "".join(f"\n  - {each}" for each in told(self.problems))


class JobTooLarge(JobRejected):
    """The nodes that the cluster has now, or the queue's share of them, could never hold the whole job."""

    permanent = False  # nodes come back

    def __str__(self) -> str:
        return (
            f"{super().__str__()}\nIt would wait for ever. Make it smaller, give it min_instances, let tasks that do "
            "without each other begin as they come (start: first-come), or, where nodes are added when jobs wait for "
            "them, set `autoscaling` in the tony connection"
        )


class SubmissionRefused(ClusterError):
    """The ResourceManager refused the submission itself; the message is its own."""

    permanent = True


class RestSubmissionDisabled(SubmissionRefused):
    """The cluster does not take applications over REST, which its administrator can allow."""

    def __init__(self) -> None:
        super().__init__(
            "this cluster takes no applications over REST: yarn.webapp.enable-rest-app-submissions is false. "
            "Ask its administrator to set it to true in the ResourceManager's yarn-site.xml"
        )


class MasterOutOfReach(ClusterError):
    """The application's master does not answer: it has not started yet, has ended, or hangs."""


class NotServed(MasterOutOfReach):
    """The application's master answers and has no such thing; it may be of another release."""


class UnexpectedAnswer(ClusterError):
    """A ResourceManager answered with something that its documentation does not know."""


class SourceMissing(ClusterError):
    """Files, archives or an environment that the job names are not there."""

    permanent = True


class Unconfirmed(ClusterError):
    """A record of a job names objects that a person has to confirm before they are used."""

    permanent = True


class RecordUnreadable(ClusterError):
    """A file that says how a training stands cannot be read: it was changed, or a newer version wrote it."""

    permanent = True

    def __init__(self, uri: str, problem: str, without: str) -> None:
        self.uri = uri
        super().__init__(
            f"cannot read {uri}: {problem}. It was changed, or a newer tony-provider wrote it: restore the file or "
            f"update tony-provider; or remove the file, and {without}"
        )


class StagingFailed(ClusterError):
    """The job's files could not be put on the store; nothing was submitted and nothing of the job is left."""


class TunnelEnded(ClusterError):
    """A tunnel is over, for good; the message says why."""


class TunnelLost(ClusterError):
    """The master knows nothing of a tunnel any more; another one can be opened."""
