"""The end of an application on this machine: whether it still runs, and what is done, once, when it does not."""

from __future__ import annotations

import logging
import signal
import time

from tony_provider.cluster.base import ApplicationState
from tony_provider.cluster.errors import ClusterUnreachable, ConnectionProblem
from tony_provider.cluster.local.application_folder import (
    ApplicationFolder,
    ApplicationRecord,
    EndRecord,
    KillRecord,
    this_boot,
    this_host,
)
from tony_provider.cluster.local.process_ids import ProcessId, kill_all, processes_of
from tony_provider.runtime import contract
from tony_provider.runtime.clock import epoch_ms
from tony_provider.runtime.file_lock import locked
from tony_provider.runtime.local.container_dir import TOKEN_FILE
from tony_provider.runtime.protocol.final_report import read_report
from tony_provider.runtime.protocol.status import FinalStatus

log = logging.getLogger(__name__)

_UNSTARTED_SECONDS = 60.0  # after which an application without a process was abandoned by who submitted it
_EXIT_SECONDS = 30.0  # that an application master may take to exit once it has said how the job ended
_SETTLE_SECONDS = 60.0  # that another process of Airflow may take to clear up after an application
_SAID_BYTES = 4096  # of the master's output, in the diagnostics of one that died


def ended(folder: ApplicationFolder, record: ApplicationRecord) -> EndRecord | None:
    """How the application ended; None while it runs.

    Raises ConnectionProblem for one of another machine, and as ``settle``.
    """
    return folder.ended() or (None if _is_alive(folder, record) else settle(folder))


def settle(folder: ApplicationFolder) -> EndRecord:
    """Stop what an application without a master has left, write down how it ended, and clean up. Done once.

    Raises ClusterUnreachable when another process is at it for too long.
    """
    try:
        with locked(folder.path / "lock", _SETTLE_SECONDS):
            return folder.ended() or _settle(folder)
    except TimeoutError as error:
        raise ClusterUnreachable(f"what {folder.id} left is still being cleared up: {error}") from error


def _settle(folder: ApplicationFolder) -> EndRecord:
    if not kill_all(lambda: _leftovers(folder)):
        log.warning("%s has left processes that cannot be killed", folder.id)
    verdict = _verdict(folder)
    folder.remove_work()  # first, because it may be what fills the disk
    try:
        folder.write_ended(verdict)
    except OSError as error:
        log.warning("The end of %s cannot be recorded in %s: %s. Free space there", folder.id, folder.path, error)
    log.debug("%s ended: %s", folder.id, verdict.state)
    return verdict


def _is_alive(folder: ApplicationFolder, record: ApplicationRecord) -> bool:
    if record.host != this_host():
        raise ConnectionProblem(
            f"{record.id} runs on {record.host}, and this is {this_host()}: the local backend needs all of Airflow "
            f"on one machine. If {record.host} is gone for good, remove {folder.path}"
        )
    if record.boot_id != this_boot():
        return False
    master = folder.master()
    if master is None:
        return time.time() - record.started_ms / 1000 < _UNSTARTED_SECONDS
    if _lingers(folder) or _is_over_its_limit(folder):
        master.signal(signal.SIGKILL)  # as YARN does
        master.wait_gone(_EXIT_SECONDS)
    return master.alive


def _lingers(folder: ApplicationFolder) -> bool:
    report = read_report(folder.path)
    return report is not None and time.time() - report.finished_ms / 1000 > _EXIT_SECONDS


def _is_over_its_limit(folder: ApplicationFolder) -> bool:
    limit = folder.limit()
    if limit is None or time.time() < limit.until:
        return False
    if folder.killed() is None:
        folder.write_killed(KillRecord(limit.diagnostics))
    return True


def _verdict(folder: ApplicationFolder) -> EndRecord:
    now = epoch_ms()
    report, killed = read_report(folder.path), folder.killed()
    if killed is not None and (report is None or report.final_status is FinalStatus.KILLED):
        return EndRecord(ApplicationState.KILLED, FinalStatus.KILLED, killed.diagnostics, now)
    if report is not None:
        return EndRecord(ApplicationState.FINISHED, report.final_status, report.diagnostics, report.finished_ms)
    tail = folder.am_log_tail(_SAID_BYTES).strip()
    said = f"; the last it said:\n{tail}" if tail else ""
    diagnostics = f"the application master ended without saying how the job did{said}"
    return EndRecord(ApplicationState.FAILED, FinalStatus.FAILED, diagnostics, now)


def _leftovers(folder: ApplicationFolder) -> list[ProcessId]:
    """Processes of the application that still run, found by their groups and by what every container's have set."""
    marks = [
        f"{contract.ENV_APPLICATION_ID}={folder.id}",
        *(f"{contract.ENV_TOKEN_FILE}={path / TOKEN_FILE}" for path in folder.path.glob("containers/*")),
    ]
    return processes_of(list(folder.containers()), {mark.encode() for mark in marks})
