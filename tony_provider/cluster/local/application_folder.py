"""Processes that may outlive us, told apart from later ones with the same number. Linux: /proc."""

from __future__ import annotations

import logging
import os
import signal
import socket
import tempfile
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
from tony_provider.runtime.common.directories import remove_tree
from tony_provider.runtime.common.files import locked
from tony_provider.runtime.hadoop.yarn_records import ApplicationAttemptId, ApplicationId, ContainerId
from tony_provider.runtime.launch.local_container import PID_FILE, TOKEN_FILE
from tony_provider.runtime.protocol.master_files import read_report
from tony_provider.runtime.protocol.status import FinalStatus

_POLL = 0.05  # seconds; these processes are not our children, so that there is nothing to wait on


@attrs.frozen
class ProcessId:
    """A process for good, by its number and its start time (clock ticks since boot): numbers are used again."""

    pid: int
    start: int

    @classmethod
    def of_stat(cls, stat: str) -> ProcessId:
        """The process that the text of ``/proc/<pid>/stat`` describes. Raises ValueError."""
        # The second field is the program's name in brackets, and may hold anything, brackets and blanks included.
        head, _, tail = stat.rpartition(")")
        fields = tail.split()
        try:
            return cls(int(head.split(" ", 1)[0]), int(fields[19]))  # starttime, field 22
        except (ValueError, IndexError) as error:
            raise ValueError(f"not a process's stat: {stat[:100]!r}") from error

    @classmethod
    def of_running(cls, pid: int) -> ProcessId | None:
        """The process that has this number now; None when there is none, or only its zombie."""
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
        """Send the process a signal. Nothing happens when it is gone."""
        if self.alive:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def wait_gone(self, seconds: float) -> bool:
        """Wait for the process to be gone, up to ``seconds``; returns whether it is."""
        return wait_all_gone([self], seconds)


def wait_all_gone(processes: list[ProcessId], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(process.alive for process in processes):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL)
    return True


def processes_of(leaders: list[ProcessId], marks: set[bytes]) -> list[ProcessId]:
    """Running processes in the groups of ``leaders``, or that have one of ``marks`` (NAME=value) in their environment.

    A group is taken for its leader's only while that leader itself is there: afterwards the number may be another's.
    Only this user's processes are looked at.
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
    """Kill everything that ``find`` finds (SIGKILL), until it finds nothing; whether that was so within ``seconds``."""
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
    """Which application this is, and which machine runs it."""

    id: str
    name: str
    user: str
    queue: str
    tags: list[str]
    started_ms: int  # epoch
    grace: float  # seconds that its user processes may take to end
    host: str
    boot_id: str
    checkpoint: float = 0.0  # seconds that the last copies of checkpoints may take after that


@attrs.frozen
class KillRecord:
    """``killed.json``: somebody asked for the application's end."""

    diagnostics: str


@attrs.frozen
class TimeLimit:
    """``limit.json``: the application is to be killed should it run longer."""

    until: float  # epoch seconds
    diagnostics: str


@attrs.frozen
class EndRecord:
    """``ended.json``: how the application ended, once that is certain."""

    state: ApplicationState
    final_status: FinalStatus
    diagnostics: str
    finished_ms: int  # epoch


@attrs.frozen
class ApplicationFolder:
    """The folder of one application on this machine, and its files."""

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
        """The end of the application master's own output; empty when there is none."""
        try:
            with (self.am_logs / "stderr").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - max_bytes))
                return file.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return ""

    def record(self) -> ApplicationRecord | None:
        return self._read("application.json", ApplicationRecord)

    def write_record(self, record: ApplicationRecord) -> None:
        self._write("application.json", record)

    def killed(self) -> KillRecord | None:
        return self._read("killed.json", KillRecord)

    def write_killed(self, killed: KillRecord) -> None:
        self._write("killed.json", killed)

    def limit(self) -> TimeLimit | None:
        return self._read("limit.json", TimeLimit)

    def write_limit(self, limit: TimeLimit) -> None:
        self._write("limit.json", limit)

    def ended(self) -> EndRecord | None:
        return self._read("ended.json", EndRecord)

    def write_ended(self, ended: EndRecord) -> None:
        self._write("ended.json", ended)

    def master(self) -> ProcessId | None:
        """The application master's process; None when it has not begun, or when its folder is gone."""
        return _read_pid(self.am_directory / PID_FILE)

    def containers(self) -> Iterator[ProcessId]:
        """The leaders of all containers' process groups, the application master's included."""
        for path in self.path.glob(f"containers/*/{PID_FILE}"):
            if (process := _read_pid(path)) is not None:
                yield process

    def remove_work(self) -> None:
        """Remove everything but the records and logs."""
        remove_tree(self.path / "containers")

    def _read(self, name: str, cls: type[T]) -> T | None:
        try:
            return load_json((self.path / name).read_bytes(), cls)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _write(self, name: str, content: object) -> None:
        with tempfile.NamedTemporaryFile(dir=self.path, prefix=f".{name}.", delete=False) as file:
            path = Path(file.name)
            try:
                file.write(dump_json(content))
                file.flush()
                path.replace(self.path / name)
            except OSError:
                path.unlink()
                raise


def this_host() -> str:
    """The name of this machine, by which its applications are told from those of others."""
    return socket.gethostname()


def this_boot() -> str:
    """The id of this start of the machine: another one after each."""
    return _BOOT_ID.read_text().strip()


def _read_pid(path: Path) -> ProcessId | None:
    try:
        pid, start = path.read_text().split()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return ProcessId(int(pid), int(start))


log = logging.getLogger(__name__)

_UNSTARTED_SECONDS = 60.0  # after which an application without a process was abandoned by who submitted it
_EXIT_SECONDS = 30.0  # that an application master may take to exit once it has said how the job ended
_SETTLE_SECONDS = 60.0  # that another process of Airflow may take to clear up after an application
_SAID_BYTES = 4096  # of the master's output, in the diagnostics of one that died


def application_end(folder: ApplicationFolder, record: ApplicationRecord) -> EndRecord | None:
    """How the application ended; None while it runs.

    Raises ConnectionProblem for one of another machine, and as ``settle``.
    """
    return folder.ended() or (None if _is_alive(folder, record) else settle_application(folder))


def settle_application(folder: ApplicationFolder) -> EndRecord:
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
