"""Ten thousand summaries, and how long each end point takes with them: ``python -m tests.portal.many``.

In a SQLite database of its own, or in the empty one whose address is in TONY_MANY_DATABASE.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tests import airflow_home

if TYPE_CHECKING:  # it imports Airflow, whose home is to be named before
    from starlette.testclient import TestClient

SUMMARIES = 10_000
_DAGS = 20
_DATES = SUMMARIES // _DAGS


def fill() -> None:
    """Fifty of each thousand have no verdict: their tasks run."""
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import insert

    from tests.portal import stored

    instances, values = [], []
    for dag in range(_DAGS):
        dag_id = f"many_{dag:02}"
        stored.add_dag(dag_id)
        stored.add_schedule(dag_id, "0 6 * * *")
        for number, dag_run_id in enumerate(stored.add_runs(dag_id, _DATES)):
            runs = (dag * _DATES + number) % 20 == 0
            instances.append(stored.instance(dag_id, number, "running" if runs else "success"))
            verdict: dict[str, Any] = {"verdict": None, "finished_ms": None} if runs else {}
            about = stored.summary(
                number,
                dag_id,
                application_id=stored.application_id(dag * _DATES + number),
                metrics={f"metric_{n}": n / 7 for n in range(10)},
                parameters={f"optimizer.parameter_{n}": str((number + n) / 7) for n in range(20)},
                parameter_sources={f"optimizer.parameter_{n}": "program" for n in range(20)},
                curves=[stored.curve(f"metric_{n}") for n in range(5)],
                warnings=["a warning that is about as long as warnings are, and somewhat longer than this line is"] * 2,
                **verdict,
            )
            values += stored.values(dag_run_id, about)
    with create_session() as session:
        for start in range(0, len(instances), 500):
            session.execute(insert(TaskInstance), instances[start : start + 500])
        for start in range(0, len(values), 500):
            session.execute(insert(TaskStateStoreModel), values[start : start + 500])
    print(f"{len(instances)} summaries, {sum(len(each['value']) for each in values) / 1e6:.0f} MB")


def paths() -> list[str]:
    from tests.portal import stored

    one, other = stored.application_id(77), stored.application_id(1234)
    return [
        "/jobs",
        "/jobs?order=-memory&limit=500",
        "/jobs?order=-param:optimizer.parameter_3&columns=metric:metric_1&columns=param:optimizer.parameter_3",
        "/jobs?text=many_03&verdict=RUNNING,LOST",
        "/jobs?dag_id=many_03",
        f"/jobs/{one}",
        f"/jobs/{one}/history",
        f"/jobs/{one}/logs",
        f"/compare?ids={one},{other}",
        "/dags/many_03/dates",
    ]


def client() -> TestClient:
    """Of Airflow's API server, which has been asked once; an administrator has logged in."""
    from airflow.api_fastapi.app import create_app, get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from starlette.testclient import TestClient

    app = create_app(apps="core")
    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="admin", role="admin"))
    found = TestClient(app, headers={"Authorization": f"Bearer {token}"})
    found.get("/tony/api/jobs?limit=0")
    return found


def times() -> Iterator[tuple[str, list[tuple[float, float]], int]]:
    """Of each end point: of the first call, which has parsed nothing yet, and of the next, the seconds that it took and
    those of a processor; bytes.
    """
    from tony_provider.portal.stored_jobs import ROW_CACHE

    asks = client()
    for path in paths():
        taken = []
        ROW_CACHE.clear()
        for _ in range(2):
            began = time.perf_counter(), time.process_time()
            answer = asks.get(f"/tony/api{path}")
            taken.append((time.perf_counter() - began[0], time.process_time() - began[1]))
            assert answer.status_code in (200, 503), (path, answer.text)
        yield path, taken, len(answer.content)


def prepare() -> None:
    """Before Airflow is imported: it is a server, with a database that is made here, or was named."""
    _be_server()
    airflow_home.migrate()


def _be_server() -> None:
    os.environ["_AIRFLOW_PROCESS_CONTEXT"] = "server"
    if database := os.environ.get("TONY_MANY_DATABASE"):
        os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = database
    os.environ["AIRFLOW_CONN_TONY_DEFAULT"] = json.dumps(
        {"conn_type": "tony", "extra": {"backend": "local", "staging_dir": str(airflow_home.HOME / "tony")}}
    )


def main(*words: str) -> None:
    """``fill``: only that, in a database that Airflow has made."""
    if words == ("fill",):
        _be_server()
        fill()
        return
    prepare()
    fill()
    for path, taken, size in times():
        told = ", then".join(f"{wall:6.3f} s ({processor:5.3f} of a processor)" for wall, processor in taken)
        print(f"{path.replace('application_1767600000000', '…'):<45} first{told}, {size:>7} bytes", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
