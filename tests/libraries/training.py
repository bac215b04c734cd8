"""One row: the training undisturbed, then the same one killed in a save, between saves, and with its whole try."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np

from tests.faults.airflow_task import RUN_ID, TASK
from tests.faults.tries import Try, begin_try
from tests.faults.weights import Weights, difference
from tests.jobs.job import Job
from tests.jobs.places import LocalPlace
from tests.jobs.processes import processes_of
from tests.libraries.commits import Commit, Commits
from tests.libraries.environment import PINS, environment
from tests.libraries.events import Event, Events
from tests.libraries.row import MOMENTS, Row
from tests.waiting import settled, until

T = TypeVar("T")

SECONDS = 180.0  # limit for a start, a save or a commit on a busy machine
HOLD = 7.0  # seconds between the middle of a save and the kill, longer than the quiet time


@dataclass
class RowField:
    """The embedded local cluster of one row, and everything that the row starts there."""

    row: Row
    folder: Path
    references: Path  # weights of undisturbed runs, kept for as long as the programs are the same
    problems: list[str] = field(default_factory=list)
    job: Job | None = None  # the newest one
    attempt: Try | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.place = LocalPlace(root=self.folder / "tony")

    # ---- a row's course ------------------------------------------------------------------------------------------

    def run(self) -> str:
        """Run the row. Return what happened to the training."""
        expected = self._undisturbed()
        moments = self._new_moments("disturbed")
        row = self.row
        waits = [*map(str, row.saves[:3]), f"{row.saves[3]}{row.last}"]
        pause = {"rank": row.paused_rank, "step": row.paused_save or row.saves[1], "piece": row.piece, "slow": row.slow}
        (moments / "plan.json").write_text(json.dumps({**pause, "waits": waits}))
        training = Training(self, moments)
        told = training.run()
        weights = _load(moments)
        by = difference(weights, expected)
        if by > row.tolerance:
            self.problems.append(f"its final weights differ by {by:g} from those of an undisturbed run")
        return told

    def _undisturbed(self) -> Weights:
        """Return the final weights of a run that nothing disturbs."""
        kept = self.references / f"{self.row.name}-{self._fingerprint()}.json"
        if not kept.exists():
            moments = self._new_moments("undisturbed")
            self.job = self.place.submit(self.spec(moments))
            self.job.end(4 * SECONDS)
            self.job.succeeded()
            _load(moments)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(moments / "weights.json", kept)
        return _weights(kept)

    def _fingerprint(self) -> str:
        digest = hashlib.sha256(PINS.read_bytes() + MOMENTS.read_bytes() + self.row.path.read_bytes())
        digest.update(repr(self.row).encode())
        return digest.hexdigest()[:16]

    def _new_moments(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir()
        return folder

    def spec(self, moments: Path) -> dict[str, Any]:
        """The job as a user of the library writes it."""
        row, python = self.row, environment()
        command = row.command.format(program=row.path.name) + (f" {row.arguments}" if row.arguments else "")
        return {
            "framework": row.framework,
            "am": {"memory": "256MiB", "attempts": 1},
            "python_env": str(python),
            "files": [str(row.path), str(MOMENTS)],
            # Nodes hold files as links: to Python a script lies elsewhere than the modules next to it.
            "env": {
                "LIBRARIES_DIR": str(moments),
                "PYTHONPATH": ".",
                "OMP_NUM_THREADS": "1",
                "TORCH_EXTENSIONS_DIR": str(python / "torch-extensions"),  # DeepSpeed compiles one, for minutes
                **row.environment,
            },
            "tasks": {"worker": {"instances": row.instances, "memory": row.memory, "command": command}},
            **row.job,
        }

    # ---- for run_row ---------------------------------------------------------------------------------------------

    def conclude(self) -> None:
        """Do nothing: ``run`` has already checked everything."""

    def report(self) -> str:
        """Return what is known of the row's training."""
        parts = [self.job.describe()] if self.job is not None else []
        return "\n\n".join([*parts, *([self.attempt.said()] if self.attempt is not None else [])])

    def mend(self) -> None:
        """End what the row has left running, and remove what only takes space."""
        if self.attempt is not None:
            self.attempt.kill()
        if self.job is not None and not self.job.application().is_final:
            self.job.hook.kill(self.job.id, "its row is over")
            self.job.end()
        self.place.close()
        if not self.problems:
            shutil.rmtree(self.folder / "tony")


@dataclass
class Training:
    """The disturbed training: one Airflow task with one retry."""

    row_field: RowField
    moments: Path
    resumed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.row = self.row_field.row
        self.events = Events(self.moments, alone=self.row.framework == "standalone")
        hook = self.row_field.place.hook()
        dag_id = f"libraries_{uuid4().hex[:12]}"
        identity = hook.identity(dag_id=dag_id, run_id=RUN_ID, task_id=TASK)
        self.commits = Commits(hook.storage(), hook.layout.chain_dir(identity, 1), self.row.instances)
        self.attempt = self.row_field.attempt = begin_try(
            self.moments / "airflow",
            dag_id,
            self.row_field.spec(self.moments),
            self.row_field.place.connection,
            retries=1,
        )
        self._job: Callable[[str], Job] = lambda id: Job(hook, identity, id, self.row_field.place.log_folders)

    def run(self) -> str:
        """Disturb the training until its end. Return what happened to it.

        The first save is stored. A process is killed in the middle of the second one, and another process after the
        third one is stored. After the fourth one is stored, the application is killed, and Airflow starts the retry.
        """
        first, second, third, fourth = self.row.saves
        life = self._until_life(1, 0)
        self._until_committed(first)
        self._release(first)
        paused = self._until(lambda: next(iter(self.events.all("paused")), None), "a save to pause")
        time.sleep(HOLD)
        os.kill(paused.pid, signal.SIGKILL)
        life = self._until_life(2, first)
        self._until_committed(second)
        self._release(second)
        if self.row.refused:
            self._until_refused(third)
            newest, newer, name = second, third, ""
        else:
            self._until_committed(third)
            newest, newer, name = third, fourth, self.row.last
        os.kill(life[self.row.instances - 1].pid, signal.SIGKILL)
        self._until_life(3, newest)
        self._release(newest)
        self._until_committed(newer, name)
        self._fail_try()
        self._until_life(4, newer)
        (self.moments / "free").touch()
        self._end()
        return f"resumed from {', '.join(map(str, self.resumed))}"

    # ---- what is waited for --------------------------------------------------------------------------------------

    def _until_life(self, number: int, step: int) -> dict[int, Event]:
        """Wait until all ranks have begun for this time. They must have the files of this save; step 0: none."""

        def find() -> dict[int, Event] | None:
            lives = [life for life in self.events.lives() if len(life) == self.row.instances]
            return lives[number - 1] if len(lives) >= number else None

        life = self._until(find, f"start {number} of the processes")
        self.row_field.job = self._job(life[0].application)
        if number > 1:
            self.resumed.append(life[0].step)
        for rank, event in life.items():
            if event.step != step:
                self._problem(f"rank {rank} resumed from {event.step} instead of {step}")
        self._compare_files(life, step)
        return life

    def _compare_files(self, life: dict[int, Event], step: int) -> None:
        """The directories must be those of the newest report about this save, without other tasks' obsolete files."""
        began = min(event.at for event in life.values())
        before = [save for save in self.events.saves() if _event(save).step == step and _event(save).at < began]
        save = before[-1] if before else {}
        everything = {item for event in save.values() for item in event.files.items()}
        for rank, event in life.items():
            own = self.events.own(save[rank], save[0]) if save else {}
            lost = [path for path, digest in own.items() if event.files.get(path) != digest]
            added = [path for path, digest in event.files.items() if (path, digest) not in everything]
            if lost or added:
                self._problem(f"rank {rank} resumed from {event.step} without {lost}, and with {added}")
            if [path for path in event.files if path in own] != [path for path in own if path in event.files]:
                self._problem(f"rank {rank} resumed from {event.step} with another order of modification times")

    def _until_committed(self, step: int, name: str = "") -> None:
        """Wait until the storage has the save of this step whole."""

        def find() -> Commit | None:
            saves = [save for save in self._whole_saves() if _event(save).step == step and _event(save).name == name]
            commits = self.commits.observe()
            if not saves or not commits:
                return None
            return commits[-1] if not commits[-1].differences(saves[-1], self.events) else None

        self._until(find, f"save {step} to be committed")

    def _until_refused(self, step: int) -> None:
        """Wait for the job's event with the reason why the save of this step is not stored, and the remedy."""

        def find() -> bool:
            assert self.row_field.job is not None
            return any(self.row.refused in event["message"] for event in self.row_field.job.events())

        self._until(find, f"the job to explain why save {step} is not stored")

    def _release(self, step: int) -> None:
        (self.moments / f"release-{step}").touch()

    def _fail_try(self) -> None:
        """Kill the application master, which may not start again, so that the try fails."""
        assert self.row_field.job is not None
        os.kill(self.row_field.job.master().pid, signal.SIGKILL)

    def _until(self, look: Callable[[], T | None], what: str) -> T:
        """Return the first true answer of ``look``, which must come before Airflow's task ends."""

        def look_while_it_runs() -> T | None:
            self.commits.observe()
            if (found := look()) or self.attempt.process.poll() is None:
                return found
            raise AssertionError(f"the Airflow task ended before {what}: {self.attempt.said()[-3000:]}")

        return until(look_while_it_runs, lambda: f"{what}\n{self.row_field.report()}", SECONDS)

    # ---- its end -------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Wait for the end, and check everything that must hold for the whole training."""
        until(lambda: self.commits.observe() and self.attempt.process.poll() is not None, "the end", SECONDS)
        told = self.attempt.result()
        if told["state"] != "success":
            self._problem(f"the Airflow task failed: {told['error']}")
        if len(self.events.lives()) != 4:
            self._problem(f"the processes started {len(self.events.lives())} times instead of 4 times")
        if self.row.refused not in self.attempt.said():
            self._problem("the log of the Airflow task does not explain why saves were not stored")
        for commit in self.commits.observe():
            self._check(commit)
        for application in {event.application for event in self.events.all()}:
            if left := settled(lambda application=application: processes_of(application)):  # type: ignore[misc]
                self._problem(f"processes are left: {[process.words[:80] for process in left]}")

    def _check(self, commit: Commit) -> None:
        """A committed checkpoint must be one of the saves that the program has reported, the same one in all ranks."""
        found = (commit.differences(save, self.events) for save in self._whole_saves())
        nearest = min(found, key=len, default=["nothing was saved"])
        if nearest:
            self._problem(f"{commit.uri.rpartition('/')[2]} (step {commit.step}) is no save of the program: {nearest}")

    def _whole_saves(self) -> list[dict[int, Event]]:
        """Return the saves that every rank has reported."""
        return [save for save in self.events.saves() if len(save) == self.row.instances]

    def _problem(self, text: str) -> None:
        self.row_field.problems.append(text)


def _event(save: dict[int, Event]) -> Event:
    return next(iter(save.values()))


def _load(moments: Path) -> Weights:
    assert (moments / "weights.json").exists(), "the program left no weights"
    return _weights(moments / "weights.json")


def _weights(path: Path) -> Weights:
    return {name: np.array(value) for name, value in json.loads(path.read_text()).items()}
