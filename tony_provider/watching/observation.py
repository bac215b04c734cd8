"""Observe an application and its training task once, and record which peers have not answered yet.

The peers are the cluster and the store. A call may hang for minutes before it fails, so the module records since when
each peer has not answered.
"""

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
from tony_provider.compat import in_thread
from tony_provider.hooks.job import TonyJob
from tony_provider.runtime.common.concurrency import wait_with_timeout
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.storage.errors import StorageError, StorageUnreachable

log = logging.getLogger(__name__)


class Peer(StrEnum):
    """The two peers that a watcher queries. Each value is the peer's name in messages."""

    CLUSTER = "The cluster"
    STORE = "The store"


def peer_of_error(error: ClusterError | StorageError) -> Peer:
    """Return the peer that caused the error."""
    return Peer.STORE if isinstance(error, StorageError) else Peer.CLUSTER


class UnansweredCalls:
    """Records for each peer since when calls to it are unanswered.

    Belongs to one watcher, or to all watchers that share a connection. Thread-safe. Times are the clock's, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._asked: dict[Peer, dict[object, float]] = {side: {} for side in Peer}
        self._answered = dict.fromkeys(Peer, float("-inf"))
        self._in_vain: dict[Peer, float] = {}  # start of the first failed call since the last answer
        self._said: dict[Peer, str] = {}

    @contextmanager
    def asking(self, side: Peer) -> Iterator[None]:
        """Context manager around one call to ``side``. Any error except an unreachable peer counts as an answer.

        The error decides which peer is recorded as unreachable, because a call to the store may query the cluster
        first.
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
        """Return since when ``side`` has not answered, by the clock, or None if no call waits or has failed.

        If the peer answers one call while another waits, only the waiting call is slow. So the time counts from the
        peer's last answer.
        """
        with self._lock:
            asked = [*self._asked[side].values(), *([self._in_vain[side]] if side in self._in_vain else [])]
            return max(min(asked), self._answered[side]) if asked else None

    def said(self, side: Peer) -> str:
        """Return the message of the last failed call to ``side``, or an empty string if there is none."""
        with self._lock:
            return self._said.get(side, "")


Outage = ClusterError | StorageError
MASTER_SECONDS = 5.0  # time limit for a master to answer a watcher


@attrs.frozen
class Observation:
    """The result of one observation of an application, and the peers that did not answer."""

    application: Application | None = None  # None if the cluster does not know it
    status: JobStatus | None = None  # None if the job has not written one, or it is unreadable
    unreadable: RecordUnreadable | None = None  # why the status that the job wrote is unreadable
    outages: tuple[Outage, ...] = ()  # one error per silent peer; the peer's data are missing or old
    whole: bool = True  # False if ``status`` may be older than ``application``
    master: JobStatus | ClusterError | None = None  # the master's answer or error; None if it was not queried

    @property
    def outage(self) -> Outage | None:
        return next(iter(self.outages), None)

    @property
    def runs(self) -> bool:
        """Whether the application's master is running according to the cluster."""
        return self.application is not None and self.application.state is ApplicationState.RUNNING

    @property
    def newest(self) -> JobStatus | None:
        """The newest status of the job: the one from its master, otherwise the one on the store."""
        return self.master if isinstance(self.master, JobStatus) else self.status


def observe(job: TonyJob, *, contact: UnansweredCalls | None = None, ask_master: bool = False) -> Observation:
    """Query the cluster about the application, then read the job's status from the store.

    Blocks until the cluster answers. Cluster and store errors are in the observation.

    ``contact`` records peers that do not answer meanwhile. With ``ask_master``, the application master is queried too,
    because the status on the store is stale or unavailable.
    """
    contact = contact or UnansweredCalls()
    try:
        with contact.asking(Peer.CLUSTER):
            application = job.application()
    except (ClusterError, StorageError) as error:
        return Observation(outages=(error,))
    return observe_status(job, application, contact=contact, ask_master=ask_master)


def observe_status(
    job: TonyJob,
    application: Application | None,
    *,
    contact: UnansweredCalls | None = None,
    ask_master: bool = False,
) -> Observation:
    """Read the job's status for an ``application`` that is already known.

    Blocks, handles errors, and takes arguments like ``observe``.
    """
    if job.identity is None:
        return Observation(application)
    contact = contact or UnansweredCalls()
    runs = application is not None and application.state is ApplicationState.RUNNING
    master = status_of_master(job) if ask_master and runs else None
    ended = application is None or application.is_final
    try:
        with contact.asking(Peer.STORE):
            status = job.status(may_have_ended=ended)
    except RecordUnreadable as error:
        return Observation(application, unreadable=error, master=master)
    except (ClusterError, StorageError) as error:
        return Observation(application, outages=(error,), master=master)
    return Observation(application, status, master=master)


def status_of_master(job: TonyJob) -> JobStatus | ClusterError:
    """Query the application master for the job's status. Return the status, or the error if there is no answer.

    Blocks for at most MASTER_SECONDS.
    """
    try:
        return job.master_status(seconds=MASTER_SECONDS)
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


@attrs.frozen
class TrainTaskState:
    """State of a training's task in Airflow: whether it may still start an application."""

    is_over: bool | None = None  # True if the task starts no more applications; None if unknown
    state: str = ""  # the task's state, for messages


@attrs.frozen
class TrainTask:
    """A training task of one DAG run in Airflow, whose state can be queried."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int | None  # None if unknown, because the task's ``checkpoint_key`` identifies the training

    def states(self) -> TrainTaskState:
        """Query Airflow for the task's state. Blocks. The result is unknown if Airflow does not answer."""
        # Imported here because processes that only read DAGs must not load the modules of running tasks.
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

        try:
            told = RuntimeTaskInstance.get_task_states(
                dag_id=self.dag_id, task_ids=[self.task_id], run_ids=[self.run_id]
            )
        except Exception as error:  # noqa: BLE001 - a missing answer must not end a watch
            log.warning("Airflow did not return the state of %s: %s", self.task_id, error)
            return TrainTaskState()
        return self.read(told.get(self.run_id) or {})

    async def ask(self, seconds: float) -> TrainTaskState:
        """Query Airflow from an event loop. The result is unknown if Airflow takes longer than ``seconds``."""
        try:
            return await wait_with_timeout(in_thread(self.states), seconds)
        except TimeoutError:
            return TrainTaskState()

    def read(self, states: Mapping[str, Any]) -> TrainTaskState:
        """Return this task's state from Airflow's answer.

        The keys of ``states`` are task IDs, or ``<task>_<index>`` for mapped tasks. If this instance is missing, for
        example before the task is expanded, all states in the answer count.
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
