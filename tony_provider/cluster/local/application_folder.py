"""The files that the local cluster keeps of an application: the part that the ResourceManager's memory plays on YARN.

::

    <root>/applications/<application id>/
        application.json   written before the application master starts
        killed.json        somebody asked for its end
        limit.json         somebody asked for its end by some time
        finished.json      the application master's last word (runtime/protocol/final_report.py)
        ended.json         what became of it, once that is certain
        containers/              removed at the end
        logs/              of every container
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import attrs

from tony_provider.cluster.base import ApplicationState
from tony_provider.cluster.local.process_ids import ProcessId
from tony_provider.runtime.codec import dump_json, load_json
from tony_provider.runtime.hadoop.ids import ApplicationAttemptId, ApplicationId, ContainerId
from tony_provider.runtime.local.container_dir import PID_FILE
from tony_provider.runtime.local.trees import remove_tree
from tony_provider.runtime.protocol.status import FinalStatus

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
