"""Where the event files of an application are on the store, and what people call the application."""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from tony_provider.cluster import results
from tony_provider.cluster.checkpoint_chains import CheckpointChains
from tony_provider.cluster.errors import RecordUnreadable
from tony_provider.cluster.identity import Identity
from tony_provider.cluster.layout import Layout
from tony_provider.runtime import contract
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage

_LONGEST = 100  # characters of the DAG and its task
_DATE = re.compile(r"(\d{4}-\d\d-\d\d)(?:T(\d\d):(\d\d))?")
_MIDNIGHT = ("00", "00")


@attrs.frozen
class EventFileSource:
    """The event files of one application, and of all others that have trained in the same checkpoint chain."""

    uri: str  # of a directory, which need not exist
    label: str  # such as clicks.train-2026-01-05-application_1700000000000_0001; legal as the name of a directory


def event_file_source(storage: Storage, layout: Layout, identity: Identity, application_id: str) -> EventFileSource:
    """The event files of an application, running or ended.

    Raises StorageError, and RecordUnreadable for files of the training's checkpoint chains.
    """
    directory = layout.application_dir(identity, application_id)
    try:
        status = results.job_status(storage, directory)
    except RecordUnreadable:
        status = None
    chain = _chain(CheckpointChains(storage, layout, identity), application_id, status)
    label = label_of(results.labels(storage, directory), identity, application_id)
    return EventFileSource(uris.join(chain or directory, contract.TENSORBOARD_DIR), label)


def label_of(labels: Mapping[str, str], identity: Identity, application_id: str) -> str:
    """What people call the application: its DAG, task and date as far as the labels say them, and its id."""
    if "dag_id" not in labels:  # of no DAG: its slug says which run it is
        return f"{identity.slug}-{application_id}"
    what = ".".join(labels[key] for key in ("dag_id", "task_id") if key in labels)
    if "map_index" in labels:
        what += f"-{labels['map_index']}"
    words = [what[:_LONGEST], _date(labels.get("run_id", "")), application_id]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(word for word in words if word)).strip("-.")


def _date(run_id: str) -> str:
    """The one that a run's id holds, as those of Airflow's own do; with its time, if it has one."""
    found = _DATE.search(run_id)
    if found is None:
        return ""
    day, *time = found.groups()
    return day if time[0] is None or tuple(time) == _MIDNIGHT else f"{day}T{''.join(time)}"


def _chain(chains: CheckpointChains, application_id: str, status: JobStatus | None) -> str | None:
    """The one that the application owns; if others came after it, the newest that was there when it started."""
    owned = chains.owned_by(application_id)
    if owned is not None:
        return owned.uri
    opened = [(chain.about.created_ms, chain.uri) for chain in chains.all() if chain.about is not None]
    before = [uri for created_ms, uri in opened if status is not None and created_ms <= status.started_ms]
    return next(reversed(before or [uri for _, uri in opened]), None)
