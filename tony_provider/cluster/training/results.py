"""Find an application by its ID or tag, and read its status, result, return value and labels from the store.

The module also marks a result as delivered.

An application belongs to a training only if it has the training's tag and a directory below the training's directory.
Any user can give any tag to an application, but cannot create this directory. A job can create such a directory, but
cannot change the tags of another application.

A job can write any value to its status file. So this module limits the values that Airflow shows, compares or keeps in
its database. Masters of this provider stay far below these limits. A status is refused if it names paths of other jobs,
or if a metric has a name that Airflow's serialization reserves.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import attrs

from tony_provider.cluster.errors import RecordUnreadable
from tony_provider.cluster.interface import Application, ApplicationFilter, Cluster, bounded_status
from tony_provider.cluster.training.checkpoint_chains import CheckpointChains, TrainingOwners
from tony_provider.cluster.training.identity import Identity, Layout, labelled_identity, read_record
from tony_provider.runtime.application_history import first_event
from tony_provider.runtime.common import bounds, contract
from tony_provider.runtime.common.bounds import RETURNED_DEEPEST, BoundedJsonError, read_json
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.common.concurrency import in_parallel
from tony_provider.runtime.protocol.limits import RESERVED_KEY_REASON, RESERVED_KEYS, foreign_places, reserved_key
from tony_provider.runtime.protocol.status import FinalStatus, JobState, JobStatus
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage, list_existing, read_whole, write_atomically
from tony_provider.runtime.storage.errors import StorageNotFound, StorageTooLarge

log = logging.getLogger(__name__)


@attrs.frozen
class ApplicationRef:
    """An application, and the identity of its training if it is known."""

    application_id: str
    application: Application | None  # cluster's report; None if the cluster does not know the application (any more)
    identity: Identity | None  # None if the staging directory has no files of the application


_MOST_TRAININGS = 64  # trainings of a task to search for its newest applications
_READERS = 8  # threads


@attrs.frozen
class TaskApplication:
    """An application that a task of a DAG has started."""

    id: str
    labels: dict[str, str]  # dag_id, run_id, task_id, try_number, …

    @property
    def run_id(self) -> str:
        return self.labels["run_id"]

    def __str__(self) -> str:
        index = f", map index {self.labels['map_index']}" if "map_index" in self.labels else ""
        return f"{self.id} (run {self.run_id}{index}, try {self.labels.get('try_number')})"


@attrs.frozen
class ApplicationFinder:
    """Finds applications by id or tag, and the trainings that they belong to.

    All methods raise ClusterError and StorageError.
    """

    cluster: Cluster
    storage: Storage
    layout: Layout

    def of_application(self, application_id: str) -> ApplicationRef | None:
        """Return the application with this id, or None if neither cluster nor staging directory knows it."""
        application = self.cluster.application(application_id)
        if application is not None:
            return ApplicationRef(application_id, application, self._by_tags(application))
        identity = self._by_directory(application_id)
        return ApplicationRef(application_id, None, identity) if identity is not None else None

    def of_tag(self, tag: str) -> ApplicationRef | None:
        """Return the newest application with this tag, or None.

        ``tag`` may be the tag of a training, or any tag that a job sets. Applications with files in the staging
        directory take precedence over the user's other applications. Applications of other users without such files are
        ignored.
        """
        known = list(self.identities())
        others = []
        for application in self.cluster.applications(ApplicationFilter(tag=tag)):
            identity = next((each for each in known if each.tag in application.tags), None)
            if identity is not None and application.id in self.ids_of(identity):
                return ApplicationRef(application.id, application, identity)
            if application.user == self.cluster.user:
                others.append(ApplicationRef(application.id, application, None))
        identity = next((each for each in known if each.tag == tag), None)
        if identity is not None and (kept := self.ids_of(identity)):
            return ApplicationRef(kept[-1], None, identity)
        return others[0] if others else None

    def of_task(self, namespace: str, whose: Mapping[str, str]) -> list[TaskApplication]:
        """Return the newest application with these labels of each training, the newest application first.

        ``whose`` has ``dag_id`` and ``task_id``, and may have further labels. If the labels do not identify a training,
        only the trainings whose directories have changed last are considered.
        """
        exact = labelled_identity(namespace, whose)
        found = [each for each in self._directories() if each[1].may_be_of(whose["dag_id"], whose["task_id"])]
        newest = sorted(found, key=lambda each: (each[1] == exact, each[0]), reverse=True)[:_MOST_TRAININGS]
        trainings = (identity for _, identity in newest)
        read = in_parallel(partial(self._newest_with, namespace, whose), trainings, _READERS, "trainings")
        return sorted(filter(None, read), key=lambda each: [(len(part), part) for part in each.id.split("_")])[::-1]

    def _newest_with(self, namespace: str, whose: Mapping[str, str], identity: Identity) -> TaskApplication | None:
        for application_id in reversed(self.ids_of(identity)):
            found = labels(self.storage, self.layout.application_dir(identity, application_id))
            if (
                whose.items() <= found.items() and labelled_identity(namespace, found) == identity
            ):  # labels may be forged
                return TaskApplication(application_id, found)
        return None

    def live_of(self, identity: Identity) -> list[Application]:
        """Return the training's applications that have not ended, newest first."""
        found = self.cluster.applications(ApplicationFilter(live=True, tag=identity.tag))
        known = self.ids_of(identity) if found else []
        return [application for application in found if application.id in known]

    def is_of(self, identity: Identity, application: Application) -> bool:
        """Return whether the application belongs to this training."""
        return identity.tag in application.tags and application.id in self.ids_of(identity)

    def identities(self) -> Iterator[Identity]:
        """Return the identities of all trainings that have a directory, the newest first."""
        return (identity for _, identity in self._directories())

    def _directories(self) -> Iterator[tuple[int, Identity]]:
        found = list_existing(self.storage, self.layout.jobs_dir)
        for directory in sorted(found, key=lambda directory: directory.modified_ms, reverse=True):
            if directory.is_directory and (identity := Identity.parse(directory.name)) is not None:
                yield directory.modified_ms, identity

    def _by_tags(self, application: Application) -> Identity | None:
        """Return the training of a tagged application. Usually this lists the directory of only one training."""
        tagged = (identity for identity in self.identities() if identity.tag in application.tags)
        return next((identity for identity in tagged if application.id in self.ids_of(identity)), None)

    def _by_directory(self, application_id: str) -> Identity | None:
        return next((identity for identity in self.identities() if application_id in self.ids_of(identity)), None)

    def ids_of(self, identity: Identity) -> list[str]:
        """Return the ids of the training's applications that have a directory, the newest last."""
        found = list_existing(self.storage, self.layout.applications_dir(identity))
        return [file.name for file in sorted(found, key=lambda file: file.modified_ms) if file.is_directory]


def tag_of(application: Application) -> str | None:
    """Return the tag that names the application's training, or None if no tag does."""
    return next((tag for tag in application.tags if tag.startswith(contract.TAG_PREFIX)), None)


@attrs.frozen
class PreviousApplication:
    """The last application of a training, as the cluster and the store know it."""

    application_id: str
    application: Application | None  # cluster's report; None if the cluster does not know the application (any more)
    status: JobStatus | None  # the job's result or latest status; None if neither is readable
    delivered: Delivered | None

    @property
    def is_live(self) -> bool:
        return self.application is not None and not self.application.is_final

    @property
    def has_succeeded(self) -> bool:
        """Whether the job succeeded, by its own result or, without a result, by the cluster's final status."""
        if self.status is not None and self.status.state.is_final:
            return self.status.state is JobState.SUCCEEDED
        return self.application is not None and self.application.final_status is FinalStatus.SUCCEEDED

    def __str__(self) -> str:
        """Describe the application by its id and state."""
        if self.status is not None and self.status.state.is_final:
            return f"{self.application_id} {self.status.state.value}"
        if self.application is not None:
            return f"{self.application_id} {self.application.state}"
        return f"{self.application_id}, which is unknown to the cluster, or no longer known, and left no result"


def previous_application(
    cluster: Cluster, storage: Storage, layout: Layout, identity: Identity, *, remembered: str | None = None
) -> PreviousApplication | None:
    """Return the last application of a training: the training's owner, otherwise the application ``remembered``.

    Return None if there is neither, or if the application belongs to another training. Raises ClusterError,
    StorageError.
    """
    owner = TrainingOwners(storage, layout.job_dir(identity)).newest().owner.application_id
    application_id = owner or remembered
    if application_id is None:
        return None
    directory = layout.application_dir(identity, application_id)
    # Query the cluster before the store, because an application writes its result before the cluster reports its end.
    application = cluster.application(application_id)
    if application is not None:
        finder = ApplicationFinder(cluster, storage, layout)
        # Other users may have written the id that a task remembers, and a job may have changed the owner file, so check
        # that the application belongs to this training. For an owner, check only the tag: the directory may be gone.
        is_mine = identity.tag in application.tags if owner else finder.is_of(identity, application)
        if not is_mine:
            who = "the training's owner file" if owner else "the Airflow task's state"
            log.warning("ignoring %s: it does not belong to this training, although %s names it", application_id, who)
            return None
    status = _status(storage, directory, application)
    return PreviousApplication(application_id, application, status, delivered(storage, directory))


def _status(storage: Storage, directory: str, application: Application | None) -> JobStatus | None:
    try:
        return job_status(storage, directory)
    except RecordUnreadable as error:
        if application is None and is_of_result(error):
            raise  # neither the cluster nor the result shows whether the job succeeded
        log.warning("Using the cluster's report, because the job's status is unreadable: %s", error)
        return None


_MOST_FOREIGN = 5  # paths of other jobs that an error lists


class StatusRefused(ValueError):  # noqa: N818 - named for what is wrong
    """A job's status has a value that no correct job reports; the message names each key and its value."""


def checked_status(status: JobStatus, application_dir: str | None) -> JobStatus:
    """Check that a status names only paths of its own application and training; return it cut to size limits.

    ``application_dir`` is the URI of the application's directory. If it is None (unknown), all paths are removed from
    the status. Raises StatusRefused.
    """
    if any(RESERVED_KEYS & metrics.keys() for metrics in _all_metrics(status)):
        raise StatusRefused(f"a metric's name {RESERVED_KEY_REASON}")
    if application_dir is None:
        return attrs.evolve(
            bounded_status(status), model_dir=None, export=None, checkpoint=None, resumed=None, inputs=[]
        )
    if foreign := foreign_places(status, application_dir):
        raise StatusRefused("; ".join(map(str, foreign[:_MOST_FOREIGN])))
    return bounded_status(status)


def _all_metrics(status: JobStatus) -> Iterator[Mapping[str, float]]:
    for task in status.tasks:
        for progress in (task.progress, *(each.progress for each in task.further)):
            if progress is not None:
                yield progress.metrics


_NO_TRY = -1


@attrs.frozen
class Delivered:
    """Content of ``delivered.json``: the mark that a try of the Airflow task is about to return the result.

    The task writes this file as its last action, so Airflow has the result unless the task then fails.
    """

    try_number: int
    max_tries: int  # Airflow's limit of tries at that time, which rises when a user clears the task
    delivered_ms: int = attrs.field(factory=epoch_ms)  # epoch milliseconds
    version: int = 1

    @classmethod
    def gone(cls) -> Delivered:
        """Return the mark for a result that no later try may use, because the model of the result was removed."""
        return cls(0, _NO_TRY)

    def reached_airflow(self, try_number: int, max_tries: int) -> bool:
        """Return whether Airflow recorded a success of the try that left the mark. A later try calls this method.

        Return True if a user has cleared the task or the run since. Return False for a plain retry: after the task's
        last action, the worker died or Airflow's server rejected the result.
        """
        return not (max_tries == self.max_tries and try_number > self.try_number)


def job_status(storage: Storage, application_dir: str, *, may_have_ended: bool = True) -> JobStatus | None:
    """Return the job's result, or its status if there is no result yet. Return None if neither is written yet.

    Without ``may_have_ended``, read only the status. Raises StorageError. Raises RecordUnreadable if the file is not a
    status, or names paths of other jobs.
    """
    without = "the cluster's report on the application applies"
    for name in (contract.RESULT_FILE, contract.STATUS_FILE)[not may_have_ended :]:
        uri = uris.join(application_dir, name)
        found = read_record(storage, uri, JobStatus, without=without, most_bytes=bounds.STATUS_LIMIT)
        if found is not None:
            try:
                return checked_status(found, application_dir)
            except StatusRefused as error:
                raise RecordUnreadable(uri, str(error), without) from error
    return None


def labels(storage: Storage, application_dir: str) -> dict[str, str]:
    """Return the application's labels from its submission: its origin (dag, run, task, try).

    The labels are in the application's description, which is removed when the application has ended, and in the first
    event of the history. Return an empty dictionary if neither can be read. Raises StorageError.
    """
    application_file = uris.join(application_dir, contract.LAUNCH_DIR, contract.APPLICATION_FILE)
    try:
        found = read_json(read_whole(storage, application_file, bounds.APPLICATION_LIMIT))["labels"]
    except (StorageNotFound, StorageTooLarge, BoundedJsonError, KeyError, TypeError):
        found = first_event(storage, application_dir).get("labels")
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def is_of_result(error: RecordUnreadable) -> bool:
    """Return whether the unreadable file is the job's result, which states the job's success, or only its status."""
    return uris.name(error.uri) == contract.RESULT_FILE


def returned(storage: Storage, application_dir: str) -> Any:
    """Return the value that a successful job left in TONY_RESULT_FILE, or None if it left none.

    Raises StorageError, RecordUnreadable.
    """
    uri = uris.join(application_dir, contract.RETURN_VALUE_FILE)
    without = "the job counts as a job without a return value"
    try:
        found = read_json(read_whole(storage, uri, bounds.RETURN_VALUE_LIMIT), deepest=RETURNED_DEEPEST)
    except StorageNotFound:
        return None
    except StorageTooLarge as error:
        raise RecordUnreadable(uri, error.problem, without) from error
    except BoundedJsonError as error:
        raise RecordUnreadable(uri, f"not JSON: {error}", without) from error
    if key := reserved_key(found):
        raise RecordUnreadable(uri, f"it contains {key!a}, which {RESERVED_KEY_REASON}", without)
    return found


def delivered(storage: Storage, application_dir: str) -> Delivered | None:
    """Return the mark that the application's result was delivered to Airflow, or None if there is no mark.

    Raises StorageError, RecordUnreadable.
    """
    without = "a success counts as not yet reported to Airflow"
    return read_record(storage, uris.join(application_dir, contract.DELIVERED_FILE), Delivered, without=without)


def mark_delivered(storage: Storage, application_dir: str, mark: Delivered) -> None:
    """Write the mark that the application's result was delivered to Airflow. Raises StorageError."""
    write_atomically(storage, uris.join(application_dir, contract.DELIVERED_FILE), dump_json(mark))


_LONGEST = 100  # characters of the DAG and task ids
_DATE = re.compile(r"(\d{4}-\d\d-\d\d)(?:T(\d\d):(\d\d))?")
_MIDNIGHT = ("00", "00")


@attrs.frozen
class EventFileSource:
    """TensorBoard event files of an application, and of all other applications of its checkpoint chain."""

    uri: str  # URI of a directory, which need not exist
    label: str  # such as clicks.train-2026-01-05-application_1700000000000_0001; legal as the name of a directory


def event_file_source(storage: Storage, layout: Layout, identity: Identity, application_id: str) -> EventFileSource:
    """Return the directory and label of the event files of a running or ended application.

    Raises StorageError, and RecordUnreadable if a file of the training's checkpoint chains cannot be read.
    """
    directory = layout.application_dir(identity, application_id)
    try:
        status = job_status(storage, directory)
    except RecordUnreadable:
        status = None
    chain = _chain(CheckpointChains(storage, layout, identity), application_id, status)
    label = label_of(labels(storage, directory), identity, application_id)
    return EventFileSource(uris.join(chain or directory, contract.TENSORBOARD_DIR), label)


def label_of(labels: Mapping[str, str], identity: Identity, application_id: str) -> str:
    """Return a name for users: the application id after the DAG, task and date, if ``labels`` has them."""
    if "dag_id" not in labels:  # without a DAG, the slug identifies the run
        return f"{identity.slug}-{application_id}"
    what = ".".join(labels[key] for key in ("dag_id", "task_id") if key in labels)
    if "map_index" in labels:
        what += f"-{labels['map_index']}"
    words = [what[:_LONGEST], date_of_run(labels.get("run_id", "")), application_id]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(word for word in words if word)).strip("-.")


def date_of_run(run_id: str) -> str:
    """Return the date in an Airflow run id, with the time unless it is midnight. Return "" if there is no date."""
    found = _DATE.search(run_id)
    if found is None:
        return ""
    day, *time = found.groups()
    return day if time[0] is None or tuple(time) == _MIDNIGHT else f"{day}T{''.join(time)}"


def _chain(chains: CheckpointChains, application_id: str, status: JobStatus | None) -> str | None:
    """Return the URI of the chain that the application owns, or else of the newest chain when the job started."""
    owned = chains.owned_by(application_id)
    if owned is not None:
        return owned.uri
    opened = [(chain.about.created_ms, chain.uri) for chain in chains.all() if chain.about is not None]
    before = [uri for created_ms, uri in opened if status is not None and created_ms <= status.started_ms]
    return next(reversed(before or [uri for _, uri in opened]), None)
