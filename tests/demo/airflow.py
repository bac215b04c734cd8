"""An Airflow of the demonstration's own, in a folder of this repository: no server, one DAG run after the other."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
DAG = "digits_train"
# What of Airflow's log is about the job, for people who watch.
_TOLD = re.compile(r"\[info\s*\] (?P<text>.*?)\s*\[(airflow\.task\.(operators|hooks)\.)?tony_provider")

# Parts of it that are of no use after the demonstration: its connection, and perhaps its cluster, are gone.
_GONE = re.compile(r" ?(Full output|Details of the advice|Page): (airflow tony|https?:).*")


class DemoFailed(Exception):
    """What was to be shown did not happen; the message says what did."""


def settings(home: Path, dags: Path) -> dict[str, str]:
    """Environment of an Airflow that lives in ``home``, with no examples but those in ``dags``."""
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
    }


@dataclass(frozen=True)
class Airflow:
    """``connection``: what ``tony_default`` is, by the names of Airflow's JSON form."""

    home: Path
    connection: dict[str, Any]

    @property
    def environment(self) -> dict[str, str]:
        own = settings(self.home, REPOSITORY / "dags")
        # Airflow's processes have the DAGs' folder on the import path; its command line only from 3.1 on.
        path = os.pathsep.join(filter(None, (str(REPOSITORY / "dags"), os.environ.get("PYTHONPATH"))))
        return {**os.environ, **own, "PYTHONPATH": path, "AIRFLOW_CONN_TONY_DEFAULT": json.dumps(self.connection)}

    def command(self, *words: str) -> str:
        """A command line for this Airflow, which works in any shell."""
        names = ("AIRFLOW_HOME", "AIRFLOW_CONN_TONY_DEFAULT")
        variables = [f"{name}={shlex.quote(self.environment[name])}" for name in names]
        return " ".join([*variables, sys.executable, "-m", "airflow", *words])

    def migrate(self) -> None:
        """Make the database. Raises DemoFailed."""
        from tony_provider.compat import is_at_least  # here: it imports Airflow

        self.home.mkdir(parents=True, exist_ok=True)
        self._prepare("migrate", "db", "migrate")
        if not is_at_least(3, 1):  # there `dags test` wants to find the DAG's assets in the database
            self._prepare("reserialize", "dags", "reserialize")

    def _prepare(self, name: str, *words: str) -> None:
        log = self.home / f"{name}.log"
        with log.open("w") as output:
            done = subprocess.run(
                [sys.executable, "-m", "airflow", *words],
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode != 0:
            raise DemoFailed(f"Airflow's database could not be made:\n{_tail(log)}")

    def run_dag(self) -> None:
        """Run the DAG once, with all its tasks in one process. Raises DemoFailed when it does not succeed."""
        log = self.home / f"{DAG}.log"
        command = [sys.executable, "-m", "airflow", "dags", "test", DAG]
        with (
            log.open("w") as output,
            subprocess.Popen(
                command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            ) as process,
        ):
            assert process.stdout is not None
            for line in process.stdout:
                output.write(line)
                if (told := _TOLD.search(line)) and (text := _GONE.sub("", told["text"])):
                    print(f"  {text}", flush=True)
        if process.returncode != 0:
            raise DemoFailed(f"the DAG {DAG} failed; {log} ends with:\n{_tail(log)}")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-60:])
