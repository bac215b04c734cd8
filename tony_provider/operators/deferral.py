"""The note that a try leaves before it is deferred, by which the next try ends what a cleared task has left running.

A cleared task's trigger is told of it and ends the application, but when it asks whether that is so the next try may be
deferred already, which looks the same; and there may be no triggerer. So the next try sees to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.tries import TaskTry
from tony_provider.runtime.codec import CodecError, from_plain, to_plain
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.state_store import StateStore
from tony_provider.watching.termination import Kill, end_application

if TYPE_CHECKING:
    from airflow.sdk.types import Logger

KILL_REASON = "the task was cleared while it was deferred"
_KEY = "tony_deferral"


@attrs.frozen
class Deferral:
    """A note that a try was deferred, and what it left running: written just before, and removed when it goes on.

    In between no process of the try looks on.
    """

    try_id: str
    max_tries: int  # the last try that Airflow allowed then
    tony_conn_id: str
    proxy_user: str | None
    slug: str  # of the training's identity
    digest: str
    application_id: str
    kill: bool  # whether a user's action on the task ends the application

    def was_cut_short(self, this_try: TaskTry) -> bool:
        """Whether a user has cleared the task while it was deferred, as seen from another try.

        A mere retry after a note says that a process died as the try was about to be deferred, or to go on. Only
        clearing raises ``max_tries``; unless the DAG has got just as many ``retries`` less meanwhile.
        """
        return this_try.id != self.try_id and this_try.max_tries != self.max_tries


def note(store: StateStore, deferral: Deferral) -> None:
    """Leave the note in Airflow's store, just before the task is deferred."""
    store.set(_KEY, to_plain(deferral), forever=True)


def forget(store: StateStore) -> None:
    """Remove the note: the task goes on."""
    store.delete(_KEY)


def end_what_was_left(store: StateStore, this_try: TaskTry, log: Logger) -> None:
    """End the application that an earlier try had left to its trigger when the task was cleared, if it still runs.

    By what that try knew: the task may have another connection or ``checkpoint_key`` by now. A cluster that does not
    answer keeps this try from nothing, where it is another one.
    """
    left = _noted(store, log)
    if left is None:
        return
    try:
        if left.kill and left.was_cut_short(this_try):
            _end(left, this_try, log)
    except (ClusterError, StorageError) as error:
        log.warning("%s of an earlier try could not be ended, and may still run: %s", left.application_id, error)
    else:
        forget(store)


def _noted(store: StateStore, log: Logger) -> Deferral | None:
    plain = store.get(_KEY)
    if plain is None:
        return None
    try:
        return from_plain(plain, Deferral, ignore_unknown=True)
    except CodecError as error:  # of another release
        log.warning("Whether an earlier try was cleared while it was deferred cannot be told: %s", error)
        return None


def _end(left: Deferral, this_try: TaskTry, log: Logger) -> None:
    with TonyHook(left.tony_conn_id, left.proxy_user) as hook:
        application = hook.application(left.application_id)
        if application is None or application.is_final:
            return
        log.info("Ending %s of an earlier try: %s", left.application_id, KILL_REASON)
        end_application(hook, Identity(left.slug, left.digest), left.application_id, Kill(KILL_REASON, this_try.name))
