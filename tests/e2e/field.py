"""Where a row runs: the Airflow and the cluster that all rows share, and what it has started there."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.airflow import Airflow
from tests.e2e.browser import Browser
from tests.e2e.installation import Installation
from tests.e2e.links import wrong_links
from tests.e2e.rest import Rest, RestError
from tests.e2e.runs import Run, TaskInstance
from tests.e2e.training import Training, applications, has_ended
from tests.faults.entries import Diary
from tests.waiting import until
from tony_provider.cluster.training.identity import identity_of
from tony_provider.hooks.tony import TonyHook


@dataclass
class Field:
    """``beside``: other rows run at the same time. A process that one of them has left alone is no stray yet."""

    installation: Installation
    folder: Path  # for screenshots and reports
    beside: bool = False
    problems: list[str] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    trainings: list[Training] = field(default_factory=list)
    _hook: TonyHook | None = None
    _last_acts: list[Callable[[], None]] = field(default_factory=list)
    _before: set[str] = field(default_factory=set)  # applications that were there before the row
    _claimed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)  # what an earlier run has left would mislead
        self.folder.mkdir(parents=True)
        self._before = {each["id"] for each in self._all_applications()}

    @property
    def airflow(self) -> Airflow:
        return self.installation.airflow

    @property
    def rest(self) -> Rest:
        return self.airflow.rest

    @property
    def hook(self) -> TonyHook:
        """For looking at the cluster as users do."""
        if self._hook is None:
            self._hook = self.installation.place.hook()
        return self._hook

    def expect(self, holds: bool, otherwise: str) -> None:
        """Something that must hold; the row goes on in any case."""
        if not holds:
            self.problems.append(otherwise)

    def at_end(self, act: Callable[[], None]) -> None:
        """Do this when the row is over, however it ends."""
        self._last_acts.append(act)

    # -- runs and trainings ------------------------------------------------------------------------------------------

    def run(self, dag_id: str, run_id: str = "") -> Run:
        """A run that was, or will be, started by somebody else."""
        run = Run(self.rest, dag_id, run_id or f"row_{uuid.uuid4().hex[:8]}")
        self.runs.append(run)
        return run

    def trigger(self, run: Run, **conf: Any) -> Run:
        body = {"dag_run_id": run.run_id, "logical_date": None, "conf": conf}
        self.rest.call("POST", f"/dags/{run.dag_id}/dagRuns", body)
        return run

    def training(
        self,
        run: Run,
        task_id: str = "train",
        map_index: int = -1,
        *,
        key: str | None = None,
        applications: int = 1,
        pace: float | None = None,
    ) -> Training:
        """What a task of a run is to train. ``key``: its checkpoint_key; ``pace``: seconds a step, until it hurries."""
        suffix = "" if map_index < 0 else str(map_index)
        directory = self.installation.diaries / run.dag_id / run.run_id / f"{task_id}{suffix}"
        directory.mkdir(parents=True, exist_ok=True)
        identity = identity_of(
            namespace=self.installation.name,
            dag_id=run.dag_id,
            run_id=run.run_id,
            task_id=task_id,
            map_index=map_index,
            checkpoint_key=key,
        )
        self.installation.meant.add(identity.tag)
        task = TaskInstance(run, task_id, map_index)
        training = Training(task, self.installation.place, self.hook, identity, Diary(directory), applications)
        if pace is not None:
            training.dawdle(pace)
        self.trainings.append(training)
        return training

    def claim(self, dag_id: str) -> None:
        """Runs of this DAG are the row's, though it will only know them when they are over."""
        self.installation.claimed.append(dag_id)
        self._claimed.append(dag_id)

    def one(self, dag_id: str, *, pace: float | None = 0.3, applications: int = 1, **conf: Any) -> Training:
        """Trigger a DAG of one training."""
        training = self.training(self.run(dag_id), applications=applications, pace=pace)
        self.trigger(training.task.run, **conf)
        return training

    def browser(self) -> Browser:
        browser = Browser(self.airflow.url, self.folder)
        self.at_end(browser.close)
        return browser

    # -- afterwards --------------------------------------------------------------------------------------------------

    def conclude(self) -> None:
        """What holds for all rows: the applications that were meant, no others, nothing left of them, right links."""
        for name, process in self.airflow.processes.items():
            self.expect(process.alive(), f"Airflow's {name} has died: {self.airflow.tail(name, 3)}")
        for training in self.trainings:
            self.problems += training.left()
            self.problems += wrong_links(training)
        self._release()
        others = [f"{each['id']} ({each['name']})" for each in self._unmeant()]
        self.expect(not others, f"applications that nobody has asked for: {others}")

    def report(self) -> str:
        """What is known of its runs, and of Airflow, for who looks into a failure."""
        lines = [f"not healthy: {', '.join(self.rest.unhealthy()) or 'none'}"]
        lines += [f"== {name}\n{self.airflow.tail(name)}" for name in self.airflow.processes]
        for training in self.trainings:
            task = training.task
            lines += [f"== {task.run.dag_id} {task.run.run_id} {task.task_id}[{task.map_index}]", str(task.facts())]
            lines += [str(each) for each in training.applications()]
            for number in range(1, task.try_number + 1):
                try:
                    lines += [f"-- log of try {number}", task.log(number)]
                except RestError as error:
                    lines.append(str(error))  # of a try that never came to run
        return "\n".join(lines)

    def mend(self) -> None:
        """Have Airflow whole, and nothing of this row going on."""
        for act in self._last_acts:
            act()
        self._release()
        if not self.beside:
            self.airflow.mend()
        for training in self.trainings:
            training.hurry()
        for run in self.runs:
            run.fail()
            until(lambda run=run: not run.processes(), f"the processes of {run} to end")  # type: ignore[misc]
        mine = [each for training in self.trainings for each in training.applications()]
        for each in [*mine, *self._unmeant()]:
            if not has_ended(each):
                self.hook.kill(each["id"], "its row is over")
        if self._hook is not None:
            self._hook.close()
            self._hook = None

    def _release(self) -> None:
        while self._claimed:
            self.installation.claimed.remove(self._claimed.pop())

    def _unmeant(self) -> list[dict[str, Any]]:
        """Applications, since the row began, of no training of any row: rows may run side by side."""
        new = [each for each in self._all_applications() if each["id"] not in self._before]
        meant, claimed = self.installation.meant, tuple(f"{dag_id}." for dag_id in self.installation.claimed)
        return [
            each
            for each in new
            if not meant & set(each["applicationTags"].split(",")) and not each["name"].startswith(claimed)
        ]

    def _all_applications(self) -> list[dict[str, Any]]:
        return applications(self.installation.place, self.installation.name)
