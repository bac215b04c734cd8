"""Differences between the supported versions of Airflow: capabilities, and names that have moved.

``X as X`` marks a name that other modules import from here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

import airflow
import attrs

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol
    from pydantic import JsonValue

AIRFLOW_VERSION: str = airflow.__version__


def is_at_least(major: int, minor: int) -> bool:
    """Whether the installed Airflow has at least this minor version."""
    mine, of_it, *_ = AIRFLOW_VERSION.split(".")
    return (int(mine), int(of_it)) >= (major, minor)


class AirflowTooOld(RuntimeError):  # noqa: N818 - named for what is wrong
    """The installed Airflow is too old for a feature.

    The message names the feature and the version that introduced it.
    """


@attrs.frozen
class Capability:
    """A feature that newer versions of Airflow have. Without it, this provider does less."""

    name: str
    since: tuple[int, int]
    without: str  # a sentence about what this provider does without the feature

    @property
    def is_here(self) -> bool:
        """Whether the installed Airflow has the feature."""
        return is_at_least(*self.since)

    def refuse(self, what: str) -> NoReturn:
        """Raise AirflowTooOld for ``what``, which needs this capability."""
        since = ".".join(map(str, self.since))
        raise AirflowTooOld(
            f"{what} needs Airflow {since} or newer, and this is Airflow {AIRFLOW_VERSION}. {self.without}"
        )


TASK_STATES = Capability(
    "Task state store", (3, 3), "An attempt reads the data of earlier attempts from the job's store."
)
PORTAL = Capability("Portal", (3, 3), "A job has its own page while it runs; `airflow tony list` lists running jobs.")
RETRY_POLICIES = Capability(
    "Retry policies", (3, 3), "Leave retry_policy out: retries and retry_delay apply to all failures."
)
RESCHEDULED_MEMORY = Capability(
    "Rescheduled sensors", (3, 3), 'Use deferrable=True, or mode="poke": these keep their memory.'
)
TRIGGERS_ARE_KILLED = Capability(
    "Triggers that are notified of a user's action",
    (3, 3),
    "A cancelled trigger checks in Airflow whether its task is still deferred, and ends the job if it is not.",
)
COMMANDS = Capability("Commands of providers", (3, 2), "Type `python -m tony_provider.cli` instead of `airflow tony`.")
CONNECTION_FORM = Capability(
    "Fields of the connection's form", (3, 2), "The form has a single field, Extra, which contains them as JSON."
)
EMPTY_XCOMS = Capability(
    "XComs without a value", (3, 1), "Keys of a result that would be None are left out: read them with `.get(key)`."
)

CAPABILITIES = (
    TASK_STATES,
    PORTAL,
    RETRY_POLICIES,
    RESCHEDULED_MEMORY,
    TRIGGERS_ARE_KILLED,
    COMMANDS,
    CONNECTION_FORM,
    EMPTY_XCOMS,
)

if TYPE_CHECKING or is_at_least(3, 1):
    from airflow.sdk.definitions.context import KNOWN_CONTEXT_KEYS as KNOWN_CONTEXT_KEYS
else:
    from airflow.utils.context import KNOWN_CONTEXT_KEYS as KNOWN_CONTEXT_KEYS

if TYPE_CHECKING or is_at_least(3, 2):
    from airflow.sdk.exceptions import TaskDeferralError as TaskDeferralError
    from airflow.sdk.exceptions import TaskDeferralTimeout as TaskDeferralTimeout
    from airflow.sdk.exceptions import TaskDeferred as TaskDeferred
else:
    from airflow.exceptions import TaskDeferralError as TaskDeferralError
    from airflow.exceptions import TaskDeferralTimeout as TaskDeferralTimeout
    from airflow.exceptions import TaskDeferred as TaskDeferred


class RefusedRetryPolicy:
    """Replaces RetryPolicy in an Airflow without it. Creating an instance fails the parse of the DAG file."""

    def __new__(cls, *_: Any, **__: Any) -> NoReturn:
        """Raise AirflowTooOld."""
        RETRY_POLICIES.refuse(f"{cls.__name__}, a retry policy,")


if TYPE_CHECKING or RETRY_POLICIES.is_here:
    from airflow.sdk.definitions.retry_policy import RetryDecision as RetryDecision
    from airflow.sdk.definitions.retry_policy import RetryPolicy as RetryPolicy
else:
    RetryPolicy = RefusedRetryPolicy
    RetryDecision = None  # unused, since no policy exists

MASKER = (
    "airflow.sdk._shared.secrets_masker.secrets_masker"
    if is_at_least(3, 1)
    else "airflow.sdk.execution_time.secrets_masker"
)


def without_empty_xcoms(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result. For Airflow before 3.1, omit keys without a value, because they would fail the task."""
    return {key: value for key, value in result.items() if value is not None or EMPTY_XCOMS.is_here}


T = TypeVar("T")

_asked: set[asyncio.Future[Any]] = set()  # calls in progress; used only before Airflow 3.2


async def in_thread(act: Callable[[], T], pool: ThreadPoolExecutor | None = None) -> T:
    """Call ``act`` in a thread of ``pool``, and return its result. None means the event loop's default pool."""
    if is_at_least(3, 2):
        return await asyncio.get_running_loop().run_in_executor(pool, act)
    # Before 3.2, Airflow sends a thread's request in the triggerer's event loop, and finds that loop only from
    # asgiref's threads. From another thread, Airflow would mistake the answer for that of another request, and the
    # triggerer would end.
    from asgiref.sync import sync_to_async

    # If the caller is cancelled, the call continues, because a request must not be abandoned before its answer arrives.
    asked = asyncio.ensure_future(sync_to_async(act, thread_sensitive=False, executor=pool)())
    _asked.add(asked)
    asked.add_done_callback(_done)
    return await asyncio.shield(asked)


def _done(asked: asyncio.Future[Any]) -> None:
    _asked.discard(asked)
    _ = asked.cancelled() or asked.exception()  # asyncio logs exceptions that were never retrieved


@attrs.frozen
class _StateStore:
    """Airflow's task state store. Each method may raise any exception, because the store's backend is configurable."""

    is_airflows: ClassVar[bool] = True
    name: ClassVar[str] = "Airflow's task_state_store"  # for messages
    context: Context

    def get(self, key: str, *, forever: bool) -> JsonValue:
        """Return the value, or None if there is none. Pass the same ``forever`` as to ``keep``."""
        return self.context["task_state_store"].get(key)

    def keep(self, key: str, value: JsonValue, *, forever: bool) -> bool:
        """Store the value, with ``forever`` without an expiry. Return whether the store accepted it."""
        from airflow.sdk import NEVER_EXPIRE  # type: ignore[attr-defined]  # its stub lacks it

        self.context["task_state_store"].set(key, value, retention=NEVER_EXPIRE if forever else None)
        return True

    def delete(self, key: str) -> None:
        """Delete a value that was stored with ``forever``."""
        self.context["task_state_store"].delete(key)


@attrs.frozen
class _XComs:
    """Substitute for the store: XComs of the task, kept for one try and its deferrals. Rejects ``forever`` values."""

    is_airflows: ClassVar[bool] = False
    name: ClassVar[str] = "The substitute for Airflow's task_state_store"
    ti: RuntimeTaskInstanceProtocol

    def get(self, key: str, *, forever: bool) -> JsonValue:
        if forever:
            return None
        from airflow.providers.common.compat.sdk import XCom

        ti = self.ti
        index = -1 if ti.map_index is None else ti.map_index
        found: JsonValue = XCom.get_one(
            key=key, dag_id=ti.dag_id, task_id=ti.task_id, run_id=ti.run_id, map_index=index
        )
        return found

    def keep(self, key: str, value: JsonValue, *, forever: bool) -> bool:
        if not forever:
            self.ti.xcom_push(key=key, value=value)
        return not forever

    def delete(self, key: str) -> None:
        pass


def task_store_of(context: Context) -> _StateStore | _XComs:
    """Return Airflow's task state store, or XComs in an Airflow without it."""
    return _StateStore(context) if TASK_STATES.is_here else _XComs(context["ti"])
