"""State that the tries of a task, and the processes of one try, share through stores.

This is the ID of the last application, counters of retries, a note about a deferred try, and the result of an ended
try. The module also names a task and its tries.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs
from airflow.sdk.exceptions import AirflowRuntimeError

from tony_provider.cluster.errors import logging_errors
from tony_provider.cluster.interface import Application
from tony_provider.cluster.training.identity import Identity
from tony_provider.cluster.training.results import Delivered
from tony_provider.compat import task_store_of
from tony_provider.exceptions import TonyJobFailed, TonyKilledExternally, TonyTaskKilled
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.checkpoint.stored_checkpoint import WaitingTry
from tony_provider.runtime.common.bounds import RECORD_LIMIT, read_json
from tony_provider.runtime.common.codec import CodecError, dump_json, from_plain, to_plain
from tony_provider.runtime.common.text import first_line, one_line
from tony_provider.runtime.hadoop.yarn_records import is_application_id
from tony_provider.runtime.protocol.status import FinalStatus, JobStatus
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage, read_whole, write_atomically
from tony_provider.runtime.storage.errors import StorageNotFound
from tony_provider.watching.termination import KillOrder, end_job

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.sdk.types import Logger
    from pydantic import JsonValue

    from tony_provider.cluster.records.summary import JobSummary


_NOTES = "The store of the jobs"


class StateStore:
    """A task's values in Airflow's ``task_state_store``. Values that are stored ``forever`` are also kept in ``notes``.

    Airflow has no such store before 3.3, and later versions delete a task's values when the task is cleared. So without
    ``notes`` values may get lost even if they are stored ``forever``.

    No method raises, because no training depends on these values. The methods log all exceptions of the store's
    backend, which an installation may replace (``[workers] state_store_backend``).
    """

    def __init__(self, context: Context, log: Logger, notes: TrainingNotes | None = None) -> None:
        self._store = task_store_of(context)
        self._notes = notes
        self._log = log

    @property
    def is_airflows(self) -> bool:
        """Whether values are in Airflow's database, where the portal can read them."""
        return self._store.is_airflows

    def get(self, key: str, *, forever: bool = False) -> JsonValue:
        """Return the value under ``key``, or None if there is no value or the store does not answer.

        Pass the same ``forever`` as to ``set``.
        """
        found: JsonValue = None
        with self._bearing(self._store.name, "read", key):
            found = self._store.get(key, forever=forever)
        if found is None and forever and self._notes is not None:
            with self._bearing(_NOTES, "read", key):
                found = self._notes.get(key)
        return found

    def set(self, key: str, value: JsonValue, *, forever: bool = False) -> bool:
        """Store ``value`` under ``key``, for the retention time of the installation, or ``forever``.

        Return whether it was accepted.
        """
        noted = cached = False
        if forever and self._notes is not None:
            with self._bearing(_NOTES, "store", key):
                self._notes.set(key, value)
                noted = True
        with self._bearing(self._store.name, "store", key):
            cached = self._store.keep(key, value, forever=forever)
        return noted or cached

    def delete(self, key: str) -> None:
        """Delete a value that was stored ``forever`` under ``key``."""
        if self._notes is not None:
            with self._bearing(_NOTES, "delete", key):
                self._notes.delete(key)
        with self._bearing(self._store.name, "delete", key):
            self._store.delete(key)

    @contextmanager
    def _bearing(self, whose: str, what: str, key: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a backend may raise anything
            self._log.warning("%s could not %s %s: %s", whose, what, key, error)


STATE_KEY = "tony_application_id"
FAILURES_KEY = "tony_trigger_failures"
STARTS_KEY = "tony_starts_anew"
_GONE = ("failed", "skipped", "upstream_failed", "removed")  # final states of task instances, except success
TRIGGER_FAILURE_WINDOW = 3600.0  # seconds
MAX_TRIGGER_FAILURES = 3  # failures of one try's triggers within the window; after more, the try waits in the worker
MAX_RESUBMISSIONS = 3  # limit for one try; it resubmits after a kill that was meant for an earlier try's application


@attrs.frozen
class TaskInstanceInfo:
    """A task instance. Its IDs identify its training, which is the same for all tries."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1  # -1 if the task is not mapped
    try_number: int = 1
    bundle_version: str = attrs.field(default="", eq=False)  # of the DAG's files; empty if the bundle has no versions

    @classmethod
    def of(cls, context: Context) -> TaskInstanceInfo:
        ti = context["ti"]
        index = -1 if ti.map_index is None else ti.map_index
        version = getattr(getattr(ti, "bundle_instance", None), "version", None)  # dag.test() has no bundle
        return cls(ti.dag_id, ti.run_id, ti.task_id, index, ti.try_number, version or "")

    def identity(self, hook: TonyHook, checkpoint_key: str | None) -> Identity:
        """Return the identity of the task's training in this run."""
        return hook.identity(
            dag_id=self.dag_id,
            run_id=self.run_id,
            task_id=self.task_id,
            map_index=self.map_index,
            checkpoint_key=checkpoint_key or None,
        )

    @property
    def labels(self) -> dict[str, str]:
        """The labels with which a job records the task instance that submitted it."""
        told = {name: str(value) for name, value in attrs.asdict(self).items() if name != "bundle_version"}
        if self.map_index < 0:
            del told["map_index"]
        return told


@attrs.frozen
class TryInfo:
    """Identifies one try of a task, so that its marks and kills are not mistaken for those of another try."""

    number: int
    max_tries: int  # number of the last allowed try; Airflow raises it when the task is cleared
    id: str  # Airflow's ID of this try; unlike ``number``, it is unique even if the run is deleted and created again
    run: str = ""  # all IDs of the task instance; try numbers are comparable only if these IDs are equal

    @classmethod
    def of(cls, context: Context) -> TryInfo:
        ti = context["ti"]
        return cls(
            ti.try_number,
            ti.max_tries,
            str(ti.id),
            " ".join(map(str, (ti.dag_id, ti.run_id, ti.task_id, ti.map_index))),
        )

    @property
    def name(self) -> str:
        """The try's name, as used in the diagnostics of an application that the try kills."""
        return f"try {self.number} ({self.id})"

    @property
    def waiting(self) -> WaitingTry:
        """A record for the store: this try waits for the training's application."""
        return WaitingTry(self.name, self.number, self.run, self.id)

    def delivered_mark(self) -> Delivered:
        """Return the mark that this try writes to the store when it has a result."""
        return Delivered(self.number, self.max_tries)

    def was_cleared_after(self, mark: Delivered) -> bool:
        """Whether the task was cleared after Airflow had recorded success for the try that wrote ``mark``."""
        return mark.reached_airflow(self.number, self.max_tries)


def is_of_dag_test(context: Context) -> bool:
    """Whether ``dag.test()`` runs the task in its own process: only there, the task instance has no bundle.

    ``dag.test()`` marks the task as deferred in the database, and runs the trigger itself. A triggerer with the same
    database runs the trigger as well, and mistakes the following events for a user's action.
    """
    return getattr(context["ti"], "bundle_instance", None) is None


def instance_exists(context: Context, map_index: int) -> bool:
    """Whether Airflow has a mapped instance with this index that has succeeded or may still succeed.

    Return False if Airflow does not answer.
    """
    ti = context["ti"]
    try:
        states = ti.get_task_states(ti.dag_id, map_index=map_index, task_ids=[ti.task_id], run_ids=[ti.run_id])
    except AirflowRuntimeError:
        return False
    found = states.get(ti.run_id, {}).get(f"{ti.task_id}_{map_index}")
    return found is not None and found not in _GONE


def remember(store: StateStore, application_id: str) -> None:
    """Keep the application's ID in Airflow's store.

    The value is a cache: the store of the jobs has the same information, and takes precedence.
    """
    store.set(STATE_KEY, application_id, forever=True)


def remembered(store: StateStore) -> str | None:
    """Return the application ID that an earlier try has kept in Airflow's store, or None.

    The ID is untrusted, and may name any application: the job and all users who may clear or mark the task can write
    it.
    """
    found = store.get(STATE_KEY, forever=True)
    return found if isinstance(found, str) and is_application_id(found) else None


def may_defer_again(store: StateStore, this_try: TryInfo, log: Logger) -> bool:
    """Count a failure of this try's trigger, and return whether to defer again. Otherwise the try waits in its worker.

    The count is in Airflow's store, because a failed trigger returns only its error. Return False if the store fails.
    """
    times = _counted(store, FAILURES_KEY, this_try, TRIGGER_FAILURE_WINDOW)
    if times is None:
        return False
    log.warning("The trigger has failed %d times; the limit is %d", times, MAX_TRIGGER_FAILURES + 1)
    return times <= MAX_TRIGGER_FAILURES


def may_resubmit(store: StateStore, this_try: TryInfo) -> bool:
    """Count a resubmission of this try, and return whether it is allowed.

    A try submits its job again if the final message of its application reports a kill for another try. The count is
    limited because the job itself writes this message, and could report such a kill each time. Return False if
    Airflow's store fails.
    """
    times = _counted(store, STARTS_KEY, this_try, math.inf)
    return times is not None and times <= MAX_RESUBMISSIONS


def _counted(store: StateStore, key: str, this_try: TryInfo, seconds: float) -> int | None:
    """Record a call for this try, and count the try's calls within the last ``seconds``.

    Return the count including this call, or None if the store fails.
    """
    found, now = store.get(key), time.time()
    known = found if isinstance(found, dict) and found.get("try") == this_try.id else {}
    times = known.get("times")
    recent = [at for at in times if isinstance(at, float) and now - at < seconds] if isinstance(times, list) else []
    if not store.set(key, {"try": this_try.id, "times": [*recent, now]}):
        return None
    return len(recent) + 1


_STORE_SECONDS = 5.0  # time limit for the store, since trainings do not depend on notes


@attrs.frozen
class TrainingNotes:
    """Notes in the training's directory, one file per key. They are untrusted, because the job may write there.

    The methods may raise the store's exceptions.
    """

    hook: TonyHook
    identity: Callable[[], Identity]

    def get(self, key: str) -> JsonValue:
        """Return the note, or None."""
        try:
            found: JsonValue = read_json(read_whole(self._storage(), self._file(key), RECORD_LIMIT))
        except StorageNotFound:
            return None
        return found

    def set(self, key: str, value: JsonValue) -> None:
        write_atomically(self._storage(), self._file(key), dump_json(value))

    def delete(self, key: str) -> None:
        self._storage().remove(self._file(key))

    def _storage(self) -> Storage:
        self.hook.expect_store(_STORE_SECONDS)
        return self.hook.storage()

    def _file(self, key: str) -> str:
        return uris.join(self.hook.layout.notes_dir(self.identity()), f"{key}.json")


KILL_REASON = "the task was cleared while it was deferred"
_KEY = "tony_deferral"
_WHOSE = ("dag_id", "run_id", "task_id", "map_index")
_NAMED = 100  # maximum characters of an invalid ID in a message


@attrs.frozen
class DeferralNote:
    """A note about a deferred try and its running application. The note exists while no process of the try is active.

    The try writes the note before the deferral, and removes it when it resumes.
    """

    try_id: str
    max_tries: int  # number of the last try that Airflow allowed when the note was written
    application_id: str
    kill: bool  # whether a user's action on the task ends the application

    def was_cut_short(self, this_try: TryInfo) -> bool:
        """Whether a user cleared the task while this try was deferred. ``this_try`` is a later try.

        Only clearing raises ``max_tries``. If a later try finds the note with the same ``max_tries``, a process died
        just before the deferral or the resumption. Clearing is not detected if the DAG's ``retries`` were lowered by
        the same number.
        """
        return this_try.id != self.try_id and this_try.max_tries != self.max_tries


@attrs.frozen
class BeginningTry:
    """A task at the start of a try, with a hook for the task's connection."""

    hook: TonyHook
    run: TaskInstanceInfo
    this_try: TryInfo
    checkpoint_key: str | None


def write_deferral_note(store: StateStore, deferral: DeferralNote) -> None:
    """Write the note just before the task is deferred."""
    store.set(_KEY, to_plain(deferral), forever=True)


def delete_deferral_note(store: StateStore) -> None:
    """Remove the note when the task resumes."""
    store.delete(_KEY)


def end_abandoned_application(store: StateStore, left_by: BeginningTry, log: Logger) -> None:
    """End the application of an earlier try if the task was cleared while that try was deferred.

    The note is untrusted: the job and all users who may clear or mark the task can write it. It only names an
    application. The application is ended if it still runs, and if the task's own connection confirms that this task
    started it. A failure does not stop this try.
    """
    left = _noted(store, log)
    if left is None:
        return
    # Answers of a cluster and files of an application are untrusted, so they may cause any exception.
    with logging_errors(log.warning, "%s of an earlier try could not be ended, and may still run", left.application_id):
        if left.kill and left.was_cut_short(left_by.this_try):
            _end(left.application_id, left_by, log)
        delete_deferral_note(store)


def _noted(store: StateStore, log: Logger) -> DeferralNote | None:
    plain = store.get(_KEY, forever=True)
    if plain is None:
        return None
    try:
        found = from_plain(plain, DeferralNote, ignore_unknown=True)
    except CodecError as error:  # written by another release of this provider
        log.warning("Cannot check whether an earlier try was cleared while it was deferred: %s", error)
        return None
    if not is_application_id(found.application_id):
        log.warning(
            "The note of an earlier try has an invalid application ID: %s", one_line(found.application_id)[:_NAMED]
        )
        return None
    return found


def _end(application_id: str, task: BeginningTry, log: Logger) -> None:
    found = task.hook.application_ref(application_id=application_id)
    if found is None or found.application is None or found.application.is_final:
        return
    if found.identity is None or not _is_of(task, found.identity, application_id):
        log.warning(
            "Leaving %s running: this task did not start it, although the note of an earlier try names it",
            application_id,
        )
        return
    log.info("Ending %s of an earlier try: %s", application_id, KILL_REASON)
    task.hook.owners(found.identity).begin(task.this_try.waiting)
    end_job(task.hook.job(application_id, found.identity), KillOrder(KILL_REASON, task.this_try.name))


def _is_of(task: BeginningTry, identity: Identity, application_id: str) -> bool:
    """Whether this task started the application, even if its ``checkpoint_key`` has changed since."""
    if identity == task.run.identity(task.hook, task.checkpoint_key):
        return True
    labels = task.hook.job(application_id, identity).labels()
    mine = {name: value for name, value in task.run.labels.items() if name != "try_number"}
    return {name: value for name, value in labels.items() if name in _WHOSE} == mine


_KILLED = (TonyKilledExternally, TonyTaskKilled)


@attrs.frozen(kw_only=True)
class EndedTry:
    """The end of a try of a training task, with the last known state of its application."""

    run: TaskInstanceInfo
    application_id: str  # empty if no application was submitted
    error: BaseException | None = None  # the exception that fails the task; None after success
    application: Application | None = None  # None if unknown to the cluster, or not queried at the end
    status: JobStatus | None = None  # None if there is none, or not read at the end
    summary: JobSummary | None = None

    @property
    def verdict(self) -> FinalStatus:
        if self.error is None:
            return FinalStatus.SUCCEEDED
        return FinalStatus.KILLED if isinstance(self.error, _KILLED) else FinalStatus.FAILED

    @property
    def kind(self) -> str:
        """The failure's kind: a FailureKind, or the name of the error if the job reports none. Empty after success."""
        if self.error is None:
            return ""
        if isinstance(self.error, TonyJobFailed) and self.error.failure is not None:
            return self.error.failure.kind.value
        return type(self.error).__name__

    @property
    def reason(self) -> str:
        """The first line of the error message; empty after success."""
        return first_line(str(self.error)) if self.error is not None else ""

    @property
    def queue(self) -> str:
        return self.application.queue if self.application else ""

    @property
    def started_ms(self) -> int | None:
        """Epoch milliseconds of the submission, or of the application master's start if the submission is unknown."""
        known = (self.application, self.status)
        return next((each.started_ms for each in known if each is not None and each.started_ms), None)

    @property
    def finished_ms(self) -> int | None:
        known = (self.application, self.status)
        return next((each.finished_ms for each in known if each is not None and each.finished_ms), None)

    @property
    def total_seconds(self) -> float | None:
        if self.started_ms is None or self.finished_ms is None:
            return None
        return max(0, self.finished_ms - self.started_ms) / 1000

    @property
    def waiting_seconds(self) -> float | None:
        times = self.status.times if self.status else None
        return times.waiting if times else None

    @property
    def training_seconds(self) -> float | None:
        times = self.status.times if self.status else None
        return times.training if times else None
