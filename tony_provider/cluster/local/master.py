"""Starts an application master on this machine and sends requests to it.

The master runs in its own session, so it outlives the process that starts it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool
from urllib3.connection import HTTPConnection

from tony_provider.cluster.errors import MasterOutOfReach, UnexpectedAnswer
from tony_provider.cluster.http import bounded_request, json_object
from tony_provider.cluster.interface import Submission
from tony_provider.cluster.local.application_folder import ApplicationFolder, ApplicationRecord, this_boot, this_host
from tony_provider.runtime.application import LocalAccess
from tony_provider.runtime.common.bounds import MASTER_ANSWER_LIMIT
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.network import peer_users
from tony_provider.runtime.common.text import printable
from tony_provider.runtime.launch.launch_context import launch_environment
from tony_provider.runtime.launch.local_container import PID_FILE, container_environment, materialise, write_tokens
from tony_provider.runtime.protocol import master_files

_START_SECONDS = 20.0  # until the application master's process has written its PID
_POLL = 0.02
_SAID_BYTES = 16 << 10  # of the master's output, for the error if it does not start

# The starting process may be killed at any moment, so the new process itself writes its PID atomically and then becomes
# the master by exec. The start time (field 22) distinguishes it from a later process with the same PID.
_START = """
start=$(sed 's/.*) //' /proc/$$/stat | cut -d' ' -f20) || exit 1
echo "$$ $start" > "$1.part" && mv "$1.part" "$1" || exit 1
shift
exec "$@"
"""


def start_master(
    folder: ApplicationFolder, submission: Submission, access: LocalAccess, user: str
) -> subprocess.Popen[bytes]:
    """Start the application master and return after it has written its PID. Raises OSError, ArchiveError."""
    folder.am_logs.mkdir(mode=0o700, parents=True)
    _prepare(folder, submission)
    folder.write(_record(folder, submission, user))
    process = _launch(folder, submission)
    _await_start(folder, process)
    return process


def _prepare(folder: ApplicationFolder, submission: Submission) -> None:
    """Create the container's directory, as a NodeManager would."""
    materialise(folder.am_directory, submission.am_files)
    write_tokens(folder.am_directory, submission.credentials.to_bytes())


def _record(folder: ApplicationFolder, submission: Submission, user: str) -> ApplicationRecord:
    job = submission.description.job
    return ApplicationRecord(
        id=folder.id,
        name=job.name,
        user=user,
        queue=job.queue or "",
        tags=submission.tags,
        started_ms=epoch_ms(),
        grace=float(job.timeouts.grace),
        checkpoint=float(job.timeouts.checkpoint),
        host=this_host(),
        boot_id=this_boot(),
    )


def _environment(folder: ApplicationFolder, submission: Submission) -> dict[str, str]:
    # `python` in a job's command is the worker's interpreter unless the job brings one.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    inherited = {**os.environ, "PATH": path}
    container = container_environment(folder.am_container_id, folder.am_directory, folder.am_logs, inherited)
    return {**launch_environment(submission.description), **container}


def _launch(folder: ApplicationFolder, submission: Submission) -> subprocess.Popen[bytes]:
    with (folder.am_logs / "stdout").open("ab") as stdout, (folder.am_logs / "stderr").open("ab") as stderr:
        return subprocess.Popen(
            ["/bin/sh", "-c", _START, "sh", PID_FILE, *submission.am_command],
            cwd=folder.am_directory,
            env=_environment(folder, submission),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )


def _await_start(folder: ApplicationFolder, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while folder.master() is None:
        if process.poll() is not None or time.monotonic() >= deadline:
            process.kill()
            process.wait()
            raise OSError(f"it ended at once: {folder.am_log_tail(_SAID_BYTES) or 'without a word'}")
        time.sleep(_POLL)


def ask_master(
    folder: Path, path: str, seconds: float, *, body: Mapping[str, Any] | None = None, is_text: bool = False
) -> Any:
    """Send a request to the master; see ``Cluster.ask_master``.

    Raises MasterOutOfReach, also if the master has no such item; UnexpectedAnswer.
    """
    response = _send("GET", folder, path, seconds) if body is None else _send("PUT", folder, path, seconds, json=body)
    answer: Any = response.content if is_text and response.ok else json_object(response)
    if response.ok and answer is not None:
        return answer
    said = printable(str((answer or {}).get("error", response.status_code)))
    if body is None and not response.ok:
        raise MasterOutOfReach(f"the master of {folder.name} has no such thing: {said}")
    if response.status_code >= requests.codes.server_error:
        raise MasterOutOfReach(f"the master of {folder.name} cannot take this: {said}")
    raise UnexpectedAnswer(f"the application's master does not take this: {said}")


def _send(method: str, folder: Path, path: str, seconds: float, **more: Any) -> requests.Response:
    url, secret = master_files.read_tracking_url(folder), master_files.read_tracking_secret(folder)
    if not url or not secret:
        raise MasterOutOfReach(f"the master of {folder.name} has not started")
    headers = {"Authorization": f"Bearer {secret}", "Accept": "application/json"}
    with requests.Session() as session:
        session.trust_env = False  # a proxy cannot reach this machine's loopback address
        session.mount("http://", _OwnMaster(folder))
        try:
            return bounded_request(  # type: ignore[no-any-return]
                session, method, url + path, MASTER_ANSWER_LIMIT, seconds, headers=headers, timeout=seconds, **more
            )
        except requests.RequestException as error:
            raise MasterOutOfReach(
                f"the master of {folder.name} does not answer ({type(error).__name__}); it may have ended"
            ) from error


class _OwnMaster(HTTPAdapter):
    """Connects only to processes of the folder's owner, and checks this before it sends anything.

    After a master has ended, any user of this machine may listen on its port, and would receive the next request's
    secret. Connecting raises MasterOutOfReach.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **more: Any) -> None:
        super().init_poolmanager(*arguments, **more)
        connect = partial(_OwnConnection, self._folder)
        pool = type("_OwnPool", (HTTPConnectionPool,), {"ConnectionCls": staticmethod(connect)})
        self.poolmanager.pool_classes_by_scheme = {"http": pool}


class _OwnConnection(HTTPConnection):
    def __init__(self, folder: Path, *arguments: Any, **more: Any) -> None:
        self._folder = folder
        super().__init__(*arguments, **more)

    def connect(self) -> None:
        super().connect()
        users = peer_users(self.sock)
        if users - {self._folder.stat().st_uid}:
            raise MasterOutOfReach(
                f"the master of {self._folder.name} has ended: another user of this machine has its port"
            )
        if not users:
            raise MasterOutOfReach(f"the master of {self._folder.name} has ended: nobody is at its port any more")
