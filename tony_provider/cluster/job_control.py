"""Resizing a running job, as far as it can be told beforehand whether it can be."""

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
from tony_provider.runtime.jobspec.problems import told
from tony_provider.runtime.jobspec.task_types import refusal
from tony_provider.runtime.protocol.status import ExportedModel, JobStatus
from tony_provider.runtime.storage.base import Storage

log = logging.getLogger(__name__)


class NotResizable(ClusterError):  # noqa: N818 - named for what is wrong
    """A job cannot have so many tasks: it does not allow that, or the cluster could never hold them."""

    permanent = True


def check_resize(cluster: Cluster, storage: Storage, application_dir: str, counts: Mapping[str, int]) -> None:
    """Check that a job could have so many tasks of these types, were nothing else on the cluster.

    Raises NotResizable. An application whose specification was not kept has its master's word alone.
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
    if problem := refusal(job, counts):
        raise NotResizable(problem)
    try:
        cluster.check(resized(job, counts))
    except JobRejected as error:
        wanted = ", ".join(f"{name}={number}" for name, number in counts.items())
        raise NotResizable(f"{wanted} cannot be had on this cluster: {'; '.join(told(error.problems))}") from error


def resized(job: JobSpec, counts: Mapping[str, int]) -> JobSpec:
    """The job with so many tasks of these types, all of which it needs, whatever the hour is: it runs already."""
    tasks = {
        name: attrs.evolve(task, instances=counts[name], min_instances=None, max_instances=None, grow=GrowRule.ASKED)
        if name in counts
        else task
        for name, task in job.tasks.items()
    }
    return attrs.evolve(job, tasks=tasks, windows=None)


EXPORT_SECONDS = 300.0  # that a program has to reach its next look at requests, to export its model, and for the upload
_POLL = 1.0  # seconds


class NotExported(ClusterError):  # noqa: N818 - named for what is wrong
    """No export of the model has come; the message names the newest checkpoint, which there may be all the same."""


def export_model(
    cluster: Cluster, application_id: str, reason: str, seconds: float, result: Callable[[], JobStatus | None]
) -> ExportedModel:
    """Ask a running job for an export of its model; returns it once it is on the store.

    :param seconds: how long it is waited for.
    :param result: gives the job's result, should it have ended meanwhile.

    Raises NotExported, MasterOutOfReach, and what ``Cluster.control`` raises.
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
    """None while nobody tells, as between two application masters."""
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
