"""The folder of an application on this machine: its records, its processes and its end.

The processes of an application may outlive the Airflow process that started them. They are identified by PID and start
time from ``/proc``, so this module requires Linux. ``settle_application`` stops the remaining processes of an
application and records how it ended.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import attrs

from tony_provider.cluster.errors import ClusterUnreachable, ConnectionProblem
from tony_provider.cluster.interface import ApplicationState
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.codec import dump_json, load_json
from tony_provider.runtime.common.files import locked, remove_tree, write_private_file
from tony_provider.runtime.hadoop.yarn_records import ApplicationAttemptId, ApplicationId, ContainerId
from tony_provider.runtime.launch.launch_context import PID_FILE, TOKEN_FILE
from tony_provider.runtime.protocol.master_files import read_report
from tony_provider.runtime.protocol.status import FinalStatus

log = logging.getLogger(__name__)


_POLL = 0.05  # seconds; waitpid is impossible, because these processes are not children of this process


@attrs.frozen
class ProcessId:
    """Identifies a process by PID and start time (clock ticks since boot), because PIDs are reused."""

    pid: int
    start: int

    @classmethod
    def of_stat(cls, stat: str) -> ProcessId:
        """Parse the text of ``/proc/<pid>/stat``. Raises ValueError."""
        # The second field is the program's name in parentheses. The name may contain parentheses and blanks.
        head, _, tail = stat.rpartition(")")
        fields = tail.split()
        try:
            return cls(int(head.split(" ", 1)[0]), int(fields[19]))  # starttime, field 22
        except (ValueError, IndexError) as error:
            raise ValueError(f"not a process's stat: {stat[:100]!r}") from error

    @classmethod
    def of_running(cls, pid: int) -> ProcessId | None:
        """Return the process that has this PID now, or None if there is none or only a zombie."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        if stat.rpartition(")")[2].split()[0] in ("Z", "X"):
            return None
        return cls.of_stat(stat)

    @property
    def alive(self) -> bool:
        return self.of_running(self.pid) == self

    def signal(self, number: signal.Signals) -> None:
        """Send a signal. Do nothing if the process has ended."""
        if self.alive:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def wait_gone(self, seconds: float) -> bool:
        """Wait up to ``seconds`` until the process has ended. Return whether it has."""
        return wait_all_gone([self], seconds)


def wait_all_gone(processes: list[ProcessId], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(process.alive for process in processes):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL)
    return True


def processes_of(leaders: list[ProcessId], marks: set[bytes]) -> list[ProcessId]:
    """Return running processes in the groups of ``leaders`` or with one of ``marks`` (NAME=value) in the environment.

    A group is ignored once its leader has ended, because the group's number may then be reused. Only processes of this
    user are found.
    """
    groups = {leader.pid for leader in leaders if leader.alive}
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            belongs = os.getpgid(int(entry.name)) in groups or not marks.isdisjoint(
                (entry / "environ").read_bytes().split(b"\0")
            )
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if belongs and (process := ProcessId.of_running(int(entry.name))) is not None:
            found.append(process)
    return found


def kill_all(find: Callable[[], list[ProcessId]], seconds: float = 10.0) -> bool:
    """Send SIGKILL to all processes that ``find`` returns until it returns none.

    Return False if processes are still left after ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while left := find():
        for process in left:
            process.signal(signal.SIGKILL)
        if not wait_all_gone(left, max(0.0, deadline - time.monotonic())):
            return False
    return True


T = TypeVar("T")

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@attrs.frozen
class ApplicationRecord:
    """``application.json``: facts about an application and the machine that runs it, known at its start."""

    id: str
    name: str
    user: str
    queue: str
    tags: list[str]
    started_ms: int  # epoch
    grace: float  # seconds that user processes may take to end
    host: str
    boot_id: str
    checkpoint: float = 0.0  # additional seconds for the last copies of checkpoints


@attrs.frozen
class KillRecord:
    """``killed.json``: a request to kill the application."""

    diagnostics: str


@attrs.frozen
class TimeLimit:
    """``limit.json``: the time after which the application must be killed."""

    until: float  # epoch seconds
    diagnostics: str


@attrs.frozen
class EndRecord:
    """``ended.json``: how the application ended."""

    state: ApplicationState
    final_status: FinalStatus
    diagnostics: str
    finished_ms: int  # epoch


_FILES: dict[type, str] = {
    ApplicationRecord: "application.json",
    KillRecord: "killed.json",
    TimeLimit: "limit.json",
    EndRecord: "ended.json",
}


@attrs.frozen
class ApplicationFolder:
    """The folder of one application on this machine, with its records, logs and containers."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def am_container_id(self) -> str:
        return str(ContainerId(ApplicationAttemptId(ApplicationId.parse(self.id), 1), 1))

    @property
    def am_directory(self) -> Path:
        return self.path / "containers" / self.am_container_id

    @property
    def am_logs(self) -> Path:
        return self.path / "logs" / self.am_container_id

    def am_log_tail(self, max_bytes: int) -> str:
        """Return the end of the application master's own output, or "" if there is none."""
        try:
            with (self.am_logs / "stderr").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - max_bytes))
                return file.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return ""

    def read(self, kind: type[T]) -> T | None:
        """Return the record of this class (a key of ``_FILES``), or None if it does not exist."""
        try:
            return load_json((self.path / _FILES[kind]).read_bytes(), kind)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, record: object) -> None:
        """Write a record. Raises OSError."""
        write_private_file(self.path / _FILES[type(record)], dump_json(record))

    def master(self) -> ProcessId | None:
        """Return the application master's process, or None if it has not started or the folder was removed."""
        return _read_pid(self.am_directory / PID_FILE)

    def containers(self) -> Iterator[ProcessId]:
        """Yield the leaders of all containers' process groups, including the application master's."""
        for path in self.path.glob(f"containers/*/{PID_FILE}"):
            if (process := _read_pid(path)) is not None:
                yield process

    def remove_work(self) -> None:
        """Remove all files except the records and logs."""
        remove_tree(self.path / "containers")


def this_host() -> str:
    """Return the name of this machine, which distinguishes its applications from those of other machines."""
    return socket.gethostname()


def this_boot() -> str:
    """Return the boot id of this machine, which changes at each boot."""
    return _BOOT_ID.read_text().strip()


def _read_pid(path: Path) -> ProcessId | None:
    try:
        pid, start = path.read_text().split()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return ProcessId(int(pid), int(start))


_UNSTARTED_SECONDS = 60.0  # after this time, an application without a process counts as failed
_EXIT_SECONDS = 30.0  # time for an application master to exit after it has reported the job's end
_SETTLE_SECONDS = 60.0  # how long to wait while another Airflow process cleans up after an application
_SAID_BYTES = 4096  # bytes of a dead master's output in the diagnostics


def application_end(folder: ApplicationFolder, record: ApplicationRecord) -> EndRecord | None:
    """Return how the application ended, or None while it runs. Clean up after an application that just ended.

    Raises ConnectionProblem if it runs on another machine, and the errors of ``settle_application``.
    """
    return folder.read(EndRecord) or (None if _is_alive(folder, record) else settle_application(folder))


def settle_application(folder: ApplicationFolder) -> EndRecord:
    """Stop the remaining processes of an application without a master, record its end, and clean up.

    If several processes call this function, only one of them acts, and the others wait. Raises ClusterUnreachable if
    that takes too long.
    """
    try:
        with locked(folder.path / "lock", _SETTLE_SECONDS):
            return folder.read(EndRecord) or _settle(folder)
    except TimeoutError as error:
        raise ClusterUnreachable(f"the cleanup of {folder.id} has not finished yet: {error}") from error


def _settle(folder: ApplicationFolder) -> EndRecord:
    if not kill_all(lambda: _leftovers(folder)):
        log.warning("Cannot kill all remaining processes of %s", folder.id)
    verdict = _verdict(folder)
    folder.remove_work()  # before the record is written, because the removed files may fill the disk
    try:
        folder.write(verdict)
    except OSError as error:
        log.warning("Cannot record the end of %s in %s: %s. Free space there", folder.id, folder.path, error)
    log.debug("%s ended: %s", folder.id, verdict.state)
    return verdict


def _is_alive(folder: ApplicationFolder, record: ApplicationRecord) -> bool:
    if record.host != this_host():
        raise ConnectionProblem(
            f"{record.id} runs on {record.host}, but this is {this_host()}: the local backend needs all of Airflow "
            f"on one machine. If {record.host} no longer exists, remove {folder.path}"
        )
    if record.boot_id != this_boot():
        return False
    master = folder.master()
    if master is None:
        return time.time() - record.started_ms / 1000 < _UNSTARTED_SECONDS
    if _lingers(folder) or _is_over_its_limit(folder):
        master.signal(signal.SIGKILL)  # YARN also kills such a master
        master.wait_gone(_EXIT_SECONDS)
    return master.alive


def _lingers(folder: ApplicationFolder) -> bool:
    report = read_report(folder.path)
    return report is not None and time.time() - report.finished_ms / 1000 > _EXIT_SECONDS


def _is_over_its_limit(folder: ApplicationFolder) -> bool:
    limit = folder.read(TimeLimit)
    if limit is None or time.time() < limit.until:
        return False
    if folder.read(KillRecord) is None:
        folder.write(KillRecord(limit.diagnostics))
    return True


def _verdict(folder: ApplicationFolder) -> EndRecord:
    now = epoch_ms()
    report, killed = read_report(folder.path), folder.read(KillRecord)
    if killed is not None and (report is None or report.final_status is FinalStatus.KILLED):
        return EndRecord(ApplicationState.KILLED, FinalStatus.KILLED, killed.diagnostics, now)
    if report is not None:
        return EndRecord(ApplicationState.FINISHED, report.final_status, report.diagnostics, report.finished_ms)
    tail = folder.am_log_tail(_SAID_BYTES).strip()
    said = f"; its last output:\n{tail}" if tail else ""
    diagnostics = f"the application master ended without a report on the job{said}"
    return EndRecord(ApplicationState.FAILED, FinalStatus.FAILED, diagnostics, now)


def _leftovers(folder: ApplicationFolder) -> list[ProcessId]:
    """Return the application's running processes, found by process group or by environment variables."""
    marks = [
        f"{contract.ENV_APPLICATION_ID}={folder.id}",
        *(f"{contract.ENV_TOKEN_FILE}={path / TOKEN_FILE}" for path in folder.path.glob("containers/*")),
    ]
    return processes_of(list(folder.containers()), {mark.encode() for mark in marks})
