"""alice's training under attack, and everything of it that an attacker may have found out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.faults.sockets import connections
from tests.hadoop.processes import Process
from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import YarnPlace
from tests.waiting import until
from tony_provider.runtime.common import contract
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.protocol.status import JobState
from tony_provider.runtime.storage import uris

T = TypeVar("T")

SECONDS = 400.0  # that anything may take on a busy machine: a container here takes a JVM that fetches its files
_LISTENING = "0A"


@dataclass
class Victim:
    place: YarnPlace
    job: Job
    go: Path  # it ends when this is there
    secret: str = ""  # in the environment of its programs
    finished: bool = False

    @property
    def id(self) -> str:
        return self.job.id

    @property
    def page(self) -> str:
        """The address of its page, through YARN's proxy; ends with a slash."""
        url = self.job.application().tracking_url
        assert url, self.job.describe()
        return url

    @property
    def api(self) -> str:
        """The ResourceManager's own address for it."""
        return f"{self.place.cluster.rm_webapp[0]}/ws/v1/cluster/apps/{self.id}"

    def webhdfs(self, uri: str = "") -> str:
        """The address of a path on the store; by default of its application's directory."""
        path = uris.parse(uri or self.job.directory).path
        return f"{self.place.cluster.services.active_namenode()}/webhdfs/v1{path}"

    # -- what only somebody who is root on the nodes can know ----------------------------------------------------------

    def credentials(self, task: str = "") -> Credentials:
        """As the NodeManager keeps them for the task's container; of the application master by default."""
        container = self.container(task)
        [path] = self.place.cluster.layout.data.glob(
            f"nodemanager-*/nmPrivate/{self.id}/{container}/{container}.tokens"
        )
        return Credentials.read_file(path)

    def container(self, task: str = "") -> str:
        if task:
            found = self.job.task(task).container_id
            assert found, self.job.describe()
            return found
        [folder] = [each for each in self.job.log_folders(self.id) if each.name.endswith("_000001")][-1:]
        return folder.name

    @property
    def master(self) -> Process:
        process = Process.of(self.job.master().pid)
        assert process is not None, "its master has ended"
        return process

    def executor(self, task: str) -> Process:
        container = self.container(task)
        pid = next(each.pid for each in self.job.executors() if each.holds(container))
        process = Process.of(pid)
        assert process is not None, f"{task}'s executor has ended"
        return process

    def ports(self) -> dict[str, tuple[str, int]]:
        """Where its master listens: `grpc` for executors, `web` for YARN's proxy."""
        address = str(json.loads(self.job.read(contract.MASTER_FILE))["address"])  # of the newest master
        host, _, port = address.rpartition(":")
        listening = [each.local for each in connections(self.master) if each.state == _LISTENING]
        [web] = [each for each in listening if each[1] != int(port)]
        return {"grpc": (host, int(port)), "web": web}

    # -- how it goes ---------------------------------------------------------------------------------------------------

    def until_running(self) -> None:
        """It must not end before."""

        def look() -> bool:
            state = self._state()
            assert state is None or not state.is_final, f"it ended without running\n{self.job.describe()}"
            return state is JobState.RUNNING

        self.until(look, "the job to run")

    def _state(self) -> JobState | None:
        status = self.job.hook.job_status(self.job.identity, self.id)
        return status.state if status is not None else None

    def until(self, look: Callable[[], T | None], what: str) -> T:
        return until(look, lambda: f"{what}\n{self.job.describe()}", SECONDS)

    def finish(self) -> list[str]:
        """Let it end, and wait for that; what is wrong with how it ended."""
        if self.finished:
            return []
        self.finished = True
        self.go.touch()
        try:
            self.job.end(SECONDS)
            self.job.succeeded()
            assert self.job.read("model/model") == "weights\n"
            assert_nothing_left(self.place, self.job)
        except AssertionError as error:
            return [f"alice's job: {error}"]
        return []


def peak_bytes(process: Process) -> int:
    """The most memory that it has had in RAM."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) << 10
