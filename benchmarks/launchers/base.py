"""A trivial job, and who can start it."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import attrs

from tests.jobs.processes import Seen, below, every_process, processes_of

SCRIPT = Path(__file__).with_name("task.sh")
TASK_MEMORY = 128  # MiB
MASTER_MEMORY = 256
_SECONDS = 180.0  # for the whole of a job
_GATE_POLL = 0.05  # seconds


@attrs.frozen
class TrivialJob:
    """Every task writes when it begins, waits for all others and so many seconds more, and writes when it ends."""

    tasks: int
    stamps: Path  # the directory where they write
    seconds: float = 1.0
    restarts: int = 0  # how often a task starts again that fails; -1: always
    watched: bool = True  # by its client, until its end

    @property
    def words(self) -> list[str]:
        """A task's command."""
        return ["/bin/sh", str(SCRIPT), str(self.stamps), f"{self.seconds:g}"]

    def began(self) -> list[float]:
        return self._stamps("began")

    def ended(self) -> list[float]:
        return self._stamps("ended")

    def _stamps(self, name: str) -> list[float]:
        """Seconds since 1970, sorted."""
        texts = (path.read_text() for path in self.stamps.glob(f"*.{name}"))
        return sorted(float(text) for text in texts if text.strip())


@contextmanager
def trivial_job(home: Path, tasks: int, **how: Any) -> Iterator[TrivialJob]:
    """One whose stamps go to a directory of their own in ``home``, where every user may write."""
    home.chmod(0o755)
    stamps = Path(tempfile.mkdtemp(prefix="stamps-", dir=home))
    stamps.chmod(0o777)
    job = TrivialJob(tasks, stamps, **how)
    over = threading.Event()
    try:
        with ThreadPoolExecutor(1) as keeper, (stamps / "gate").open("w") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            kept = keeper.submit(_keep, gate, job, over)
            try:
                yield job
            finally:
                over.set()
            kept.result()
    finally:
        shutil.rmtree(stamps)


def _keep(gate: TextIO, job: TrivialJob, over: threading.Event) -> None:
    """Keep the gate shut, at which tasks wait without a processor's help, until all are there."""
    while len(job.began()) < job.tasks and not over.wait(_GATE_POLL):
        pass
    fcntl.flock(gate, fcntl.LOCK_UN)


@attrs.frozen
class Launch:
    """One job that is under way. Times in seconds since 1970."""

    application_id: str  # "" where no cluster is
    began: float  # to submit
    submitted: float
    store: float = 0.0  # seconds of the submission in which the store was asked for something
    requests: dict[str, int] = attrs.field(factory=dict)  # to the ResourceManager by REST, from the client

    def processes(self) -> list[Seen]:
        """Of the application."""
        return processes_of(self.application_id) if self.application_id else []


@attrs.frozen
class Ended:
    """A job that its client knows to have ended well."""

    at: float  # when the client knew, seconds since 1970
    requests: dict[str, int] = attrs.field(factory=dict)  # by REST, since the submission


class Launcher(ABC):
    """One of those that are compared. Its client is warm: what runs once for many jobs runs already."""

    name: str

    @abstractmethod
    def submit(self, job: TrivialJob) -> Launch: ...

    @abstractmethod
    def wait(self) -> Ended: ...

    @abstractmethod
    def client(self) -> set[int]:
        """The client's processes."""

    def close(self) -> None:  # noqa: B027 - some have nothing
        """End the client."""


class ClientProcess(Launcher):
    """A client in a process of its own: a line of JSON for each job goes in, and two come out.

    The first one when the job is submitted (``Launch``), the second when the client knows its end (``Ended``).
    """

    def __init__(self, command: Sequence[str | Path], log: Path, env: dict[str, str]) -> None:
        self._log = log
        with log.open("w") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, env=env, text=True
            )
        self._answer()  # it is ready

    def submit(self, job: TrivialJob) -> Launch:
        assert self._process.stdin is not None
        order = {"tasks": job.tasks, "words": job.words, "memory": TASK_MEMORY, "master_memory": MASTER_MEMORY}
        order |= {"restarts": job.restarts, "watched": job.watched}
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return Launch(**self._answer())

    def wait(self) -> Ended:
        return Ended(**self._answer())

    def client(self) -> set[int]:
        return {self._process.pid, *below(self._process.pid, every_process())}

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            line = self._process.stdout.readline()
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
            if not line:
                break
        raise RuntimeError(f"the client of {self.name} has ended:\n{self._log.read_text()[-3000:]}")
