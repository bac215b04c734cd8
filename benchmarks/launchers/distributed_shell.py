"""YARN's own example, the distributed shell: a client (Java) for each job, and a master (Java)."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.launchers.base import MASTER_MEMORY, TASK_MEMORY, Ended, Launch, Launcher, TrivialJob
from benchmarks.launchers.java_client import JavaClient
from tests.hadoop.cluster import HadoopCluster
from tests.jobs.processes import below, every_process

_CLIENT = "org.apache.hadoop.yarn.applications.distributedshell.Client"
_SUBMITTED = re.compile(r"Submitted application (application_\d+_\d+)")
_COMPLETED = "Application completed successfully"


class DistributedShell(Launcher):
    name = "distributed shell"

    def __init__(self, jar: Path, cluster: HadoopCluster, home: Path) -> None:
        folder = home / "shell"
        folder.mkdir()
        self._jar = jar
        self._java = JavaClient(cluster, folder)
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def submit(self, job: TrivialJob) -> Launch:
        shell, *words = job.words
        options = {
            "-jar": self._jar,
            "-shell_command": shell,
            "-num_containers": job.tasks,
            "-container_memory": TASK_MEMORY,
            "-master_memory": MASTER_MEMORY,
        }
        command = ["java", "-cp", f"{self._jar}:{self._java.classpath}", _CLIENT]
        command += [str(word) for option in options.items() for word in option]
        command += [word for each in words for word in ("-shell_args", each)]
        began = time.time()
        self._process = subprocess.Popen(
            command,
            cwd=self._folder,
            env=self._java.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said = self._until(_SUBMITTED.search)
        return Launch(said, began, time.time())

    def wait(self) -> Ended:
        assert self._process is not None
        self._until(lambda line: re.search(f"({_COMPLETED})", line))
        ended = Ended(time.time())
        self._process.communicate(timeout=30)
        return ended

    def client(self) -> set[int]:
        assert self._process is not None
        return {self._process.pid, *below(self._process.pid, every_process())}

    def _until(self, found: Callable[[str], re.Match[str] | None]) -> str:
        """What the client says of that."""
        assert self._process is not None
        assert self._process.stdout is not None
        said = []
        for line in self._process.stdout:
            said.append(line)
            if match := found(line):
                return match[1]
        raise RuntimeError("the distributed shell has failed:\n" + "".join(said)[-3000:])
