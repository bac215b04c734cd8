"""Days of training, each from the model of the day before, whose rows are corrected afterwards."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import date, timedelta

import attrs

from tests.e2e.field import Field
from tests.e2e.row import row
from tests.e2e.runs import Backfill, Run, runs_of
from tests.e2e.training import applications
from tests.waiting import until
from tony_provider.cluster.training.identity import identity_of
from tony_provider.runtime.storage.base import Storage, read_bytes
from tony_provider.runtime.storage.uris import join

FIRST_DAY = date(2000, 1, 1)
FILES = 5  # of each day
REPEATS = "repeats_corrected"  # the DAG that repeats stale runs
BACKFILL_SECONDS = 1800.0


@row("stale-three", "3 dates in a chain of models; the rows of the second are corrected, and it is retrained")
def stale_three(field: Field) -> str:
    days = _Days(field, "corrected_few", 3)
    days.train()
    days.correct(1)
    return days.retrained(days.retrain)


@row("stale-scheduled", "2 dates in a chain of models; the rows of both are corrected, and a DAG retrains them")
def stale_scheduled(field: Field) -> str:
    days = _Days(field, "corrected_by_dag", 2)
    days.train()
    days.correct(0)
    days.correct(1)
    return days.retrained(days.retrain_by_dag)


@row(
    "stale-chain",
    "30 dates in a chain of models; files overwritten, rewritten with the same bytes, deleted, added, moved and moved "
    "back; the command that retrains is killed and repeated",
)
def stale_chain(field: Field) -> str:
    days = _Days(field, "corrected", 30)
    days.train()
    storage = days.storage
    days.write(5, 2, same=True)
    storage.rename(days.directory(8), f"{days.rows}/aside")
    storage.rename(f"{days.rows}/aside", days.directory(8))
    days.correct(14)
    storage.remove(days.file(17, 3))
    days.correct(20)
    days.write(23, FILES)
    return days.retrained(days.retrain_killed)


@attrs.define
class _Days:
    field: Field
    dag_id: str
    number: int
    _before: dict[int, str] = attrs.field(factory=dict)  # content of each day when the models were trained

    def __attrs_post_init__(self) -> None:
        for dag_id in (self.dag_id, self.whole):
            self.field.claim(dag_id)
        self.storage.remove(self.rows, recursive=True)
        for day in range(self.number):
            for file in range(FILES):
                self.write(day, file)
        self._before = {day: self._content(day) for day in range(self.number)}

    @property
    def whole(self) -> str:
        """The DAG of the same trainings, none of which was trained before the corrections."""
        return f"{self.dag_id}_whole"

    @property
    def storage(self) -> Storage:
        return self.field.hook.storage()

    @property
    def rows(self) -> str:
        return join(self.field.installation.rows, self.dag_id)

    @property
    def dates(self) -> list[str]:
        return [str(FIRST_DAY + timedelta(days=day)) for day in range(self.number)]

    def directory(self, day: int) -> str:
        return join(self.rows, self.dates[day])

    def file(self, day: int, number: int) -> str:
        return join(self.directory(day), f"part-{number}")

    def write(self, day: int, number: int, *, same: bool = True) -> None:
        text = f"rows {number} of {day}\n" if same else f"ROWS {number} of {day}\n"
        self.storage.write(self.file(day, number), text.encode(), overwrite=True)

    def correct(self, day: int) -> None:
        self.write(day, 1, same=False)

    def train(self, dag_id: str = "") -> None:
        Backfill.create(self.field.rest, dag_id or self.dag_id, self.dates, at_once=4, reprocess="failed").end(
            BACKFILL_SECONDS
        )

    def retrained(self, retrain: Callable[[], None]) -> str:
        """Compare the stale models with what the oracle says, retrain them, and compare with a whole retraining."""
        own = {day for day in range(self.number) if self._content(day) != self._before[day]}
        due = {self.dates[day] for day in range(min(own), self.number)}
        stale = self._stale()
        self.field.expect(
            {day for day, state in stale.items() if state == "stale"} == {self.dates[day] for day in own},
            f"stale by their own data: {stale}, and not {own}",
        )
        self.field.expect(stale.keys() == due, f"stale: {sorted(stale)}, and not {sorted(due)}")
        tries = self._applications()
        retrain()
        again = {day for day, number in self._applications().items() if number > tries[day]}
        self.field.expect(again == due, f"trained again: {sorted(again)}")
        self.field.expect(not self._stale(), f"stale after the retraining: {self._stale()}")
        self.train(self.whole)
        for run in self._runs(self.whole).values():
            self.field.training(run)
        for day, run in self._runs(self.dag_id).items():
            self.field.training(run).expected = self._applications()[day]
        part, whole = self._models(self.dag_id), self._models(self.whole)
        self.field.expect(part == whole, f"models of the part {part}, and of the whole {whole}")
        return f"{len(own)} stale and {len(due) - len(own)} by descent, retrained alone; same models as of all dates"

    def retrain(self) -> None:
        done = self._command("--retrain")
        self.field.expect(done.returncode == 0, f"--retrain: {done.stdout}{done.stderr}")

    def retrain_killed(self) -> None:
        """Kill the command when the first date is trained again, and repeat the command."""
        before, due = self._applications(), len(self._stale())
        process = subprocess.Popen(self._words("--retrain"), env=self._environment())
        until(lambda: self._applications() != before, "a date to be trained again", 300.0)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.field.expect(len(self._stale()) <= due, "more stale models than before")
        self.retrain()

    def retrain_by_dag(self) -> None:
        """Run the DAG that repeats stale runs until it finds none."""
        self.field.claim(REPEATS)
        for due in range(self.number, -1, -1):
            self.field.expect(len(self._stale()) == due, f"{len(self._stale())} stale models, and not {due}")
            run = self.field.trigger(self.field.run(REPEATS))
            self.field.expect(run.end(BACKFILL_SECONDS) == "success", f"{REPEATS}: {run.describe()}")

    def _stale(self) -> dict[str, str]:
        done = self._command("--output", "json")
        self.field.expect(done.returncode == 0, f"stale: {done.stderr}")
        return {_day(each["run_id"]): each["state"] for each in json.loads(done.stdout)}

    def _command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._words(*words), env=self._environment(), capture_output=True, text=True, timeout=1800, check=False
        )

    def _words(self, *words: str) -> list[str]:
        api = ["--api-url", self.field.airflow.url] if "--retrain" in words else []
        return [sys.executable, "-m", "tony_provider.cli", "stale", "--dag-id", self.dag_id, *words, *api]

    def _environment(self) -> dict[str, str]:
        return {**self.field.airflow.variables, "AIRFLOW_CLI_TOKEN": self.field.rest.token}

    def _content(self, day: int) -> str:
        """A hash of the names and the bytes of a day's files."""
        files = sorted(each.path for each in self.storage.list(self.directory(day)))
        return hashlib.sha256(b"".join(each.encode() + read_bytes(self.storage, each) for each in files)).hexdigest()

    def _runs(self, dag_id: str) -> dict[str, Run]:
        return {_day(run.run_id): run for run in runs_of(self.field.rest, dag_id)}

    def _applications(self) -> dict[str, int]:
        installation, found = self.field.installation, {}
        for day, run in self._runs(self.dag_id).items():
            training = identity_of(namespace=installation.name, dag_id=run.dag_id, run_id=run.run_id, task_id="train")
            found[day] = len(applications(installation.place, training.tag))
        return found

    def _models(self, dag_id: str) -> dict[str, str]:
        return {
            day: read_bytes(self.storage, join(run.task("train").xcom("model_dir"), "weights.txt")).decode()
            for day, run in self._runs(dag_id).items()
        }


def _day(run_id: str) -> str:
    """Return the date in the ID of a run that a backfill made."""
    return run_id.partition("__")[2][:10]
