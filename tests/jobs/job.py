"""One job that was submitted, and everything that can be asked about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.jobs.processes import Seen, processes_of
from tests.waiting import SECONDS, until
from tony_provider.cluster.interface import Application, ApplicationState
from tony_provider.cluster.records.staleness import ChangeKind, ModelState
from tony_provider.cluster.training.identity import Identity
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.application_history import read_events
from tony_provider.runtime.common import contract
from tony_provider.runtime.protocol.status import JobState, JobStatus, TaskStatus
from tony_provider.runtime.storage.base import read_bytes, read_text, walk
from tony_provider.runtime.storage.errors import StorageNotFound


@dataclass
class Job:
    hook: TonyHook
    identity: Identity
    id: str
    log_folders: Callable[[str], list[Path]]

    @property
    def handle(self) -> TonyJob:
        return self.hook.job(self.id, self.identity)

    @property
    def directory(self) -> str:
        """The URI of its directory on the store."""
        return self.handle.directory

    def compared(self) -> tuple[ModelState, dict[str, ChangeKind]]:
        """The state of its model, and the kind of each change of what it read, by the URI."""
        (report,) = self.hook.stale_models(model=f"{self.directory}/model")
        return report.state, {each.uri: each.kind for each in report.changes}

    # -- how it goes -------------------------------------------------------------------------------------------------

    def application(self) -> Application:
        """As the cluster tells it."""
        application = self.hook.application(self.id)
        assert application is not None, f"{self.id} is not known to the cluster"
        return application

    def status(self) -> JobStatus:
        """As its master tells it; there must be a status by now."""
        status = self.hook.job_status(self.identity, self.id)
        assert status is not None, f"{self.id} has no status\n{self.describe()}"
        return status

    def end(self, seconds: float = SECONDS) -> Application:
        """Wait until it has ended."""
        return until(
            lambda: application if (application := self.application()).is_final else None, self.describe, seconds
        )

    def succeeded(self) -> JobStatus:
        """Wait for its end; its result, which must be a success."""
        application = self.end()
        assert application.state is ApplicationState.FINISHED, f"{application}\n{self.describe()}"
        status = self.status()
        assert status.state is JobState.SUCCEEDED, self.describe()
        return status

    def failed(self) -> str:
        """Wait for its end, which must be a failure; the diagnostics that the cluster shows."""
        application = self.end()
        assert application.state is ApplicationState.FINISHED, f"{application}\n{self.describe()}"
        assert application.final_status is not None
        assert application.final_status.value == "FAILED", f"{application}\n{self.describe()}"
        return application.diagnostics

    def until(self, state: JobState) -> JobStatus:
        """Wait until it is in this state; it must not end before."""

        def look() -> JobStatus | None:
            status = self.hook.job_status(self.identity, self.id)
            if status is not None and status.state is state:
                return status
            assert not self.application().is_final, f"it ended without being {state.value}\n{self.describe()}"
            return None

        return until(look, self.describe)

    def until_said(self, task: str, line: str) -> None:
        """Wait until a task's user process has written this line to its output."""
        until(lambda: line in self.output(task).splitlines(), lambda: f"{task} to say {line!r}\n{self.describe()}")

    # -- what it leaves ----------------------------------------------------------------------------------------------

    def read(self, name: str) -> str:
        """A file of its directory on the store."""
        return read_text(self.hook.storage(), f"{self.directory}/{name}")

    def files(self) -> list[str]:
        """Names of all files in its directory, relative to it, sorted."""
        entries = walk(self.hook.storage(), self.directory)
        return sorted(entry.path.removeprefix(f"{self.directory}/") for entry in entries if not entry.is_directory)

    def has_staging(self) -> bool:
        return self.hook.storage().exists(f"{self.directory}/{contract.LAUNCH_DIR}")

    def unreadable_files(self) -> list[str]:
        """Paths of its files that only this provider can read, because HDFS keeps their content in attributes."""
        storage = self.hook.storage()
        empty = [each.path for each in walk(storage, self.directory) if not each.is_directory and not each.size]
        return [path for path in empty if read_bytes(storage, path)]

    def events(self) -> list[dict[str, Any]]:
        return list(read_events(self.hook.storage(), self.directory, []))

    def nodes(self, task: str) -> list[str]:
        """Where its containers were, one after the other."""
        granted = [event for event in self.events() if event["event"] == "allocated" and event["task"] == task]
        return [str(event["message"]).rpartition(" on ")[2] for event in granted]

    def log(self, task: str) -> str:
        """A task's kept output, such as that of worker:0."""
        (log,) = (log for log in self.handle.stored_logs(task) if log.name == contract.log_name(task, 1))
        return log.read(0, log.size).decode("utf-8", "replace")

    def said(self, task: str) -> Any:
        """The one JSON value among the lines of a task's kept output."""
        values = [line for line in self.log(task).splitlines() if line.startswith(("{", "[{"))]
        assert len(values) == 1, self.log(task)
        return json.loads(values[0])

    # -- what it does on the machine ---------------------------------------------------------------------------------

    def task(self, name: str) -> TaskStatus:
        return next(task for task in self.status().tasks if task.name == name)

    def processes(self) -> list[Seen]:
        return processes_of(self.id)

    def master(self) -> Seen:
        """The process of its application master."""
        return next(process for process in self.processes() if process.words.endswith("start.py am"))

    def executors(self) -> list[Seen]:
        return [process for process in self.processes() if process.words.endswith("start.py executor")]

    def output(self, task: str) -> str:
        """What a task's user process has written so far, from its container's log folder."""
        container_id = self.task(task).container_id
        folders = [folder for folder in self.log_folders(self.id) if folder.name == container_id]
        return "".join(
            path.read_text(errors="replace")
            for folder in folders
            for path in sorted(folder.glob("*"))
            if path.is_file()
        )

    def describe(self) -> str:
        """All that is known of it, for the message of a failed test: what tells most is last, where people look."""
        parts = [
            f"{folder.name}/{path.name}:\n{path.read_text(errors='replace')[-3000:]}"
            for folder in self.log_folders(self.id)
            for path in sorted(folder.glob("*"))
            if path.is_file() and path.stat().st_size
        ]
        parts += [*map(str, self.events()), f"{self.id} of {self.identity.name}: {self.hook.application(self.id)}"]
        for name in (contract.RESULT_FILE, contract.STATUS_FILE):
            try:
                parts.append(f"{name}: {self.read(name)}")
            except StorageNotFound:
                parts.append(f"{name}: none")
        return "\n".join(parts)
