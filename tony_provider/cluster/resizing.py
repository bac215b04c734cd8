"""Resizing a running job, as far as it can be told beforehand whether it can be."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import attrs

from tony_provider.cluster.base import Cluster
from tony_provider.cluster.errors import ClusterError, JobRejected
from tony_provider.cluster.history.read_history import read_specification
from tony_provider.runtime.codec import CodecError, from_plain
from tony_provider.runtime.spec.model import GrowRule, JobSpec
from tony_provider.runtime.spec.problems import told
from tony_provider.runtime.spec.task_counts import refusal
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
