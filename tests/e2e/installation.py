"""The Airflow of these tests: its DAG bundles, laid out in its home, and its connection to the cluster."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.airflow import Airflow
from tests.hadoop.cluster import HadoopCluster
from tests.jobs.places import YarnPlace
from tests.waiting import until

DAGS = Path(__file__).parent / "dags"
PROGRAMS = Path(__file__).parents[1] / "faults" / "programs"
WRITER = Path(__file__).parents[1] / "jobs" / "writer.py"
LOCAL = "airflow.dag_processing.bundles.local.LocalDagBundle"
GIT = "airflow.providers.git.bundles.git.GitDagBundle"
# Of `airflow dags test`: paused, since the scheduler, which sees its run too, would at times start the task as well.
AT_A_DESK = "defers_at_a_desk"
CORRECTED = tuple(f"corrected{name}{part}" for name in ("", "_few", "_by_dag") for part in ("", "_whole"))
DAG_IDS = (
    "waits",
    "waits_keep",
    "defers",
    AT_A_DESK,
    "defers_short",
    "defers_large",
    "form",
    "mapped",
    "mapped_by_key",
    "independent",
    "chained",
    "evaluated",
    *CORRECTED,
    "repeats_corrected",
    "bundle_clicks",
    "bundle_versioned",
)


@dataclass
class Installation:
    """``name`` keeps apart what several of them do on one cluster: it is in tags, and in the staging directory."""

    home: Path
    hadoop: HadoopCluster
    name: str = ""
    # Identities' tags of all that rows have asked for, and DAGs whose runs a row knows only when they are over.
    meant: set[str] = field(default_factory=set)
    claimed: list[str] = field(default_factory=list)
    place: YarnPlace = field(init=False)
    airflow: Airflow = field(init=False)

    def __post_init__(self) -> None:
        self.home = self.home.absolute()
        self.home.mkdir(parents=True, exist_ok=True)
        named = self.home / "name"
        if not named.exists():
            named.write_text(f"e2e-{uuid.uuid4().hex[:12]}")
        self.name = named.read_text()
        staging_dir = f"{self.hadoop.fs_default}/user/alice/{self.name}"
        extra = {"namespace": self.name, "staging_dir": staging_dir, "autoscaling": True}  # one row's job is too large
        self.place = YarnPlace(extra=extra, cluster=self.hadoop)
        connection = self.place.connection
        self.airflow = Airflow(
            self.home,
            bundles=self._bundles(),
            # As users have it by default: DAGs take along files of their bundles.
            connection={**connection, "extra": {**connection["extra"], **self.place.extra, "file_roots": None}},
            environment={
                "E2E_TAG": self.name,
                "E2E_DIARIES": str(self.diaries),
                "E2E_ROWS": self.rows,
                # Bundles in git look for it, although they have an address. Before Airflow 3.2 a look into the database
                # for one that is not there takes back what was just said of the bundles there.
                "AIRFLOW_CONN_GIT_DEFAULT": '{"conn_type": "git"}',
            },
        )

    @property
    def diaries(self) -> Path:
        return self.home / "diaries"

    @property
    def rows(self) -> str:
        """The directory on HDFS of the data that rows correct."""
        return f"{self.hadoop.fs_default}/user/alice/{self.name}-rows"

    @property
    def dags(self) -> Path:
        """The folder of the plain bundle."""
        return self.home / "dags"

    @property
    def checkout(self) -> Path:
        """Where the commits of the git bundle are made."""
        return self.home / "checkout"

    def start(self) -> None:
        """Until every DAG is known, and not paused where a scheduler is to run it. Raises AirflowError."""
        self._lay_out()
        self.airflow.start()
        rest = self.airflow.rest

        def lacks() -> list[str]:
            known = {each["dag_id"] for each in rest.call("GET", "/dags", limit=100)["dags"]}
            return sorted(set(DAG_IDS) - known)

        def errors() -> Any:
            return [each["stack_trace"] for each in rest.call("GET", "/importErrors")["import_errors"]]

        until(lambda: not lacks(), lambda: f"DAGs: lacking {lacks()}; {errors()}")
        for dag_id in DAG_IDS:
            rest.call("PATCH", f"/dags/{dag_id}", {"is_paused": dag_id == AT_A_DESK})

    def stop(self) -> None:
        """End Airflow, and remove what its jobs have left on the cluster for its users."""
        self.airflow.stop()
        storage = self.place.hook().storage()
        if storage.exists(self.place.extra["staging_dir"]):
            storage.remove(self.place.extra["staging_dir"], recursive=True)
        storage.remove(self.rows, recursive=True)
        self.place.close()

    def commit(self, message: str) -> str:
        """All changes of the checkout, as the git bundle will see them; the commit's name."""
        self._git("add", "--all")
        self._git("commit", "--quiet", "--message", message)
        self._git("push", "--quiet", "origin", "main")
        return self._git("rev-parse", "HEAD").strip()

    def _bundles(self) -> list[dict[str, Any]]:
        git = {
            "repo_url": str(self.home / "origin.git"),
            "tracking_ref": "main",
            "subdir": "pipelines",
            "refresh_interval": 3,
        }
        return [
            {"name": "plain", "classpath": LOCAL, "kwargs": {"path": str(self.dags), "refresh_interval": 300}},
            {
                "name": "teams",
                "classpath": LOCAL,
                "kwargs": {"path": str(self.home / "teams"), "refresh_interval": 300},
            },
            {"name": "repository", "classpath": GIT, "kwargs": git},
        ]

    def _lay_out(self) -> None:
        dags = self.dags
        (dags / "programs").mkdir(parents=True, exist_ok=True)
        self.diaries.mkdir(exist_ok=True)
        for name in ("jobs.py", "trainings.py", "pipelines.py", "corrections.py"):
            shutil.copy(DAGS / name, dags)
        for name in ("count.py", "diary.py", "fold_rows.py"):
            shutil.copy(PROGRAMS / name, dags / "programs")
        shutil.copy(WRITER, dags / "programs")
        (dags / ".airflowignore").write_text("programs/\njobs.py\n")
        self._lay_out_bundle(self.home / "teams", "marketing/clicks")
        if not self.checkout.exists():
            origin = self.home / "origin.git"
            subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", str(origin)], check=True)
            subprocess.run(["git", "clone", "--quiet", str(origin), str(self.checkout)], check=True)
            self._lay_out_bundle(self.checkout, "pipelines/versioned")
            self.commit("A training")

    def _lay_out_bundle(self, bundle: Path, subfolder: str) -> None:
        folder = bundle / subfolder
        (folder / "scripts").mkdir(parents=True, exist_ok=True)
        shutil.copy(DAGS / "in_a_bundle.py", folder / "dag.py")
        shutil.copy(PROGRAMS / "count.py", folder / "scripts" / "training.py")
        shutil.copy(PROGRAMS / "diary.py", folder / "scripts")
        (folder / ".airflowignore").write_text("scripts/\n")

    def _git(self, *words: str) -> str:
        identity = ["-c", "user.name=alice", "-c", "user.email=alice@example.com", "-c", "init.defaultBranch=main"]
        command = ["git", "-C", str(self.checkout), *identity, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
