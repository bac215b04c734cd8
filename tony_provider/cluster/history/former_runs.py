"""The last applications of a task of a DAG, over all its runs: one small file for each task, in the staging directory.

Advice is better from several runs, and the next run may take it. Each try that ends adds its own. Where two do so at
the same time one of them may be missing afterwards: nothing but advice depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs

from tony_provider.cluster.history.job_summary import JobSummary
from tony_provider.cluster.identity import Identity, identity_of
from tony_provider.cluster.layout import Layout
from tony_provider.cluster.record_files import read_record
from tony_provider.runtime.codec import dump_json
from tony_provider.runtime.most_bytes import FORMER_RUNS
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.helpers import write_atomically

KEPT = 10  # applications


@attrs.frozen(kw_only=True)
class FormerRuns:
    """What is known of the last applications of one task of a DAG."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    summaries: list[JobSummary] = attrs.field(factory=list)  # oldest first, at most KEPT, without curves
    quiet_runs: int = 0  # that are to succeed with the DAG's own values before advice is applied again
    blamed: str | None = None  # the application that has failed with advice applied, while ``quiet_runs`` lasts
    version: int = 1

    def with_run(self, summary: JobSummary) -> FormerRuns:
        """With one more; in the place of what was known of the same application."""
        others = [each for each in self.summaries if each.application_id != summary.application_id]
        kept = [*others, attrs.evolve(summary, curves=[])]
        return attrs.evolve(self, summaries=kept[-KEPT:])


def task_identity(namespace: str, labels: Mapping[str, str]) -> Identity | None:
    """Names a task of a DAG, whatever its run, by the labels of an application; None: it is of none."""
    if "dag_id" not in labels or "task_id" not in labels:
        return None
    index = labels.get("map_index", "-1")
    return identity_of(
        namespace=namespace,
        dag_id=labels["dag_id"],
        run_id="",
        task_id=labels["task_id"],
        map_index=int(index) if index.lstrip("-").isdecimal() else -1,
        checkpoint_key=labels.get("checkpoint_key"),
    )


def read_former_runs(storage: Storage, layout: Layout, task: Identity) -> FormerRuns:
    """What is kept of a task's former applications. Raises StorageError, RecordUnreadable."""
    without = "advice begins anew with the next application of its task"
    found = read_record(storage, layout.former_runs(task), FormerRuns, without=without, most_bytes=FORMER_RUNS)
    return FormerRuns() if found is None else found


def write_former_runs(storage: Storage, layout: Layout, task: Identity, runs: FormerRuns) -> None:
    """Keep it in place of what was there. Raises StorageError."""
    write_atomically(storage, layout.former_runs(task), dump_json(runs))
