"""The example DAG with a sensor that watches a training, on the embedded local cluster.

dag.test() runs one task after the other, so these two tasks run in turn. In tests/sensors, a sensor watches a running
job.
"""

from __future__ import annotations

from airflow.dag_processing.dagbag import DagBag

from tests.airflow_dags import run, run_again
from tests.dags.examples import states, succeeded
from tests.operators.jobs import applications
from tony_provider.exceptions import TonyJobMissed
from tony_provider.hooks.tony import TonyHook


def test_a_training_that_goes_well_is_watched_to_its_end(examples: DagBag, hook: TonyHook) -> None:
    watched = examples.dags["clicks_watched"]
    trained = run(watched, logical_date=None, run_conf={"epochs": 2, "pause": 0}, mark_success_pattern="watch")
    assert states(succeeded(trained)) == dict.fromkeys(("write_clicks", "train", "watch"), "success") | {
        "alert": "skipped"
    }
    done = succeeded(run_again(watched, trained.run_id, ["watch", "alert"]))
    seen = done.results["watch"]
    assert (seen["state"], seen["step"]) == ("SUCCEEDED", 2)
    assert [seen["application_id"]] == applications(hook)
    assert states(done)["alert"] == "skipped"


def test_if_the_sensor_fails_the_alert_runs(examples: DagBag, hook: TonyHook) -> None:
    watched = examples.dags["clicks_watched"]
    # Airflow marks the training as successful, so it has no application.
    marked = run(watched, logical_date=None, mark_success_pattern=".*")
    done = run_again(watched, marked.run_id, ["watch", "alert"])
    assert isinstance(done.errors["watch"], TonyJobMissed)
    assert states(done)["alert"] == "success"
