"""An example DAG in a whole Airflow, on the cluster as it is."""

from __future__ import annotations

import sys
from uuid import uuid4

from tests.demo.airflow import REPOSITORY
from tests.demo.published import Published
from tests.e2e.airflow import Airflow
from tests.e2e.installation import LOCAL
from tests.e2e.runs import Run
from tests.hadoop.user_containers import system_user
from tests.secure.field import Field
from tests.secure.row import LENIENT, row
from tests.waiting import until

DAG = "digits_train"
LEAST_ACCURACY = 0.95
RUN_SECONDS = 900.0


@row(
    "digits-dag",
    "nothing: the digits DAG from its data to the published model, by a whole Airflow",
    by="alice",
    cluster=LENIENT,
)
def digits_dag(field: Field) -> str:
    place = field.place
    airflow = Airflow(
        field.folder / "airflow",
        bundles=[{"name": "dags", "classpath": LOCAL, "kwargs": {"path": str(REPOSITORY / "dags")}}],
        connection=place.connection,
        environment={"TONY_EXAMPLES_PYTHON_ENV": sys.prefix},
    )
    field.at_end(airflow.stop)
    airflow.start()
    rest = airflow.rest
    until(lambda: DAG in {each["dag_id"] for each in rest.call("GET", "/dags", limit=100)["dags"]}, "the digits DAG")
    rest.call("PATCH", f"/dags/{DAG}", {"is_paused": False})
    run = Run(rest, DAG, f"secure_{uuid4().hex[:8]}")
    rest.call("POST", f"/dags/{DAG}/dagRuns", {"dag_run_id": run.run_id, "logical_date": None})
    state = run.end(RUN_SECONDS)
    field.expect(state == "success", f"the run ended as {state}: {run.describe()}")
    hook = place.hook()
    published = Published.current(hook.storage(), hook.layout.root)
    field.expect(published.accuracy >= LEAST_ACCURACY, f"the model's accuracy is {published.accuracy}")
    application = hook.application(published.application_id)
    field.expect(application is not None and application.user == "alice", f"it was trained by {application}")
    tasks = ", ".join(f"{each['task_id']} {each['state']}" for each in run.tasks())
    return f"{tasks}; accuracy {published.accuracy:.3f}; trained as alice, user {system_user('alice')} of the system"
