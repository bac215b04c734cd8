"""What is read of a job through its connection: in threads of our own, and within a limit in time.

The API server answers everybody with the same few threads, so that none of those may wait for a store.
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
from tony_provider.cluster.records.history import JobHistory, SpecificationRecord, read_specification
from tony_provider.cluster.training.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.portal.stored_jobs import Row
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.concurrency import wait_with_timeout
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import FileStatus, read_bytes
from tony_provider.runtime.storage.errors import StorageError, StorageNotFound
from tony_provider.watching.observation import observe

SECONDS = 15.0  # that a reader waits
_REFUSED_SECONDS = 2.0  # that a store may refuse connections
_MASTER_SECONDS = 5.0

T = TypeVar("T")
log = logging.getLogger(__name__)
_threads = ThreadPoolExecutor(8, thread_name_prefix="tony-portal")
# What is read whole takes seconds and memory, and goes on when nobody waits for it any more: the rest has its threads.
_large = ThreadPoolExecutor(4, thread_name_prefix="tony-portal-history")


class JobUnavailable(Exception):  # noqa: N818 - what was found
    """The store, the cluster or the connection does not tell. ``str()`` is for people, and holds no secret."""


@attrs.frozen
class LiveState:
    """A job at this moment, as far as it could be seen."""

    application: Application | None  # None: the cluster does not know it, or does not answer
    status: JobStatus | None  # the newest
    missing: list[str]  # what could not be read, a line each


@attrs.frozen
class OpenJob:
    """A job whose files can be read. All methods block, and raise ClusterError and StorageError."""

    hook: TonyHook
    identity: Identity
    application_id: str

    @property
    def directory(self) -> str:
        return self.hook.application_dir(self.identity, self.application_id)

    def specification(self) -> tuple[SpecificationRecord | None, list[str]]:
        """It alone, which is one small file; and why there is none, or not all of it."""
        missing: list[str] = []
        return read_specification(self.hook.storage(), self.directory, missing), missing

    def history(self) -> JobHistory:
        return self.hook.history(self.identity, self.application_id)

    def live(self) -> LiveState:
        seen = observe(self.hook, self.identity, self.application_id, ask_master=True)
        missing = [str(each) for each in (*seen.outages, seen.unreadable) if each is not None]
        if isinstance(seen.master, ClusterError):
            missing.append(str(seen.master))
        return LiveState(seen.application, seen.newest, missing)

    def log_files(self) -> list[FileStatus]:
        """Those that were kept."""
        try:
            found = self.hook.storage().list(uris.join(self.directory, contract.LOGS_DIR))
        except StorageNotFound:
            return []
        return [file for file in found if not file.is_directory]

    def log_tail(self, task: str, most: int) -> bytes | None:
        """The end of what a task has printed: what was kept of its newest container, else what its master has.

        None: nobody has any.
        """
        files = [file for file in self.log_files() if file.name.startswith(contract.log_prefix(task))]
        if files:
            newest = max(files, key=lambda file: file.modified_ms)
            offset = max(0, newest.size - most)
            return read_bytes(self.hook.storage(), newest.path, offset=offset, length=most)  # whatever comes meanwhile
        application = self.hook.application(self.application_id)
        if application is None or application.is_final:
            return None
        return self.hook.task_log(self.application_id, task, most, seconds=_MASTER_SECONDS)


async def read_from_job(row: Row, what: Callable[[OpenJob], T], *, large: bool = False) -> T:
    """What ``what`` finds of a job, through its connection. Raises OutOfReach, after SECONDS at most.

    ``large``: it reads a history, of which few are read at a time.
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


def _ask(row: Row, what: Callable[[OpenJob], T]) -> T:
    application_id = row["application_id"]
    with TonyHook(row["tony_conn_id"], row["proxy_user"] or None) as hook:
        hook.expect_store(_REFUSED_SECONDS)
        return what(OpenJob(hook, _identity(hook, row, application_id), application_id))


def _identity(hook: TonyHook, row: Row, application_id: str) -> Identity:
    """The training's, as far as the connection's staging directory and the job itself say that it is this DAG's.

    A summary is what some task has written: it does not decide whose files are shown.
    """
    directory = uris.parent(uris.parent(row["application_dir"])) if row["application_dir"] else ""
    identity = Identity.parse(uris.name(directory)) if directory else None
    if identity is None or hook.application_dir(identity, application_id) != row["application_dir"]:
        raise JobUnavailable(
            f"the files of {application_id} are not below the staging directory of the connection "
            f"{row['tony_conn_id']!r}; has it been changed since?"
        )
    labels: dict[str, Any] = hook.labels(identity, application_id)
    if labels and labels.get("dag_id") != row["dag_id"]:
        raise JobUnavailable(f"{application_id} is a job of another DAG")
    if not labels and not _is_of(hook, row, identity, application_id):
        raise JobUnavailable(
            f"whether {application_id} is a job of this DAG cannot be told: it has written nothing yet"
        )
    return identity


def _is_of(hook: TonyHook, row: Row, identity: Identity, application_id: str) -> bool:
    """Whether the cluster knows it as one of the row's own task instance, whose master has not written anything yet.

    Of one with a ``checkpoint_key`` only its summary knows that; so it is not until its master has.
    """
    columns = {name: row[name] for name in ("dag_id", "run_id", "task_id", "map_index")}
    application = hook.application(application_id)
    return application is not None and identity.tag in application.tags and identity == hook.identity(**columns)
