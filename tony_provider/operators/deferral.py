"""The note that a try leaves before it is deferred, by which the next try ends what a cleared task has left running.

A cleared task's trigger is told of it and ends the application, but when it asks whether that is so the next try may be
deferred already, which looks the same; and there may be no triggerer. So the next try sees to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from tony_provider.cluster.errors import is_unforeseen
from tony_provider.cluster.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.tries import TaskRun, TaskTry
from tony_provider.runtime.codec import CodecError, from_plain, to_plain
from tony_provider.runtime.hadoop.ids import is_application_id
from tony_provider.runtime.text import one_line
from tony_provider.state_store import StateStore
from tony_provider.watching.termination import Kill, end_application

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

KILL_REASON = "the task was cleared while it was deferred"
_KEY = "tony_deferral"
_WHOSE = ("dag_id", "run_id", "task_id", "map_index")
_NAMED = 100  # characters of what is no id


@attrs.frozen
class Deferral:
    """A note that a try was deferred, and what it left running: written just before, and removed when it goes on.

    In between no process of the try looks on.
    """

    try_id: str
    max_tries: int  # the last try that Airflow allowed then
    application_id: str
    kill: bool  # whether a user's action on the task ends the application

    def was_cut_short(self, this_try: TaskTry) -> bool:
        """Whether a user has cleared the task while it was deferred, as seen from another try.

        A mere retry after a note says that a process died as the try was about to be deferred, or to go on. Only
        clearing raises ``max_tries``; unless the DAG has got just as many ``retries`` less meanwhile.
        """
        return this_try.id != self.try_id and this_try.max_tries != self.max_tries


@attrs.frozen
class TaskOfTry:
    """A task whose try begins, and the door to the cluster by its own connection."""

    hook: TonyHook
    run: TaskRun
    this_try: TaskTry
    checkpoint_key: str | None


def note(store: StateStore, deferral: Deferral) -> None:
    """Leave the note just before the task is deferred."""
    store.set(_KEY, to_plain(deferral), forever=True)


def forget(store: StateStore) -> None:
    """Remove the note: the task goes on."""
    store.delete(_KEY)


def end_what_was_left(store: StateStore, left_by: TaskOfTry, log: Logger) -> None:
    """End the application that an earlier try had left to its trigger when the task was cleared, if it still runs.

    Whoever may clear or mark the task can write its note, and so can its job: that only names an
    application, which is ended where the task's own connection says that this task has started it. What cannot be ended
    keeps this try from nothing, where it is another one.
    """
    left = _noted(store, log)
    if left is None:
        return
    try:
        if left.kill and left.was_cut_short(left_by.this_try):
            _end(left.application_id, left_by, log)
    except Exception as error:  # the answers of a cluster, and what an application has left, are foreign
        log.warning(
            "%s of an earlier try could not be ended, and may still run: %s",
            left.application_id,
            error,
            exc_info=is_unforeseen(error),
        )
    else:
        forget(store)


def _noted(store: StateStore, log: Logger) -> Deferral | None:
    plain = store.get(_KEY, forever=True)
    if plain is None:
        return None
    try:
        found = from_plain(plain, Deferral, ignore_unknown=True)
    except CodecError as error:  # of another release
        log.warning("Whether an earlier try was cleared while it was deferred cannot be told: %s", error)
        return None
    if not is_application_id(found.application_id):
        log.warning("The note of an earlier try names no application: %s", one_line(found.application_id)[:_NAMED])
        return None
    return found


def _end(application_id: str, task: TaskOfTry, log: Logger) -> None:
    found = task.hook.application_ref(application_id=application_id)
    if found is None or found.application is None or found.application.is_final:
        return
    if found.identity is None or not _is_of(task, found.identity, application_id):
        log.warning("%s, which Airflow's store names, is none that this task has started: it goes on", application_id)
        return
    log.info("Ending %s of an earlier try: %s", application_id, KILL_REASON)
    task.hook.owners(found.identity).begin(task.this_try.waiting)
    end_application(task.hook, found.identity, application_id, Kill(KILL_REASON, task.this_try.name))


def _is_of(task: TaskOfTry, identity: Identity, application_id: str) -> bool:
    """Whether it is of the task's training, or of the one that the task was before: its key may have changed since."""
    if identity == task.run.identity(task.hook, task.checkpoint_key):
        return True
    labels = task.hook.labels(identity, application_id)
    mine = {name: value for name, value in task.run.labels.items() if name != "try_number"}
    return {name: value for name, value in labels.items() if name in _WHOSE} == mine
