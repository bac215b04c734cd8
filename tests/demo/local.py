"""The example on the embedded local cluster: Python and nothing else."""

from __future__ import annotations

from pathlib import Path

from tests.demo.airflow import REPOSITORY, Airflow, DemoFailed
from tests.demo.published import MINIMUM_ACCURACY, Published
from tests.demo.turn import turn
from tony_provider.runtime.storage.local import LocalStorage

HOME = REPOSITORY / ".tony" / "demo"


def run(home: Path = HOME) -> None:
    """Raises DemoFailed."""
    with turn(home):
        _run(home)


def _run(home: Path) -> None:
    staging_dir = home / "jobs"
    airflow = Airflow(
        home / "airflow", {"conn_type": "tony", "extra": {"backend": "local", "staging_dir": str(staging_dir)}}
    )
    print(f"Airflow lives in {airflow.home}; making its database …", flush=True)
    airflow.migrate()
    print("Running the DAG digits_train on the embedded local cluster …", flush=True)
    airflow.run_dag()
    with LocalStorage() as storage:
        published = Published.current(storage, str(staging_dir))
    print(published)
    if published.accuracy < MINIMUM_ACCURACY:
        raise DemoFailed(f"the accuracy is below {MINIMUM_ACCURACY}")
    print(f"The jobs: {airflow.command('tony', 'list', '--all')}")
    print(f"Their logs: {airflow.command('tony', 'logs', '--dag-id', 'digits_train', '--task-id', 'train')}")
