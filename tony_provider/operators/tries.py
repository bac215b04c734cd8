"""Which run and try of a task this is, and what Airflow keeps of it between tries."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import attrs
from airflow.sdk.exceptions import AirflowRuntimeError

from tony_provider.cluster.results import Delivered
from tony_provider.runtime.hadoop.ids import is_application_id
from tony_provider.runtime.training_owner import WaitingTry
from tony_provider.state_store import StateStore

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.sdk.types import Logger

    from tony_provider.cluster.identity import Identity
    from tony_provider.hooks.tony import TonyHook

STATE_KEY = "tony_application_id"
FAILURES_KEY = "tony_trigger_failures"
STARTS_KEY = "tony_starts_anew"
_GONE = ("failed", "skipped", "upstream_failed", "removed")  # states of task instances that want nothing any more
LATELY = 3600.0  # seconds
MOST_TRIGGER_FAILURES = 3  # of one try, so lately; after that it waits in the worker
MOST_STARTS_ANEW = 3  # of one try: as many earlier tries may still be ending what they take for theirs


@attrs.frozen
class TaskRun:
    """A task in one run of its DAG: what its training is called after, in all its tries."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1  # -1: the task is not mapped
    try_number: int = 1

    @classmethod
    def of(cls, context: Context) -> TaskRun:
        ti = context["ti"]
        index = -1 if ti.map_index is None else ti.map_index
        return cls(ti.dag_id, ti.run_id, ti.task_id, index, ti.try_number)

    def identity(self, hook: TonyHook, checkpoint_key: str | None) -> Identity:
        """Of the training that the task is in this run."""
        return hook.identity(
            dag_id=self.dag_id,
            run_id=self.run_id,
            task_id=self.task_id,
            map_index=self.map_index,
            checkpoint_key=checkpoint_key or None,
        )

    @property
    def labels(self) -> dict[str, str]:
        """Where the job comes from, for its event log."""
        told = {name: str(value) for name, value in attrs.asdict(self).items()}
        if self.map_index < 0:
            del told["map_index"]
        return told


@attrs.frozen
class TaskTry:
    """One try of a task, by which its marks and kills can be told from those of other tries."""

    number: int
    max_tries: int  # the last one that Airflow allows; raised when the task is cleared
    id: str  # Airflow's, of this try alone: a run that is made anew counts from 1 again
    run: str = ""  # names the task's run, in which the numbers of tries compare

    @classmethod
    def of(cls, context: Context) -> TaskTry:
        ti = context["ti"]
        return cls(
            ti.try_number,
            ti.max_tries,
            str(ti.id),
            " ".join(map(str, (ti.dag_id, ti.run_id, ti.task_id, ti.map_index))),
        )

    @property
    def name(self) -> str:
        """The try's name in the diagnostics of an application that is killed for it."""
        return f"try {self.number} ({self.id})"

    @property
    def waiting(self) -> WaitingTry:
        """The try as the store names it next to the application that it waits for."""
        return WaitingTry(self.name, self.number, self.run, self.id)

    def delivers(self) -> Delivered:
        """The mark that this try leaves on the store when it has a result."""
        return Delivered(self.number, self.max_tries)

    def follows_success(self, mark: Delivered) -> bool:
        """Whether Airflow called the try that left the mark a success: somebody has cleared the task since then."""
        return mark.reached_airflow(self.number, self.max_tries)


def is_of_dag_test(context: Context) -> bool:
    """Whether ``dag.test()`` runs the task, in its own process: it alone gives a task instance no bundle.

    It tells the database that the task is deferred, and then runs the trigger itself. A triggerer that looks at the
    same database begins to run it too, and takes what comes next for a user's action.
    """
    return getattr(context["ti"], "bundle_instance", None) is None


def instance_exists(context: Context, map_index: int) -> bool:
    """Whether another mapped instance of the task works, waits or has succeeded: what it has started is its own.

    False where Airflow does not tell.
    """
    ti = context["ti"]
    try:
        states = ti.get_task_states(ti.dag_id, map_index=map_index, task_ids=[ti.task_id], run_ids=[ti.run_id])
    except AirflowRuntimeError:
        return False
    found = states.get(ti.run_id, {}).get(f"{ti.task_id}_{map_index}")
    return found is not None and found not in _GONE


def remember(store: StateStore, application_id: str) -> None:
    """Keep the application's id in Airflow's store.

    A cache: the store of the jobs says the same, and is believed first.
    """
    store.set(STATE_KEY, application_id, forever=True)


def remembered(store: StateStore) -> str | None:
    """The application's id that an earlier try has kept in Airflow's store; None when there is none.

    Users who may clear or mark the task can write it, and so can its job: it may be any application's.
    """
    found = store.get(STATE_KEY, forever=True)
    return found if isinstance(found, str) and is_application_id(found) else None


def gets_another_trigger(store: StateStore, this_try: TaskTry, log: Logger) -> bool:
    """Whether this try, whose trigger has just failed, is to be deferred again; if not, it waits in its worker.

    A trigger that fails hands over nothing but its error, so Airflow's store has to count. False where it does not.
    """
    times = _counted(store, FAILURES_KEY, this_try, LATELY)
    if times is None:
        return False
    log.warning("The trigger failed, %d times of at most %d", times, MOST_TRIGGER_FAILURES + 1)
    return times <= MOST_TRIGGER_FAILURES


def may_start_anew(store: StateStore, this_try: TaskTry) -> bool:
    """Whether this try, whose application says that it was killed for another one, is to submit its job again.

    A job ends in words of its own and could say so each time, hence the count. False where Airflow's store does not.
    """
    times = _counted(store, STARTS_KEY, this_try, math.inf)
    return times is not None and times <= MOST_STARTS_ANEW


def _counted(store: StateStore, key: str, this_try: TaskTry, seconds: float) -> int | None:
    """How often this try has come here within so many seconds, this time included; None where nobody can count."""
    found, now = store.get(key), time.time()
    known = found if isinstance(found, dict) and found.get("try") == this_try.id else {}
    times = known.get("times")
    recent = [at for at in times if isinstance(at, float) and now - at < seconds] if isinstance(times, list) else []
    if not store.set(key, {"try": this_try.id, "times": [*recent, now]}):
        return None
    return len(recent) + 1
