"""The story of a training that is watched, on the embedded local cluster.

dag.test() runs one task after the other, so these two run in turn; tests/sensors has a sensor beside a running job.
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
        "tell": "skipped"
    }
    done = succeeded(run_again(watched, trained.run_id, ["watch", "tell"]))
    seen = done.results["watch"]
    assert (seen["state"], seen["step"]) == ("SUCCEEDED", 2)
    assert [seen["application_id"]] == applications(hook)
    assert states(done)["tell"] == "skipped"


def test_when_the_watch_fails_somebody_is_told(examples: DagBag, hook: TonyHook) -> None:
    watched = examples.dags["clicks_watched"]
    # A training of which there is nothing to see.
    marked = run(watched, logical_date=None, mark_success_pattern=".*")
    done = run_again(watched, marked.run_id, ["watch", "tell"])
    assert isinstance(done.errors["watch"], TonyJobMissed)
    assert states(done)["tell"] == "success"
