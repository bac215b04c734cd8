"""Read a job's files, live state and logs through its connection, in own threads and with a timeout.

The API server serves all users with the same few threads, so none of them may wait for a store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import attrs

from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.interface import Application
from tony_provider.cluster.training.identity import Identity
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.portal.stored_jobs import Row
from tony_provider.runtime.common.concurrency import wait_with_timeout
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.watching.observation import observe

log = logging.getLogger(__name__)


SECONDS = 15.0  # timeout of a request to the store or cluster
_REFUSED_SECONDS = 2.0  # for how long to retry a store that refuses connections
MASTER_SECONDS = 5.0

T = TypeVar("T")
_threads = ThreadPoolExecutor(8, thread_name_prefix="tony-portal")
# Reading a history takes seconds and memory, and continues after the timeout. Separate threads keep such reads from
# blocking others.
_large = ThreadPoolExecutor(4, thread_name_prefix="tony-portal-history")


class JobUnavailable(Exception):  # noqa: N818 - what was found
    """The store, the cluster or the connection has no data. ``str()`` is for users and contains no secret."""


@attrs.frozen
class LiveState:
    """The current state of a job, as far as it could be read."""

    application: Application | None  # None if the cluster does not know the job or does not answer
    status: JobStatus | None  # newest status
    missing: list[str]  # one line for each thing that could not be read


def live_state(job: TonyJob) -> LiveState:
    """Return the job's current state. Blocks."""
    seen = observe(job, ask_master=True)
    missing = [str(each) for each in (*seen.outages, seen.unreadable) if each is not None]
    if isinstance(seen.master, ClusterError):
        missing.append(str(seen.master))
    return LiveState(seen.application, seen.newest, missing)


async def read_from_job(row: Row, what: Callable[[TonyJob], T], *, large: bool = False) -> T:
    """Return the result of ``what`` for a job, read through its connection.

    Raises JobUnavailable, after SECONDS at most. Set ``large`` for reading a history: these reads have their own, fewer
    threads.
    """
    threads = _large if large else _threads
    try:
        return await wait_with_timeout(asyncio.get_running_loop().run_in_executor(threads, _ask, row, what), SECONDS)
    except (ClusterError, StorageError) as error:
        raise JobUnavailable(str(error)) from error
    except TimeoutError as error:
        raise JobUnavailable(f"the store has not answered within {SECONDS:.0f} s") from error
    except JobUnavailable:
        raise
    except Exception as error:
        log.exception("%s cannot be read", row["application_id"])
        raise JobUnavailable(f"it cannot be read ({type(error).__name__}); the API server's log says more") from error


def _ask(row: Row, what: Callable[[TonyJob], T]) -> T:
    with TonyHook(row["tony_conn_id"], row["proxy_user"] or None) as hook:
        hook.expect_store(_REFUSED_SECONDS)
        return what(_job(hook, row))


def _job(hook: TonyHook, row: Row) -> TonyJob:
    """Return the job after checking that its files belong to this DAG.

    Any task can write a summary, so the summary alone does not decide which files are shown. The check uses the
    connection's staging directory and the labels that the job has written.
    """
    directory = uris.parent(uris.parent(row["application_dir"])) if row["application_dir"] else ""
    identity = Identity.parse(uris.name(directory)) if directory else None
    job = hook.job(row["application_id"], identity) if identity is not None else None
    if job is None or job.directory != row["application_dir"]:
        raise JobUnavailable(
            f"the files of {row['application_id']} are not below the staging directory of the connection "
            f"{row['tony_conn_id']!r}; has it been changed since?"
        )
    labels: dict[str, Any] = job.labels()
    if labels and labels.get("dag_id") != row["dag_id"]:
        raise JobUnavailable(f"{job} is a job of another DAG")
    if not labels and not _is_of(job, row):
        raise JobUnavailable(f"whether {job} is a job of this DAG cannot be told: it has written nothing yet")
    return job


def _is_of(job: TonyJob, row: Row) -> bool:
    """Return whether the cluster lists the application under the row's task instance.

    Used until the master has written labels. With a ``checkpoint_key`` only the summary has the identity, so this
    returns False until the master has written labels.
    """
    columns = {name: row[name] for name in ("dag_id", "run_id", "task_id", "map_index")}
    application, identity = job.application(), job.training
    return application is not None and identity.tag in application.tags and identity == job.hook.identity(**columns)
