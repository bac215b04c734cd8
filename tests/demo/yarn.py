"""The example on a real HDFS and YARN, and what can be seen of it there, from outside."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.demo.airflow import REPOSITORY, Airflow
from tests.demo.published import MINIMUM_ACCURACY, Published
from tests.demo.witness import Witness, below_nodemanagers
from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.daemons import ClusterError
from tests.hadoop.settings import Settings
from tests.waiting import settled
from tony_provider.runtime.common import contract
from tony_provider.runtime.storage.base import FileStatus, walk
from tony_provider.runtime.storage.stores import open_storage
from tony_provider.runtime.storage.uris import join
from tony_provider.runtime.storage.webhdfs.transport import WebHdfsConfig

USER = "alice"  # an ordinary one: HDFS's superuser would hide missing permissions
HOMES = REPOSITORY / ".tony" / "demo-yarn"


def home_of(version: str) -> Path:
    """The folder of the demonstration on this version of Hadoop; only in its ``turn``."""
    return HOMES / version


@dataclass(frozen=True)
class Finding:
    what: str
    seen: str
    good: bool


@contextmanager
def cluster(version: str) -> Iterator[HadoopCluster]:
    """The cluster of `make hadoop` where that runs, which is left alone; else one that nobody else uses, in our turn.

    Raises ClusterError, ResolveError.
    """
    shared = REPOSITORY / ".tony" / f"hadoop-{version}"
    if _runs(shared):
        print(f"Hadoop {version}: on the cluster in {shared}", flush=True)
        there = HadoopCluster(shared, Settings(version=version))
        there.start()
        yield there
        return
    ours = HadoopCluster(HOMES / f"hadoop-{version}", Settings(version=version))
    print(f"Hadoop {version}: starting HDFS and YARN (the first time downloads them) …", flush=True)
    ours.start()  # one that a demonstration left when it was killed is taken over
    try:
        yield ours
    finally:
        ours.stop()


def _runs(root: Path) -> bool:
    try:
        return HadoopCluster.load(root).running()
    except ClusterError:
        return False


def run(hadoop: HadoopCluster) -> list[Finding]:
    """Raises DemoFailed when the DAG does not even succeed."""
    version = hadoop.settings.version
    home = home_of(version)
    shutil.rmtree(home, ignore_errors=True)
    airflow = Airflow(
        home,
        {
            "conn_type": "tony",
            "login": USER,
            "host": ",".join(hadoop.rm_webapp),
            "extra": {"webhdfs": ",".join(hadoop.webhdfs)},
        },
    )
    print(f"Airflow lives in {home}; making its database …", flush=True)
    airflow.migrate()
    demonstration = Demonstration(hadoop, airflow)
    findings = demonstration.findings()
    print(f"\nOn HDFS there is now, in {demonstration.staging_dir}:")
    for line in demonstration.list_files():
        print(f"  {line}")
    return findings


class Demonstration:
    def __init__(self, hadoop: HadoopCluster, airflow: Airflow) -> None:
        self._hadoop = hadoop
        self._airflow = airflow
        self._client = hadoop.client(USER)
        self.staging_dir = join(hadoop.fs_default, "user", USER, ".tony")
        self._storage = open_storage(self.staging_dir, webhdfs=WebHdfsConfig(hadoop.webhdfs, user=USER))
        self._known = set(self._applications())

    def findings(self) -> list[Finding]:
        with Witness(self._hadoop, USER) as witness:
            self._run_dag("first")
        first = self._new_applications()
        published = Published.current(self._storage, self.staging_dir)
        print(published)
        found = [
            Finding("held-out accuracy", f"{published.accuracy:.4f}", published.accuracy >= MINIMUM_ACCURACY),
            *self._ends(first),
            *self._places(first, witness),
            *self._left_behind(first),
        ]
        return [*found, self._second_submission()]

    def list_files(self) -> list[str]:
        """What is on HDFS now, one line per directory that holds files."""
        sizes: dict[str, list[int]] = {}
        for file in self._files():
            sizes.setdefault(file.path.rpartition("/")[0], []).append(file.size)
        prefix = self.staging_dir
        return [
            f"{sum(of) / 1024:9.1f} KiB in {len(of):2} files  {directory.removeprefix(prefix)}"
            for directory, of in sorted(sizes.items())
        ]

    # -- what is looked at -------------------------------------------------------------------------------------------

    def _ends(self, applications: dict[str, dict[str, Any]]) -> list[Finding]:
        """As the ResourceManager tells it."""
        found = [Finding("applications", ", ".join(applications), len(applications) == 2)]
        for key, wanted in (
            ("user", USER),
            ("applicationType", "TONY"),
            ("state", "FINISHED"),
            ("finalStatus", "SUCCEEDED"),
        ):
            seen = [str(application[key]) for application in applications.values()]
            found.append(Finding(key, ", ".join(seen), set(seen) == {wanted}))
        return found

    def _places(self, applications: dict[str, dict[str, Any]], witness: Witness) -> list[Finding]:
        hosts = witness.hosts(min(applications))
        where = ", ".join(f"{count} on {host}" for host, count in sorted(hosts.items()))
        programs = ", ".join(f"{name}" for name, _ in witness.programs.most_common(6))
        java = "; ".join(sorted(witness.java)) or f"none in {witness.looks} looks (seen: {programs})"
        return [
            Finding("tasks of the training", where, len(hosts) == 2),
            Finding("Java below containers", java, not witness.java and witness.programs.total() > 0),
        ]

    def _left_behind(self, applications: dict[str, dict[str, Any]]) -> list[Finding]:
        processes = settled(lambda: below_nodemanagers(self._hadoop))
        folders = settled(self._application_folders)
        staging = [file.path for file in self._storage_entries() if f"/{contract.LAUNCH_DIR}" in file.path]
        kept = ("/cache/", "/digits/", "/jobs/", "/advice")  # what the next runs go by: docs/advice.md
        strangers = [line for line in self.list_files() if not any(part in line for part in kept)]
        return [
            Finding("processes left", _named(processes), not processes),
            Finding("NodeManagers' folders left", _named(folders), not folders),
            Finding("staging left on HDFS", _named(staging), not staging),
            Finding("other files left on HDFS", _named(strangers), not strangers),
        ]

    def _second_submission(self) -> Finding:
        before = self._cache()
        self._run_dag("second")
        after = self._cache()
        news = [path for path in after if after[path] != before.get(path)]
        return Finding("uploaded by a second run", _named(news), not news and bool(before))

    # -- how ---------------------------------------------------------------------------------------------------------

    def _run_dag(self, which: str) -> None:
        print(f"Running the DAG digits_train on Hadoop {self._hadoop.settings.version}, {which} time …", flush=True)
        begun = time.monotonic()
        self._airflow.run_dag()
        print(f"  done in {time.monotonic() - begun:.0f} s", flush=True)

    def _applications(self) -> dict[str, dict[str, Any]]:
        answer = self._client.get_json(f"{self._hadoop.rm_webapp[0]}/ws/v1/cluster/apps", user=USER)
        return {each["id"]: each for each in (answer["apps"] or {}).get("app", [])}

    def _new_applications(self) -> dict[str, dict[str, Any]]:
        return {name: each for name, each in sorted(self._applications().items()) if name not in self._known}

    def _application_folders(self) -> list[Path]:
        return sorted(self._hadoop.layout.data.glob("nodemanager-*/usercache/*/appcache/application_*"))

    def _storage_entries(self) -> list[FileStatus]:
        return list(walk(self._storage, self.staging_dir))

    def _files(self) -> list[FileStatus]:
        return [entry for entry in self._storage_entries() if not entry.is_directory]

    def _cache(self) -> dict[str, int]:
        cache = join(self.staging_dir, "cache")
        return {file.path: file.modified_ms for file in self._files() if file.path.startswith(cache)}


def _named(things: list[Any]) -> str:
    if not things:
        return "none"
    return ", ".join(str(thing) for thing in things[:5]) + (f" and {len(things) - 5} more" if len(things) > 5 else "")
