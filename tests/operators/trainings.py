"""One task that is tried again and again, as Airflow does it: what its training's chains are, and what was said."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.models import TaskInstance
from airflow.models.task_state_store import TaskStateStoreModel
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from sqlalchemy import delete, select

from tests.airflow_dags import Run, run, run_again
from tests.checkpoints import commit
from tests.operators import dying
from tests.operators.jobs import DAG_ID, applications, dag_of, job
from tony_provider.cluster.training.checkpoint_chains import ChainState, CheckpointChains
from tony_provider.cluster.training.identity import Identity, chain_number
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.runtime.application import ApplicationDescription

MORNING = datetime(2026, 1, 5, 6, tzinfo=UTC)
DATES = {"logical_date": MORNING, "run_after": MORNING}
RUN_ID = f"manual__{MORNING.isoformat()}"
ONCE = {"restart": {"budget": 0}}  # the job itself does not start anything again


class Telling(TonyTrainOperator):
    """Its log is one that pytest captures; Airflow's own goes to where standard output was when it was imported."""

    @property
    def log(self) -> Any:
        return logging.getLogger("tony_provider.operators")


@dataclass
class Training:
    """The task ``train`` of one run. ``again`` is what a cleared task does: Airflow's tries of it count anew."""

    hook: TonyHook
    folder: Path  # of the test's own
    capture: pytest.LogCaptureFixture
    described: dict[str, ApplicationDescription]  # of each submitted application, by its id
    log: str = field(default="", init=False)  # of the last run

    @property
    def mended(self) -> Path:
        """A file; the command of ``spec`` fails while it is not there."""
        return self.folder / "mended"

    def spec(self, command: str = "", **more: Any) -> dict[str, Any]:
        return job(f"{command}\ntest -e {self.mended} || exit 3", **{**ONCE, **more})

    def again(
        self,
        spec: Mapping[str, Any] | None = None,
        operator: type[TonyTrainOperator] = Telling,
        **arguments: Any,
    ) -> Run:
        self.capture.clear()
        with dag_of(spec or self.spec(), operator, **arguments) as dag:
            done = run(dag, **DATES)
        self.log = self.capture.text
        return done

    def cleared(self, state: TaskInstanceState, spec: Mapping[str, Any], **arguments: Any) -> Run:
        """A user clears the task, which Airflow calls ``state``: a next try of the same run."""
        with create_session() as session:
            mine = select(TaskInstance).where(TaskInstance.dag_id == DAG_ID, TaskInstance.run_id == RUN_ID)
            session.scalars(mine).one().state = state
        self.capture.clear()
        with dag_of(spec, Telling, **arguments) as dag:
            done = run_again(dag, RUN_ID, ["train"])
        self.log = self.capture.text
        return done

    def lose_state(self) -> None:
        """Delete the task's state in Airflow's database, as versions after 3.3 do when the task is cleared."""
        mine = TaskStateStoreModel.dag_id == DAG_ID, TaskStateStoreModel.run_id == RUN_ID
        with create_session() as session:
            session.execute(delete(TaskStateStoreModel).where(*mine))

    def retried(self, between: Callable[[], None], spec: Mapping[str, Any] | None = None, **arguments: Any) -> Run:
        """Two tries of one task, and what happens between them."""
        retry = {"retries": 1, "retry_delay": timedelta(0), "on_retry_callback": lambda _: between()}
        return self.again(spec, **{**retry, **arguments})

    def dies(self, where: str, spec: Mapping[str, Any] | None = None, **arguments: Any) -> None:
        """A try whose worker is killed with SIGKILL at one of the points that ``dying`` knows."""
        dying.run_and_die(where, spec or self.spec(), **arguments)

    @property
    def is_local(self) -> bool:
        return self.hook.layout.root.startswith("file://")

    @property
    def identity(self) -> Identity:
        return self.hook.identity(dag_id=DAG_ID, run_id=RUN_ID, task_id="train")

    @property
    def applications(self) -> list[str]:
        return applications(self.hook)

    @property
    def chains(self) -> list[str]:
        directory = self.hook.layout.job_dir(self.identity)
        found = self.hook.storage().list(directory)
        return [file.name for file in found if chain_number(file.name) is not None]

    @property
    def newest(self) -> ChainState:
        found = CheckpointChains(self.hook.storage(), self.hook.layout, self.identity).newest()
        assert found is not None
        return found

    def save(self, step: int) -> None:
        """A committed checkpoint, in the newest chain."""
        commit(self.hook.storage(), self.newest.uri, step)

    def description(self, done: Run) -> ApplicationDescription:
        """What the application of a successful run was told."""
        return self.described[done.results["train"]["application_id"]]

    def said(self, pattern: str) -> bool:
        return re.search(pattern, self.log) is not None
