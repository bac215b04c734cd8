"""What the pictures are taken of: a whole Airflow, whose trainings run on the embedded local cluster."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.demo.airflow import DAG as DIGITS
from tests.demo.airflow import REPOSITORY
from tests.documents.pages import blocks
from tests.e2e.airflow import Airflow, AirflowError
from tests.e2e.installation import LOCAL
from tests.e2e.rest import Rest
from tests.e2e.runs import Backfill, Run
from tests.jobs.places import LocalPlace
from tests.waiting import until
from tony_provider.cluster.interface import Application
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.protocol import master_files

HOME = Path("/tmp/tony")  # it is seen in the pictures, so it is no folder of whoever takes them
TUTORIAL = "tutorial"
CLICKS = "clicks_daily"


@dataclass
class Stage:
    """The tutorial's DAG and the examples, in an Airflow that has the tutorial's connection."""

    home: Path = HOME
    place: LocalPlace = field(init=False)
    airflow: Airflow = field(init=False)
    _hook: TonyHook | None = None

    def __post_init__(self) -> None:
        """Raise AirflowError if the folder exists."""
        if self.home.exists():
            raise AirflowError(f"{self.home} is there already: another process takes pictures, or one left it behind")
        self.place = LocalPlace(root=self.home / "jobs")
        # The cache is named in a task's log.
        environment = {"XDG_CACHE_HOME": str(self.home / "cache")}
        self.airflow = Airflow(self.home / "airflow", self._bundles(), self.place.connection, environment)

    @property
    def rest(self) -> Rest:
        return self.airflow.rest

    @property
    def hook(self) -> TonyHook:
        if self._hook is None:
            self._hook = self.place.hook()
        return self._hook

    def set_up(self) -> None:
        """Until all DAGs are known. Raises AirflowError."""
        self._lay_out()
        self.airflow.start()
        wanted = {TUTORIAL, DIGITS, CLICKS}
        until(lambda: wanted <= self._known(), lambda: f"DAGs {wanted}; there are {self._known()}")

    def trigger(self, dag_id: str, **conf: Any) -> Run:
        run = Run(self.rest, dag_id, "manual")
        body = {"dag_run_id": run.run_id, "logical_date": None, "conf": conf}
        self._open(dag_id)
        self.rest.call("POST", f"/dags/{dag_id}/dagRuns", body)
        return run

    def backfill(self, dag_id: str, dates: Sequence[str], **conf: Any) -> Backfill:
        """Of all dates from the first to the last, one after the other."""
        self._open(dag_id)
        return Backfill.create(self.rest, dag_id, dates, at_once=1, reprocess="failed", conf=conf)

    def _open(self, dag_id: str) -> None:
        self.rest.call("PATCH", f"/dags/{dag_id}", {"is_paused": False})

    def application(self, run: Run) -> Application:
        """The newest one of the task ``train``; waits until there is one that has a page."""
        identity = self.hook.identity(dag_id=run.dag_id, run_id=run.run_id, task_id="train")

        def look() -> Application | None:
            found = self.hook.find(identity)
            return found[-1] if found and found[-1].tracking_url else None

        return until(look, run.describe)

    def page(self, application: Application) -> str:
        """The address of its own page, with the password in it."""
        folder = self.place.root / "cluster" / "applications" / application.id
        return str(application.tracking_url).replace(
            "http://", f"http://me:{master_files.read_tracking_secret(folder)}@"
        )

    def clear(self) -> None:
        """End Airflow and what its tasks have submitted, and remove all of it."""
        self.airflow.stop()
        for application in self.hook.live():
            self.hook.kill(application.id, "the pictures are taken")
        until(lambda: not self.hook.live(), lambda: f"the end of {self.hook.live()}")
        self.place.close()
        shutil.rmtree(self.home)

    def _lay_out(self) -> None:
        dags = self.home / "dags"
        dags.mkdir(parents=True)
        program, dag_file = blocks(REPOSITORY / "docs" / "get-started" / "tutorial.md", "python")
        (dags / "fit.py").write_text(program)
        (dags / "tutorial.py").write_text(dag_file)
        (dags / ".airflowignore").write_text("fit.py\n")

    def _known(self) -> set[str]:
        return {each["dag_id"] for each in self.rest.call("GET", "/dags", limit=100)["dags"]}

    def _bundles(self) -> list[dict[str, Any]]:
        folders = {"tutorial": self.home / "dags", "examples": REPOSITORY / "dags"}
        return [
            {"name": name, "classpath": LOCAL, "kwargs": {"path": str(path), "refresh_interval": 300}}
            for name, path in folders.items()
        ]
