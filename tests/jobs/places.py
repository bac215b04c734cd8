"""Where jobs run, seen from outside: by the hook as users have it, and by what lies and runs on the machine."""

from __future__ import annotations

import json
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.hadoop.cluster import HadoopCluster
from tests.jobs.job import Job
from tests.shared_runtime import local_extra
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.hooks.job import TonyJob
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.parsing.parse import parse_job

USER = "alice"  # an ordinary one: HDFS's superuser would hide missing permissions


@dataclass
class Place(ABC):
    """One backend. ``extra`` goes over the connection's own; hooks live until ``close``."""

    extra: dict[str, Any] = field(default_factory=dict)
    _hooks: list[TonyHook] = field(default_factory=list)
    _jobs: list[Job] = field(default_factory=list)

    @property
    @abstractmethod
    def connection(self) -> dict[str, Any]:
        """As Airflow's JSON form of connections has it."""

    @property
    @abstractmethod
    def nodes(self) -> int:
        """How many."""

    @abstractmethod
    def work_folders(self, application_id: str) -> list[Path]:
        """Folders of the application's containers that are there now."""

    @abstractmethod
    def log_folders(self, application_id: str) -> list[Path]:
        """The log folder of each of its containers, the application master's first."""

    def hook(self) -> TonyHook:
        """A new one, with connections of its own."""
        connection = {**self.connection, "extra": {**self.connection["extra"], **self.extra}}
        conn_id = f"tony_jobs_{uuid.uuid4().hex}"
        os.environ[f"AIRFLOW_CONN_{conn_id.upper()}"] = json.dumps(connection)
        hook = TonyHook(conn_id)
        self._hooks.append(hook)
        return hook

    def submit(
        self,
        spec: dict[str, Any],
        *,
        hook: TonyHook | None = None,
        before_submit: Callable[[TonyJob], object] = lambda job: None,
        **more: Any,
    ) -> Job:
        """A job of its own identity; ``more`` are fields of its SubmissionRequest."""
        hook = hook or self.hook()
        identity = hook.identity(dag_id="jobs", run_id=uuid.uuid4().hex, task_id="train")
        # The application master needs no more, and clusters here are small.
        job = parse_job({"framework": "standalone", "am": {"memory": "256MiB"}, **spec})
        handle = hook.submit(SubmissionRequest(job, identity, **more), before_submit=before_submit)
        submitted = Job(hook, identity, handle.application_id, self.log_folders)
        self._jobs.append(submitted)
        return submitted

    def run(self, spec: dict[str, Any], **arguments: Any) -> Job:
        """``submit``, and wait for its end."""
        job = self.submit(spec, **arguments)
        job.end()
        return job

    def close(self) -> None:
        """End what a failed test has left running, and all hooks."""
        for job in self._jobs:
            if not job.application().is_final:
                job.hook.kill(job.id, "its test is over")
                job.end()
        for hook in self._hooks:
            hook.close()
            del os.environ[f"AIRFLOW_CONN_{hook.tony_conn_id.upper()}"]


@dataclass
class LocalPlace(Place):
    """The embedded local cluster, in a folder."""

    root: Path = Path()

    @property
    def connection(self) -> dict[str, Any]:
        return {"conn_type": "tony", "extra": local_extra(self.root)}

    @property
    def nodes(self) -> int:
        return 1

    def work_folders(self, application_id: str) -> list[Path]:
        containers = self.root / "cluster" / "applications" / application_id / "containers"
        return [containers] if containers.exists() else []

    def log_folders(self, application_id: str) -> list[Path]:
        return sorted((self.root / "cluster" / "applications" / application_id / "logs").glob("container_*"))


@dataclass
class YarnPlace(Place):
    """A real cluster, as one of its ordinary users."""

    cluster: HadoopCluster = field(default_factory=lambda: HadoopCluster(Path()))

    @property
    def connection(self) -> dict[str, Any]:
        extra = {"webhdfs": ",".join(self.cluster.webhdfs), "file_roots": "/", **transport(self.cluster)}
        if self.cluster.settings.secure:
            extra["kerberos"] = "true"
            return {"conn_type": "tony", "host": ",".join(self.cluster.rm_webapp), "extra": extra}
        return {"conn_type": "tony", "login": USER, "host": ",".join(self.cluster.rm_webapp), "extra": extra}

    @property
    def nodes(self) -> int:
        return self.cluster.settings.nodemanagers

    @property
    def most_of_a_node(self) -> int:
        """Memory in MiB of a container that a node holds one of, and not two."""
        return self.cluster.settings.node_memory_mb * 6 // 10

    def work_folders(self, application_id: str) -> list[Path]:
        data = self.cluster.layout.data
        return [
            *data.glob(f"nodemanager-*/usercache/*/appcache/{application_id}"),
            *data.glob(f"nodemanager-*/nmPrivate/{application_id}"),
        ]

    def log_folders(self, application_id: str) -> list[Path]:
        return sorted(self.cluster.container_logs(application_id), key=lambda path: path.name)

    def report(self, application_id: str) -> dict[str, Any]:
        """What the ResourceManager says of the application, to its owner."""
        url = f"{self.cluster.rm_webapp[0]}/ws/v1/cluster/apps/{application_id}"
        app: dict[str, Any] = self.cluster.client(USER).get_json(url)["app"]
        return app


def transport(cluster: HadoopCluster) -> dict[str, Any]:
    """What a connection says of the way to a cluster: its authority, for workers and nodes, or that there is none."""
    if cluster.settings.https:
        return {"verify": str(cluster.layout.ca_file), "nodes_ca_file": str(cluster.layout.ca_file)}
    return {"insecure_http": True} if cluster.settings.secure else {}


def files_below(*folders: Path) -> Iterator[Path]:
    """Every regular file, also where folders come and go meanwhile."""
    for folder in folders:
        for directory, _, names in os.walk(folder):
            for name in names:
                path = Path(directory, name)
                if path.is_file() and not path.is_symlink():
                    yield path
