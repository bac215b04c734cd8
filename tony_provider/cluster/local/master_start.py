"""Starts an application master on this machine, in a session of its own, so that it outlives who started it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tony_provider.cluster.base import Submission
from tony_provider.cluster.local.application_folder import ApplicationFolder, ApplicationRecord, this_boot, this_host
from tony_provider.runtime.application import LocalAccess
from tony_provider.runtime.clock import epoch_ms
from tony_provider.runtime.launch.command_line import environment
from tony_provider.runtime.local.container_dir import PID_FILE, container_environment, materialise, write_tokens

_START_SECONDS = 20.0  # until the application master's process has said its number
_POLL = 0.02
_SAID_BYTES = 16 << 10  # of the master's output, in the message about one that did not start

# Who starts the master may be killed at any moment: so the process itself says, in one act, who it is, and stays that
# process. The start time (field 22) tells it from a later one of the same number.
_START = """
start=$(sed 's/.*) //' /proc/$$/stat | cut -d' ' -f20) || exit 1
echo "$$ $start" > "$1.part" && mv "$1.part" "$1" || exit 1
shift
exec "$@"
"""


def start_master(
    folder: ApplicationFolder, submission: Submission, access: LocalAccess, user: str
) -> subprocess.Popen[bytes]:
    """Start the application master's process; returns it once it runs and has said so. Raises OSError, ArchiveError."""
    folder.am_logs.mkdir(mode=0o700, parents=True)
    _prepare(folder, submission)
    folder.write_record(_record(folder, submission, user))
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
    # `python` in a job's command is the worker's, unless the job brings its own.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    inherited = {**os.environ, "PATH": path}
    container = container_environment(folder.am_container_id, folder.am_directory, folder.am_logs, inherited)
    return {**environment(submission.description), **container}


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
