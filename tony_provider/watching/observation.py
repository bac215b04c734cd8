"""Keeps track of who was asked and has not answered yet: a call may hang for minutes before it fails."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import attrs
from airflow.providers.common.compat.sdk import TaskInstanceState

from tony_provider.cluster.errors import ClusterError, ClusterUnreachable, RecordUnreadable
from tony_provider.cluster.interface import Application, ApplicationState
from tony_provider.cluster.training.identity import Identity
from tony_provider.compat import in_thread
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.common.concurrency import wait_with_timeout
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.storage.errors import StorageError, StorageUnreachable


class Peer(StrEnum):
    """The two that a watcher asks; each value is its name in messages."""

    CLUSTER = "The cluster"
    STORE = "The store"


def peer_of_error(error: ClusterError | StorageError) -> Peer:
    """Whose error it is: the cluster's or the store's."""
    return Peer.STORE if isinstance(error, StorageError) else Peer.CLUSTER


class UnansweredCalls:
    """Keeps, for each peer, since when calls to it have gone unanswered.

    Belongs to one watcher, or to those who share a connection; safe for several threads. Times are the clock's, in
    seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._asked: dict[Peer, dict[object, float]] = {side: {} for side in Peer}
        self._answered = dict.fromkeys(Peer, float("-inf"))
        self._in_vain: dict[Peer, float] = {}  # asked since the last answer, and given up
        self._said: dict[Peer, str] = {}

    @contextmanager
    def asking(self, side: Peer) -> Iterator[None]:
        """Context manager around one call to ``side``. Any error but that nobody answers counts as an answer.

        An error counts for the server that it is of: a call to the store may have to ask the cluster first.
        """
        question, asked = object(), self._clock()
        with self._lock:
            self._asked[side][question] = asked
        try:
            yield
        except (ClusterUnreachable, StorageUnreachable) as error:
            with self._lock:
                self._in_vain.setdefault(peer_of_error(error), asked)
                self._said[peer_of_error(error)] = str(error)
            raise
        except BaseException:
            self._answers(side)
            raise
        else:
            self._answers(side)
        finally:
            with self._lock:
                del self._asked[side][question]

    def _answers(self, side: Peer) -> None:
        with self._lock:
            self._answered[side] = self._clock()
            self._in_vain.pop(side, None)
            self._said.pop(side, None)

    def silent_since(self, side: Peer) -> float | None:
        """Since when ``side`` has not answered, by the clock; None while nobody waits in vain.

        Where other calls are answered meanwhile, it is one call that is slow.
        """
        with self._lock:
            asked = [*self._asked[side].values(), *([self._in_vain[side]] if side in self._in_vain else [])]
            return max(min(asked), self._answered[side]) if asked else None

    def said(self, side: Peer) -> str:
        """The message of the last failed call: why ``side`` does not answer. Empty where that is not known."""
        with self._lock:
            return self._said.get(side, "")


Outage = ClusterError | StorageError
MASTER_SECONDS = 5.0  # that a master may take to answer somebody who watches


@attrs.frozen
class Observation:
    """All that one look at an application has found out, and who did not answer."""

    application: Application | None = None  # None: the cluster does not know it
    status: JobStatus | None = None  # None: the job has not written one, or it cannot be read
    unreadable: RecordUnreadable | None = None  # what the job has written and cannot be read
    outages: tuple[Outage, ...] = ()  # the cluster or its store does not answer: what they tell is of before
    whole: bool = True  # False: the status may be older than what the cluster says
    master: JobStatus | ClusterError | None = None  # what it said when it was asked itself, or why it did not

    @property
    def outage(self) -> Outage | None:
        return next(iter(self.outages), None)

    @property
    def runs(self) -> bool:
        """Whether the cluster says that the application's master runs."""
        return self.application is not None and self.application.state is ApplicationState.RUNNING

    @property
    def newest(self) -> JobStatus | None:
        """The newest status of the job: what its master says itself, else what it has written."""
        return self.master if isinstance(self.master, JobStatus) else self.status


def observe(
    hook: TonyHook,
    identity: Identity | None,
    application_id: str,
    *,
    contact: UnansweredCalls | None = None,
    ask_master: bool = False,
) -> Observation:
    """Ask the cluster about the application, then read the job's status from the store.

    Blocks for as long as the cluster takes to answer. Raises nothing of the cluster's or the store's.

    ``identity``: None when nothing of the application is in the staging directory. ``contact`` knows meanwhile who does
    not answer. ``ask_master``: the status on the store does not tell how the job is.
    """
    contact = contact or UnansweredCalls()
    try:
        with contact.asking(Peer.CLUSTER):
            application = hook.application(application_id)
    except (ClusterError, StorageError) as error:
        return Observation(outages=(error,))
    return observe_status(hook, identity, application_id, application, contact=contact, ask_master=ask_master)


def observe_status(
    hook: TonyHook,
    identity: Identity | None,
    application_id: str,
    application: Application | None,
    *,
    contact: UnansweredCalls | None = None,
    ask_master: bool = False,
) -> Observation:
    """Read the job's status, where it is known already what the cluster says of the application.

    Blocks and raises as ``observe`` does; arguments are as there.
    """
    if identity is None:
        return Observation(application)
    contact = contact or UnansweredCalls()
    runs = application is not None and application.state is ApplicationState.RUNNING
    master = status_of_master(hook, identity, application_id) if ask_master and runs else None
    ended = application is None or application.is_final
    try:
        with contact.asking(Peer.STORE):
            status = hook.job_status(identity, application_id, may_have_ended=ended)
    except RecordUnreadable as error:
        return Observation(application, unreadable=error, master=master)
    except (ClusterError, StorageError) as error:
        return Observation(application, outages=(error,), master=master)
    return Observation(application, status, master=master)


def status_of_master(hook: TonyHook, identity: Identity | None, application_id: str) -> JobStatus | ClusterError:
    """The status that the application master itself gives when asked, or the error that says why it gives none.

    Blocks for MASTER_SECONDS at most.
    """
    try:
        return hook.master_status(identity, application_id, seconds=MASTER_SECONDS)
    except ClusterError as error:
        return error


_OVER = frozenset(
    state.value
    for state in (
        TaskInstanceState.SUCCESS,
        TaskInstanceState.FAILED,
        TaskInstanceState.SKIPPED,
        TaskInstanceState.UPSTREAM_FAILED,
        TaskInstanceState.REMOVED,
    )
)

log = logging.getLogger(__name__)


@attrs.frozen
class TrainTaskState:
    """What Airflow says of a training's task: whether it may yet start an application."""

    is_over: bool | None = None  # True: the task starts nothing any more; None: nobody knows
    state: str = ""  # of the task, for people


@attrs.frozen
class TrainTask:
    """One training task of one run in Airflow, whose state can be asked for."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int | None  # None: not known, since the author names the training otherwise

    def states(self) -> TrainTaskState:
        """Ask Airflow for the task's state. Blocks. Not known when Airflow does not tell."""
        # Here: the modules of tasks that run are not for processes that only read DAGs.
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

        try:
            told = RuntimeTaskInstance.get_task_states(
                dag_id=self.dag_id, task_ids=[self.task_id], run_ids=[self.run_id]
            )
        except Exception as error:  # noqa: BLE001 - an answer that is missing must not end a watch
            log.warning("Airflow does not tell the state of %s: %s", self.task_id, error)
            return TrainTaskState()
        return self.read(told.get(self.run_id) or {})

    async def ask(self, seconds: float) -> TrainTaskState:
        """Ask Airflow from an event loop; not known when Airflow takes longer than ``seconds``."""
        try:
            return await wait_with_timeout(in_thread(self.states), seconds)
        except TimeoutError:
            return TrainTaskState()

    def read(self, states: Mapping[str, Any]) -> TrainTaskState:
        """What Airflow's answer means for this task.

        ``states``: by task, mapped ones by ``<task>_<index>``, and an index of its own for one not expanded yet.
        """
        mine = [states[name] for name in self._names() if name in states][:1] or list(states.values())
        if not mine:
            return TrainTaskState()
        names = [str(getattr(state, "value", state) or "none") for state in mine]
        going_on = [name for name in names if name not in _OVER]
        return TrainTaskState(not going_on, (going_on or names)[0])

    def _names(self) -> list[str]:
        mapped = [f"{self.task_id}_{self.map_index}"] if self.map_index is not None and self.map_index >= 0 else []
        return [*mapped, self.task_id]
