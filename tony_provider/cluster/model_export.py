"""An export of a running job's model: asked for, and waited for. Blocks."""

from __future__ import annotations

import time
from collections.abc import Callable

from tony_provider.cluster.base import Cluster
from tony_provider.cluster.errors import ClusterError, MasterOutOfReach
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.protocol.export_status import ExportedModel
from tony_provider.runtime.protocol.status import JobStatus

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
