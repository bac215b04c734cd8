"""A whole Airflow on loopback: api-server, scheduler, triggerer and dag-processor, each a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.demo.airflow import settings
from tests.e2e.database import Database, DatabaseError
from tests.e2e.rest import Rest
from tests.hadoop.ports import free_ports
from tests.hadoop.processes import Process, spawn, stop
from tests.jobs.processes import below, every_process
from tests.waiting import until

HOST = "127.0.0.1"
COMMANDS = {
    "api-server": ["api-server"],
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
    "dag-processor": ["dag-processor"],
}
START_SECONDS = 180.0  # on a machine that is busy
STOP_SECONDS = 20.0
MIGRATE_SECONDS = 300.0
# A task whose supervisor is silent for this time is lost; by default 300 s. On a slow and busy machine, heartbeats
# came 20 s late, and Airflow killed the tasks of rows that expect no failure.
HEARTBEAT_TIMEOUT = 60
# A triggerer or scheduler that is silent for this time has died; by default 30 s.
HEALTH_SECONDS = 40
PARALLELISM = 6
KEPT = "airflow.json"  # of one that is to stay up: its ports, processes and database


class AirflowError(Exception):
    """It does not run; the message says what is known."""


@dataclass
class Airflow:
    """One installation, all of it below ``home``: database, configuration, logs.

    ``bundles``: the DAG bundles, as ``[dag_processor] dag_bundle_config_list`` has them; ``connection``: what
    ``tony_default`` is, by the names of Airflow's JSON form; ``environment``: further variables of its processes;
    ``login``: as whom its REST interface is asked, where not everybody is an administrator.
    """

    home: Path
    bundles: list[dict[str, Any]]
    connection: dict[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    login: tuple[str, str] | None = None
    port: int = 0
    database: Database | None = None
    processes: dict[str, Process] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def rest(self) -> Rest:
        return Rest(self.url, self.login)

    @property
    def logs(self) -> Path:
        """Of its processes and, below ``tasks``, of the tasks."""
        return self.home / "logs"

    @property
    def variables(self) -> dict[str, str]:
        """Environment of everything that belongs to it."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "_AIRFLOW"))}
        dags = self.home / "no-dags"  # the bundles name their own folders
        return {**inherited, **settings(self.home, dags), **self._settings(), **self.environment}

    def _settings(self) -> dict[str, str]:
        values: dict[str, Any] = {
            "core__executor": "LocalExecutor",
            "core__parallelism": PARALLELISM,
            "core__execution_api_server_url": f"{self.url}/execution/",
            "core__simple_auth_manager_all_admins": True,
            "core__fernet_key": "",
            "core__min_serialized_dag_update_interval": 1,
            "api__host": HOST,
            "api__port": self.port,
            "api__base_url": self.url,
            "api__workers": 1,
            "api__enable_xcom_deserialize_support": True,  # without it, 3.0 deserializes no XCom
            "api__secret_key": "of no secret worth",
            "api_auth__jwt_secret": "a test's own, long enough for the signature: 0123456789abcdef0123456789abcdef",
            "database__sql_alchemy_conn": self._database.url,
            "dag_processor__dag_bundle_storage_path": self.home / "bundles",  # by default below /tmp, for all to meet
            "dag_processor__dag_bundle_config_list": json.dumps(self.bundles),
            "dag_processor__min_file_process_interval": 300,  # what has changed is parsed at once
            "dag_processor__bundle_refresh_check_interval": 2,
            "dag_processor__refresh_interval": 5,
            "dag_processor__parsing_processes": 1,
            "dag_processor__stale_dag_threshold": 3600,  # 3.0 has called DAGs missing that are there
            "logging__base_log_folder": self.logs / "tasks",
            "scheduler__task_instance_heartbeat_sec": 2,
            "scheduler__task_instance_heartbeat_timeout": HEARTBEAT_TIMEOUT,
            "scheduler__task_instance_heartbeat_timeout_detection_interval": 2,
            "scheduler__scheduler_health_check_threshold": HEALTH_SECONDS,
            "scheduler__orphaned_tasks_check_interval": 10,
            "triggerer__triggerer_health_check_threshold": HEALTH_SECONDS,
            "usage_data_collection__enabled": False,
            # So often a supervisor looks whether its task's process has ended, and so long deferrals last at least.
            "workers__min_heartbeat_interval": 1,
            # On a busy machine the api-server's first answers take longer than the 5 s that tasks wait by default.
            "workers__execution_api_timeout": 60,
        }
        own = {f"AIRFLOW__{name.upper()}": str(value) for name, value in values.items()}
        return {**own, "AIRFLOW_CONN_TONY_DEFAULT": json.dumps(self.connection), "NO_PROXY": "*", "no_proxy": "*"}

    # -- its processes -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Bring it up and wait until all four are healthy; one that was left running is used. Raises AirflowError."""
        self.logs.mkdir(parents=True, exist_ok=True)
        if self._left_running():
            return
        self.port = free_ports(1)[0]
        try:
            self.database = self._create_database()
            self._migrate()
            for name in COMMANDS:
                self._spawn(name)
            self.wait_healthy()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all of it: those that were started by processes that are gone, too."""
        stop(self.processes.values(), STOP_SECONDS)
        stop(self.everyone(), 5)
        self.processes.clear()
        if self.database is not None:
            self.database.remove()
            self.database = None
        (self.home / KEPT).unlink(missing_ok=True)

    def everyone(self) -> list[Process]:
        """Every process that belongs to it, tasks included; what its tasks have submitted is elsewhere.

        Known by their folder, since those that give themselves a title write it over their environment.
        """
        seen = [each.pid for each in every_process().values() if Path(each.folder) == self.home]
        return [process for pid in seen if (process := Process.of(pid)) is not None]

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """One of the four, and wait for its end."""
        self.processes[name].signal(number)
        if not self.processes[name].wait_gone(time.monotonic() + STOP_SECONDS):
            raise AirflowError(f"the {name} did not end within {STOP_SECONDS:g} s of {number.name}")

    def begin_again(self, name: str) -> None:
        """Start one of the four that has ended; returns when it is healthy."""
        self._spawn(name)
        self.wait_healthy()

    def wait_healthy(self) -> None:
        def look() -> bool:
            for name, process in self.processes.items():
                if not process.alive():
                    raise AirflowError(f"the {name} has ended:\n{self.tail(name)}")
            return not self.rest.unhealthy()

        until(
            look, lambda: f"Airflow to be healthy; not so are {self.rest.unhealthy()}, see {self.logs}", START_SECONDS
        )

    def strays(self) -> list[Process]:
        """Those that one of the four has left behind when it was killed."""
        mine = self.everyone()
        everyone = every_process()  # after that: a process that has just begun has its parents there
        roots = [os.getpid(), *(process.pid for process in self.processes.values())]
        minded = {*roots}.union(*(below(pid, everyone) for pid in roots))
        return [process for process in mine if process.pid not in minded]

    def mend(self) -> None:
        """Have all four back, and no others."""
        stop(self.strays(), STOP_SECONDS)
        for name, process in self.processes.items():
            process.signal(signal.SIGCONT)
            if not process.alive():
                self._spawn(name)
        self.wait_healthy()

    def command(self, *words: str, seconds: float = 120.0, **variables: str) -> subprocess.CompletedProcess[str]:
        """Airflow's command line, in a process of its own beside the four."""
        return subprocess.run(
            [sys.executable, "-m", "airflow", *words],
            cwd=self.home,
            env={**self.variables, **variables},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def _spawn(self, name: str) -> None:
        command = [sys.executable, "-m", "airflow", *COMMANDS[name]]
        self.processes[name] = spawn(command, log=self.logs / f"{name}.log", cwd=self.home, env=self.variables)
        kept = {
            "port": self.port,
            "processes": {name: asdict(process) for name, process in self.processes.items()},
            "database": self._database.facts(),
        }
        (self.home / KEPT).write_text(json.dumps(kept))

    @property
    def _database(self) -> Database:
        if self.database is None:
            raise AirflowError("it has not been started")
        return self.database

    def _create_database(self) -> Database:
        try:
            return Database.create()
        except DatabaseError as error:
            raise AirflowError(str(error)) from error

    def _migrate(self) -> None:
        done = self.command("db", "migrate", seconds=MIGRATE_SECONDS)
        if done.returncode != 0:
            raise AirflowError(f"airflow db migrate failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")

    def _left_running(self) -> bool:
        try:
            kept = json.loads((self.home / KEPT).read_text())
        except FileNotFoundError:
            return False
        self.port = kept["port"]
        self.processes = {name: Process(**facts) for name, facts in kept["processes"].items()}
        self.database = Database.of(kept["database"])
        if all(process.alive() for process in (*self.processes.values(), self.database.process)):
            return True
        self.stop()
        return False

    def tail(self, name: str, lines: int = 30) -> str:
        """The end of what one of the four has written."""
        return "\n".join((self.logs / f"{name}.log").read_text(errors="replace").splitlines()[-lines:])
