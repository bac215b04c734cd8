"""What differs between the supported versions of Airflow: their capabilities, and names that have moved.

``X as X`` says that other modules take the name from here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol, TypeVar

import airflow
import attrs

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol
    from pydantic import JsonValue

AIRFLOW_VERSION: str = airflow.__version__


def is_at_least(major: int, minor: int) -> bool:
    """Whether the installed Airflow is of this minor version, or a newer one."""
    mine, of_it, *_ = AIRFLOW_VERSION.split(".")
    return (int(mine), int(of_it)) >= (major, minor)


class AirflowTooOld(RuntimeError):  # noqa: N818 - named for what is wrong
    """Something was used that the installed Airflow is too old for; the message says what, and since when there is."""


@attrs.frozen
class Capability:
    """Something of Airflow that this provider uses where it is there, and people miss where it is not."""

    name: str
    since: tuple[int, int]
    without: str  # what there is instead, as a sentence

    @property
    def is_here(self) -> bool:
        """Whether the installed Airflow has it."""
        return is_at_least(*self.since)

    def refuse(self, what: str) -> NoReturn:
        """Raise AirflowTooOld for ``what``, which somebody uses and which needs this."""
        since = ".".join(map(str, self.since))
        raise AirflowTooOld(
            f"{what} needs Airflow {since} or newer, and this is Airflow {AIRFLOW_VERSION}. {self.without}"
        )


TASK_STATES = Capability(
    "Task state store", (3, 3), "What a try must know of those before it, it reads from the job's store."
)
PORTAL = Capability("Portal", (3, 3), "A job has its own page while it runs; `airflow tony list` names those that do.")
RETRY_POLICIES = Capability(
    "Retry policies", (3, 3), "Leave retry_policy out: retries and retry_delay hold, whatever has failed."
)
RESCHEDULED_MEMORY = Capability(
    "Rescheduled sensors", (3, 3), 'Use deferrable=True, or mode="poke": these remember what they have seen.'
)
TRIGGERS_ARE_KILLED = Capability(
    "Triggers that are told of a user's action",
    (3, 3),
    "A trigger that is cancelled asks Airflow whether its task is still deferred, and ends the job where it is not.",
)
COMMANDS = Capability("Commands of providers", (3, 2), "Type `python -m tony_provider.cli` for `airflow tony`.")
CONNECTION_FORM = Capability(
    "Fields of the connection's form", (3, 2), "The form has one field for them all, Extra, which takes them as JSON."
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
    """Stands for RetryPolicy in an Airflow that has none: each instance is refused when the DAG file is parsed."""

    def __new__(cls, *_: Any, **__: Any) -> NoReturn:
        """Raise AirflowTooOld."""
        RETRY_POLICIES.refuse(f"{cls.__name__}, a retry policy,")


if TYPE_CHECKING or RETRY_POLICIES.is_here:
    from airflow.sdk.definitions.retry_policy import RetryDecision as RetryDecision
    from airflow.sdk.definitions.retry_policy import RetryPolicy as RetryPolicy
else:
    RetryPolicy = RefusedRetryPolicy
    RetryDecision = None  # no policy is ever asked for one

MASKER = (
    "airflow.sdk._shared.secrets_masker.secrets_masker"
    if is_at_least(3, 1)
    else "airflow.sdk.execution_time.secrets_masker"
)


def without_empty_xcoms(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result as this Airflow can take it: before 3.1 it fails a task that returns a key without a value."""
    return {key: value for key, value in result.items() if value is not None or EMPTY_XCOMS.is_here}


T = TypeVar("T")

_asked: set[asyncio.Future[Any]] = set()  # those that are under way, before Airflow 3.2


async def in_thread(act: Callable[[], T], pool: ThreadPoolExecutor | None = None) -> T:
    """What ``act`` returns, called in a thread of ``pool``; None: of the event loop's own."""
    if is_at_least(3, 2):
        return await asyncio.get_running_loop().run_in_executor(pool, act)
    # A question is then asked in the triggerer's event loop, and asgiref's threads alone find the way there: from any
    # other one it goes out, and its answer is taken for that to another question, which ends the triggerer.
    from asgiref.sync import sync_to_async

    # Nor may a question be given up while its answer is on the way: whoever is cancelled leaves it to its end.
    asked = asyncio.ensure_future(sync_to_async(act, thread_sensitive=False, executor=pool)())
    _asked.add(asked)
    asked.add_done_callback(_done)
    return await asyncio.shield(asked)


def _done(asked: asyncio.Future[Any]) -> None:
    _asked.discard(asked)
    _ = asked.cancelled() or asked.exception()  # asyncio complains of exceptions that nobody looked at


class TaskStore(Protocol):
    """A task's part of a store. All methods may raise anything."""

    is_airflows: ClassVar[bool]
    name: ClassVar[str]  # for people

    def get(self, key: str, *, forever: bool) -> JsonValue:
        """``forever``: whether it was kept so."""
        ...

    def keep(self, key: str, value: JsonValue, *, forever: bool) -> bool:
        """Returns whether it was taken."""
        ...

    def delete(self, key: str) -> None:
        """Of what was kept forever."""
        ...


@attrs.frozen
class _StateStore:
    """Airflow's own."""

    is_airflows: ClassVar[bool] = True
    name: ClassVar[str] = "Airflow's task_state_store"
    context: Context

    def get(self, key: str, *, forever: bool) -> JsonValue:
        return self.context["task_state_store"].get(key)

    def keep(self, key: str, value: JsonValue, *, forever: bool) -> bool:
        from airflow.sdk import NEVER_EXPIRE  # type: ignore[attr-defined]  # its stub lacks it

        self.context["task_state_store"].set(key, value, retention=NEVER_EXPIRE if forever else None)
        return True

    def delete(self, key: str) -> None:
        self.context["task_state_store"].delete(key)


@attrs.frozen
class _XComs:
    """The task's own XComs, which last as long as a try, deferrals included. They take nothing that outlives it."""

    is_airflows: ClassVar[bool] = False
    name: ClassVar[str] = "What stands in for Airflow's task_state_store"
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


def task_store_of(context: Context) -> TaskStore:
    """Return the store of the task that runs."""
    return _StateStore(context) if TASK_STATES.is_here else _XComs(context["ti"])
