"""Requests to a running job: check whether it can be resized, and export its model."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

import attrs

from tony_provider.cluster.errors import ClusterError, JobRejected, MasterOutOfReach
from tony_provider.cluster.interface import Cluster
from tony_provider.cluster.records.history import read_specification
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.common.codec import CodecError, from_plain
from tony_provider.runtime.jobspec.model import GrowRule, JobSpec
from tony_provider.runtime.jobspec.problems import first_problems
from tony_provider.runtime.jobspec.task_types import resize_refusal
from tony_provider.runtime.protocol.status import ExportedModel, JobStatus
from tony_provider.runtime.storage.base import Storage

log = logging.getLogger(__name__)


class NotResizable(ClusterError):  # noqa: N818 - named for what is wrong
    """A job cannot have this number of tasks: it does not allow that, or the cluster can never hold them."""

    permanent = True


def check_resize(cluster: Cluster, storage: Storage, application_dir: str, counts: Mapping[str, int]) -> None:
    """Check that a job could have these numbers of tasks by type if nothing else ran on the cluster.

    Log a warning instead if the application's specification was not kept or is unreadable; then only its master can
    judge. Raises NotResizable.
    """
    missing: list[str] = []
    kept = read_specification(storage, application_dir, missing)
    try:
        job = None if kept is None else from_plain(kept.job, JobSpec, ignore_unknown=True)
    except CodecError as error:
        job, missing = None, [str(error)]
    if job is None:
        log.warning("Whether the cluster could hold so many cannot be told beforehand: %s", "; ".join(missing))
        return
    if problem := resize_refusal(job, counts):
        raise NotResizable(problem)
    try:
        cluster.check(resized(job, counts))
    except JobRejected as error:
        wanted = ", ".join(f"{name}={number}" for name, number in counts.items())
        raise NotResizable(
            f"{wanted} cannot be had on this cluster: {'; '.join(first_problems(error.problems))}"
        ) from error


def resized(job: JobSpec, counts: Mapping[str, int]) -> JobSpec:
    """Return the job with these numbers of tasks by type, all of them required.

    Its windows are removed, because the job is already running.
    """
    tasks = {
        name: attrs.evolve(task, instances=counts[name], min_instances=None, max_instances=None, grow=GrowRule.ASKED)
        if name in counts
        else task
        for name, task in job.tasks.items()
    }
    return attrs.evolve(job, tasks=tasks, windows=None)


EXPORT_SECONDS = 300.0  # for the program to check for requests, export its model and upload it
_POLL = 1.0  # seconds


class NotExported(ClusterError):  # noqa: N818 - named for what is wrong
    """The model was not exported in time; the message names the newest checkpoint, if there is one."""


def export_model(
    cluster: Cluster, application_id: str, reason: str, seconds: float, result: Callable[[], JobStatus | None]
) -> ExportedModel:
    """Request an export of a running job's model; return it once it is on the store.

    :param seconds: maximum wait.
    :param result: returns the job's result, in case the job has ended.

    Raises NotExported, MasterOutOfReach, and the errors of ``Cluster.control``.
    """
    deadline = time.monotonic() + seconds
    asked_ms = cluster.control(application_id, "export", {"reason": reason})["asked_ms"]
    newest: ResumePoint | None = None
    while True:
        status = _look(cluster, application_id, result)
        if status is not None:
            newest = status.checkpoint
            request = status.export_request
            if status.export is not None and status.export.asked_ms >= asked_ms:
                return status.export
            if request is not None and request.asked_ms == asked_ms and request.problem:
                raise NotExported(f"{application_id}: {request.problem}{_instead(newest)}")
            if status.state.is_final:
                raise NotExported(f"{application_id} has ended before its model was exported{_instead(newest)}")
        if time.monotonic() + _POLL > deadline:
            break
        time.sleep(_POLL)
    raise NotExported(
        f"no export of the model of {application_id} has come within {seconds:g} s. It is still asked for; a program "
        f"that never looks for requests (tony_sdk.export_requested) makes none{_instead(newest)}"
    )


def _look(cluster: Cluster, application_id: str, result: Callable[[], JobStatus | None]) -> JobStatus | None:
    """Return the job's status or result, or None if no master answers, for example between two masters."""
    try:
        return cluster.master_status(application_id)
    except MasterOutOfReach:
        application = cluster.application(application_id)
        if application is not None and not application.is_final:
            return None
        ended = result()
        if ended is None or not ended.state.is_final:
            raise
        return ended


def _instead(newest: ResumePoint | None) -> str:
    return f". Its newest checkpoint is {newest.label}: {newest.uri}" if newest and newest.uri else ""
